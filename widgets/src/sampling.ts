/**
 * The distribution of one step under other settings, computed from what was recorded: no kernel, no full row of logits.
 *
 * Receives the 64 best logits exactly and a histogram of all others; returns the shares after each stage. Order and rules are
 * those of onnxruntime-genai: processors (the repetition penalty divides positive and multiplies negative raw logits), top-k,
 * softmax at the temperature, top-p inside the renormalised top-k, then min-p against the best that is left.
 * A logit is written as its delta: highest raw logit minus this logit, so 0 is the most likely.
 */
import type { Knobs } from "./types";

/** One bin, or part of one, of the tokens that are not among the best. */
interface Group {
  lo: number;
  hi: number;
  n: number;
  seen: boolean;
  band: number;
}

export interface Step {
  deltas: ArrayLike<number>;
  /** Slots whose token occurs in the sequence already. */
  seen: ReadonlySet<number>;
  topLogit: number;
  /** ln sum exp(-delta) over the whole vocabulary. */
  logZ: number;
  tail: { lo: number; hi: number; count: ArrayLike<number>; seen: ArrayLike<number> };
  /** So many slots are the most likely tokens without a gap; all of them unless said. */
  exact?: number;
  /** What a grammar left: how many tokens, and their share. */
  grammar?: { allowed: number; mass: number } | undefined;
}

/** What a recorded processor did to the candidates: how far it moved each slot down (Infinity = forbidden). */
export interface Processor {
  name: string;
  /** Said in place of how many of the candidates it moved. */
  note?: string;
  moved: ReadonlyMap<number, number>;
}

export interface Stage {
  name: string;
  /** Share of each slot. */
  prob: Float64Array;
  /** Why a slot was cut in this very stage; null where it was not. */
  cut: (string | null)[];
  /** Share and number of tokens of each band of the tail, by raw rank. */
  bands: { prob: number; left: number; cut: string | null }[];
  /** Tokens that can still be drawn. */
  left: number;
}

export const PENALTY = "repetition_penalty";
export const GUIDANCE = "guidance";
const NO_MASS = -1e4; // a bonus so low that tokens weigh nothing at any temperature

/** Everything that still stands between two stages. */
interface State {
  deltas: Float64Array;
  groups: Group[];
  /** The histogram's masses are scaled by exp(bonus / T), so that at T = 1 they add up to what was measured. */
  bonus: number;
}

/** Mean of exp(-(d - best) / t) for d spread evenly over [lo, hi]. */
function meanWeight(lo: number, hi: number, best: number, t: number): number {
  const a = Math.exp((best - lo) / t);
  if (hi - lo < 1e-6 * t) return a;
  return (t * (a - Math.exp((best - hi) / t))) / (hi - lo);
}

const weigh = (g: Group, best: number, t: number, bonus: number) =>
  g.n * meanWeight(g.lo, g.hi, best, t) * Math.exp(bonus / t);

/** The part of a group whose delta is at most `c`. */
function upTo(g: Group, c: number): Group {
  if (g.hi <= c) return g;
  if (g.lo >= c) return { ...g, n: 0, hi: g.lo };
  return { ...g, hi: c, n: (g.n * (c - g.lo)) / (g.hi - g.lo) };
}

/** Bins as groups, split at the given ranks into bands and into seen and unseen tokens. */
function tailGroups({ tail, deltas, exact }: Step, edges: readonly number[]): Group[] {
  const width = (tail.hi - tail.lo) / Math.max(1, tail.count.length);
  const out: Group[] = [];
  let rank = exact ?? deltas.length;
  for (let b = 0; b < tail.count.length; b++) {
    const n = tail.count[b];
    const share = n ? Math.min(1, (tail.seen[b] ?? 0) / n) : 0;
    let lo = tail.lo + b * width;
    const end = lo + width;
    const last = rank + n;
    while (rank < last) {
      const band = edges.findIndex((edge) => rank < edge);
      const stop = Math.min(last, band < 0 ? last : edges[band]);
      const hi = stop === last ? end : lo + ((end - lo) * (stop - rank)) / (last - rank);
      const here = stop - rank;
      for (const [part, seen] of [
        [here * (1 - share), false],
        [here * share, true],
      ] as const)
        if (part > 0) out.push({ lo, hi, n: part, seen, band: band < 0 ? edges.length : band });
      lo = hi;
      rank = stop;
    }
  }
  return out;
}

function begin(step: Step, edges: readonly number[]): State {
  const deltas = Float64Array.from(step.deltas);
  const groups = tailGroups(step, edges);
  const exact = deltas.reduce((sum, d) => sum + Math.exp(-d), 0);
  const measured = Math.exp(step.logZ) - exact;
  const binned = groups.reduce((sum, g) => sum + weigh(g, 0, 1, 0), 0);
  const bonus = binned > 0 && measured > binned * 0.1 ? Math.log(measured / binned) : 0;
  return { deltas, groups, bonus };
}

const bestOf = (s: State): number =>
  Math.min(...s.deltas, ...s.groups.map((g) => (g.n > 0 ? g.lo : Number.POSITIVE_INFINITY)));

