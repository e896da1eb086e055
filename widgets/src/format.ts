/**
 * Numbers and token texts as people read them.
 *
 * Pure functions. Percentages, times and ordinals are those of the visual grammar: no more digits than were measured.
 */

export function percent(p: number): string {
  if (!(p >= 0)) return "–";
  if (p >= 0.9995) return "100 %";
  if (p >= 0.0995) return `${Math.round(p * 100)} %`;
  if (p >= 0.00995) return `${(p * 100).toFixed(1)} %`;
  if (p >= 0.001) return `${(p * 100).toFixed(2)} %`;
  return p === 0 ? "0" : "< 0.1 %";
}

export function time(ms: number): string {
  if (!Number.isFinite(ms)) return "–";
  if (ms >= 10_000) return `${(ms / 1000).toFixed(1)} s`;
  if (ms >= 100) return `${Math.round(ms)} ms`;
  if (ms >= 10) return `${ms.toFixed(1)} ms`;
  if (ms >= 0.1) return `${ms.toFixed(2)} ms`;
  return `${Math.round(ms * 1000)} µs`;
}

/** 49152 -> "49 152", with a space that does not break. */
export function count(n: number): string {
  return String(Math.round(n)).replace(/\B(?=(\d{3})+$)/g, "\u202f");
}

export function ordinal(n: number): string {
  const teen = n % 100 > 10 && n % 100 < 14;
  return `${count(n)}${(!teen && ["th", "st", "nd", "rd"][n % 10]) || "th"}`;
}

/** A number of equally likely candidates. */
export const candidates = (bits: number): string => {
  const n = 2 ** bits;
  return n < 10 ? n.toFixed(1) : count(n);
};

export function quantile(sorted: ArrayLike<number>, q: number): number {
  if (!sorted.length) return Number.NaN;
  const at = q * (sorted.length - 1);
  const low = Math.floor(at);
  const high = Math.min(sorted.length - 1, low + 1);
  return sorted[low] + (sorted[high] - sorted[low]) * (at - low);
}

export const median = (values: Iterable<number>): number => quantile(Float64Array.from(values).sort(), 0.5);

/** Characters that show nothing, or turn the line around: controls (line ends apart), joiners, direction marks. */
const HIDDEN = /(?!\n)[\p{Cc}\p{Cf}\u2028\u2029]/gu;

/** Such characters as a mark of one column each. A joiner inside an emoji stays. */
export const shown = (text: string): string =>
  text.replace(HIDDEN, (c, at: number) => {
    const code = c.charCodeAt(0);
    if (code === 9) return "⇥";
    if (code === 0x200d && at > 0) return c;
    return code < 32 ? String.fromCharCode(0x2400 + code) : "�";
  });

/** A token as one visible word: spaces as dots, line ends as arrows. */
export const visible = (text: string): string => shown(text.replace(/ /g, "·").replace(/\n/g, "↵"));

/** Plain text on one line, at most `max` characters, cut at the front or the end. */
export function oneLine(text: string, max: number, cut: "front" | "end" = "end"): string {
  const flat = shown(text.replace(/\s+/g, " "));
  if (flat.length <= max) return flat;
  return cut === "end" ? `${flat.slice(0, max - 1)}…` : `…${flat.slice(1 - max)}`;
}
