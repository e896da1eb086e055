/**
 * Drawing many times from known shares, and what theory expects of it.
 *
 * The same seed gives the same draws.
 */

/** A small seeded generator of numbers in [0, 1) (mulberry32). */
export function seeded(seed: number): () => number {
  let state = seed | 0;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let x = Math.imul(state ^ (state >>> 15), 1 | state);
    x = (x + Math.imul(x ^ (x >>> 7), 61 | x)) ^ x;
    return ((x ^ (x >>> 14)) >>> 0) / 4294967296;
  };
}

/** How often each share came up in `n` draws. */
export function drawMany(shares: readonly number[], n: number, seed: number): number[] {
  const random = seeded(seed);
  const counts = shares.map(() => 0);
  const total = shares.reduce((a, b) => a + b, 0);
  const last = shares.findLastIndex((p) => p > 0);
  for (let i = 0; i < n; i++) {
    let u = random() * total;
    let slot = 0;
    for (; slot < last && u >= shares[slot]; slot++) u -= shares[slot];
    if (last >= 0) counts[slot]++;
  }
  return counts;
}

/** The counts between which 95 of 100 such experiments fall: the 2.5 % and 97.5 % quantiles of Binomial(n, p). */
export function expectedRange(n: number, p: number): [number, number] {
  if (p <= 0) return [0, 0];
  if (p >= 1) return [n, n];
  const odds = Math.log(p / (1 - p));
  let logMass = n * Math.log1p(-p);
  let sum = 0;
  let low = -1;
  for (let k = 0; k <= n; k++) {
    sum += Math.exp(logMass);
    if (low < 0 && sum >= 0.025) low = k;
    if (sum >= 0.975) return [low, k];
    logMass += Math.log((n - k) / (k + 1)) + odds;
  }
  return [Math.max(0, low), n];
}