const penalised = (delta: number, top: number, p: number): number => {
  const logit = top - delta;
  return top - (logit > 0 ? logit / p : logit * p);
};

function penalise(s: State, step: Step, p: number): State {
  const deltas = s.deltas.map((d, i) => (step.seen.has(i) ? penalised(d, step.topLogit, p) : d));
  const groups = s.groups.map((g) =>
    g.seen ? { ...g, lo: penalised(g.lo, step.topLogit, p), hi: penalised(g.hi, step.topLogit, p) } : g,
  );
  return { ...s, deltas, groups };
}

const move = (s: State, { moved }: Processor): State => ({
  ...s,
  deltas: s.deltas.map((d, i) => d + (moved.get(i) ?? 0)),
});

/**
 * A grammar's mask over the histogram. Which tokens of a bin it left is not recorded; how many of all, and what they weigh,
 * is: every bin keeps the same part of its tokens, and the masses are set so that they add up to what was measured.
 */
function maskTail(s: State, step: Step, { moved }: Processor): State {
  if (!step.grammar) return s;
  const { allowed, mass: allMass } = step.grammar;
  const z = Math.exp(step.logZ);
  let open = 0;
  let openMass = 0;
  for (let i = 0; i < step.deltas.length; i++)
    if (moved.get(i) !== Number.POSITIVE_INFINITY) {
      open++;
      openMass += Math.exp(-step.deltas[i]) / z;
    }
  const count = s.groups.reduce((n, g) => n + g.n, 0);
  const mass = s.groups.reduce((sum, g) => sum + weigh(g, 0, 1, s.bonus), 0) / z;
  const kept = count > 0 ? Math.max(0, allowed - open) / count : 0;
  if (kept === 0) return { ...s, groups: [] };
  const left = Math.max(0, allMass - openMass);
  const bonus = mass > 0 && left > 0 ? Math.log(left / mass / kept) : NO_MASS;
  return { ...s, groups: s.groups.map((g) => ({ ...g, n: g.n * kept })), bonus: s.bonus + bonus };
}

/** Shares at temperature `t`; at 0 everything goes to the best. */
function measure(name: string, s: State, t: number, bands: number): Stage {
  const best = bestOf(s);
  const weight = (lo: number, n: number, mass: () => number) => (n <= 0 ? 0 : t > 0 ? mass() : lo === best ? 1 : 0);
  const prob = s.deltas.map((d) => weight(d, 1, () => Math.exp((best - d) / t)));
  if (t <= 0) prob.fill(0, prob.indexOf(1) + 1);
  const tails = Array.from({ length: bands }, () => ({ prob: 0, left: 0, cut: null as string | null }));
  for (const g of s.groups) {
    const mass = weight(g.lo, g.n, () => weigh(g, best, t, s.bonus));
    tails[g.band].prob += t > 0 || !prob.includes(1) ? mass : 0;
    tails[g.band].left += t > 0 ? g.n : 0;
  }
  const total = prob.reduce((a, b) => a + b, 0) + tails.reduce((a, b) => a + b.prob, 0) || 1;
  for (const tail of tails) tail.prob /= total;
  const shares = prob.map((p) => p / total);
  const left = shares.reduce((n, p) => n + (p > 0 ? 1 : 0), 0) + tails.reduce((n, b) => n + b.left, 0);
  return { name, prob: shares, cut: Array.from(s.deltas, () => null), bands: tails, left };
}

/** Smallest c in [lo, hi] with f(c) >= want, for f that grows with c. */
function solve(f: (c: number) => number, want: number, lo: number, hi: number): number {
  if (f(hi) < want) return hi;
  for (let i = 0; i < 44; i++) {
    const mid = (lo + hi) / 2;
    if (f(mid) < want) lo = mid;
    else hi = mid;
  }
  return hi;
}

interface Cut {
  keep: (slot: number) => boolean;
  /** Groups are kept up to this delta. */
  until: number;
  why: (slot: number | null) => string;
}

const order = (s: State): number[] =>
  Array.from(s.deltas.keys())
    .filter((i) => s.deltas[i] < Number.POSITIVE_INFINITY)
    .sort((a, b) => s.deltas[a] - s.deltas[b] || a - b);

const span = (s: State): [number, number] => [
  Math.min(...s.groups.map((g) => g.lo)),
  Math.max(...s.groups.map((g) => g.hi)),
];

/** The k best: a candidate's place counts the better candidates and the better part of the histogram. */
function topK(s: State, k: number): Cut {
  const start = span(s)[0];
  const above = (c: number) => (c <= start ? 0 : s.groups.reduce((n, g) => n + upTo(g, c).n, 0));
  const places = new Map(order(s).map((slot, i) => [slot, i + 1 + above(s.deltas[slot])]));
  const keep = (slot: number) => (places.get(slot) ?? Number.POSITIVE_INFINITY) <= k + 0.5;
  const kept = [...places.keys()].filter(keep).length;
  const until = kept >= k || !s.groups.length ? Number.NEGATIVE_INFINITY : solve(above, k - kept, ...span(s));
  return { keep, until, why: (slot) => (slot === null ? `rank > ${k}` : `rank ${Math.round(places.get(slot) ?? 0)}`) };
}

/** The best until their sum reaches p; the one that reaches it stays. */
function topP(s: State, stage: Stage, t: number, p: number): Cut {
  const best = bestOf(s);
  const raw = s.groups.reduce((sum, g) => sum + weigh(g, best, t, s.bonus), 0);
  const inTail = stage.bands.reduce((sum, b) => sum + b.prob, 0);
  const unit = raw > 0 ? inTail / raw : 0;
  const start = span(s)[0];
  const above = (c: number) =>
    c <= start ? 0 : s.groups.reduce((sum, g) => sum + unit * weigh(upTo(g, c), best, t, s.bonus), 0);
  let before = 0;
  const kept = new Set<number>();
  for (const slot of order(s)) {
    if (before + above(s.deltas[slot]) < p - 1e-9) kept.add(slot);
    before += stage.prob[slot];
  }
  const items = (c: number) => stage.prob.reduce((sum, q, i) => sum + (s.deltas[i] <= c ? q : 0), 0);
  const until = s.groups.length ? solve((c) => items(c) + above(c), p, best, span(s)[1]) : 0;
  return { keep: (slot) => kept.has(slot), until, why: () => `past ${Math.round(p * 100)} %` };
}

/** What is at least `share` times as likely as the best. */
function minP(s: State, stage: Stage, t: number, share: number): Cut {
  const best = bestOf(s);
  const until = best - t * Math.log(share);
  const most = Math.max(...stage.prob);
  return {
    keep: (slot) => s.deltas[slot] <= until + 1e-12,
    until,
    why: () => `< ${(most * share * 100).toPrecision(2)} %`,
  };
}

/** What is left after a cut, and the shares with the reason at everything that went. */
function apply(name: string, s: State, before: Stage, t: number, cut: Cut | null): [State, Stage] {
  if (!cut) return [s, measure(name, s, t, before.bands.length)];
  const gone = (i: number) => before.prob[i] > 0 && !cut.keep(i);
  const deltas = s.deltas.map((d, i) => (before.prob[i] > 0 && cut.keep(i) ? d : Number.POSITIVE_INFINITY));
  const next = { ...s, deltas, groups: s.groups.map((g) => upTo(g, cut.until)).filter((g) => g.n > 0) };
  const stage = measure(name, next, t, before.bands.length);
  stage.cut = Array.from(deltas, (_, i) => (gone(i) ? cut.why(i) : null));
  stage.bands.forEach((band, b) => {
    if (band.left < 0.5 && before.bands[b].left >= 0.5) Object.assign(band, { left: 0, prob: 0, cut: cut.why(null) });
  });
  return [next, stage];
}

/** At temperature 0 everything but the best is cut. */
function explainGreedy(stage: Stage, before: Stage): void {
  const why = "not the best";
  stage.cut = Array.from(stage.prob, (p, i) => (p === 0 && before.prob[i] > 0 ? why : null));
  stage.bands.forEach((band, b) => {
    if (band.prob === 0 && before.bands[b].left > 0) band.cut = why;
  });
}

/** The stages from the raw distribution to what is drawn from; `edges` are the raw ranks at which the tail is split. */
export function evaluate(
  step: Step,
  knobs: Knobs,
  processors: readonly Processor[],
  edges: readonly number[],
): Stage[] {
  const bands = edges.length + 1;
  let state = begin(step, edges);
  const out = [measure("raw", state, 1, bands)];
  for (const processor of processors) {
    const before = out[out.length - 1];
    state = processor.name === PENALTY ? penalise(state, step, knobs.repetition_penalty) : move(state, processor);
    if (processor.name === GUIDANCE) state = maskTail(state, step, processor);
    const stage = measure(processor.name, state, 1, bands);
    stage.cut = stage.cut.map((_, i) => (before.prob[i] > 0 && state.deltas[i] > 1e30 ? "forbidden" : null));
    stage.bands.forEach((band, b) => {
      if (band.left < 0.5 && before.bands[b].left >= 0.5) band.cut = "forbidden";
    });
    out.push(stage);
  }
  const t = knobs.mode === "greedy" ? 0 : knobs.temperature;
  let stage = measure("temperature", state, t, bands);
  if (t <= 0) explainGreedy(stage, out[out.length - 1]);
  out.push(stage);
  const filter = (name: string, cut: (() => Cut) | null) => {
    [state, stage] = apply(name, state, stage, t, cut && t > 0 ? cut() : null);
    out.push(stage);
  };
  filter("top_k", knobs.top_k > 0 ? () => topK(state, knobs.top_k) : null);
  filter("top_p", knobs.top_p > 0 && knobs.top_p < 1 ? () => topP(state, stage, t, knobs.top_p) : null);
  filter("min_p", knobs.min_p > 0 ? () => minP(state, stage, t, knobs.min_p) : null);
  return out;
}
