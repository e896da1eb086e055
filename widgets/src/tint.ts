/**
 * What the blue of a token means: how likely, how doubtful, or how slow. Scale, legend and words of each.
 *
 * Reads the store; the spans themselves belong to the ribbon.
 */
import { share } from "./blocks";
import { candidates, count, median, percent, quantile, time } from "./format";
import type { Run, Store } from "./store";
import { laterRows, tookMs } from "./tokens";

export type TintKind = "probability" | "entropy" | "latency";

export const TINTS: readonly (readonly [TintKind, string])[] = [
  ["probability", "Probability"],
  ["entropy", "Entropy"],
  ["latency", "Latency"],
];

/** Question and how to read it. */
export const HEADS: Record<TintKind, [string, string]> = {
  probability: [
    "How sure was the model of each token?",
    "A model writes in tokens, pieces of words. The bluer a token, the more likely the model found it.",
  ],
  entropy: [
    "How much did the model hesitate at each token?",
    "The bluer a token, the more candidates were about as likely before one was chosen. This doubt is called entropy: 1 bit is like choosing between 2 equally likely tokens, 3 bits between 8.",
  ],
  latency: [
    "How long did each token take?",
    "The bluer a token, the longer it took to make, compared with the others of this trace.",
  ],
};
const FULL_DOUBT_BITS = 8;

/** Latencies of all tokens but those that waited for a prompt, sorted. */
const laterTimes = (store: Store, runs: readonly Run[]): Float64Array =>
  Float64Array.from(runs.flatMap((r) => laterRows(store, r)).map((row) => tookMs(store, row))).sort();

export class Tint {
  kind: TintKind = "probability";
  /** From the 5th to the 95th percentile: from zero, all tokens would look alike. */
  private scale: [number, number] = [0, 1];

  constructor(private store: Store) {}

  /** Fits the scale to the data; returns what must be equal for painted tokens to stay right. */
  fit(): string {
    if (this.kind !== "latency") return this.kind;
    const sorted = laterTimes(this.store, this.store.runs);
    const next: [number, number] = sorted.length ? [quantile(sorted, 0.05), quantile(sorted, 0.95)] : [0, 1];
    const [low, high] = this.scale;
    const moved = Math.abs(next[0] - low) + Math.abs(next[1] - high);
    if (moved > 0.05 * (high - low) || !this.store.running) this.scale = next;
    return `latency ${this.scale}`;
  }

  /** 0 to 1; the first token of an answer, which waited for the whole prompt, counts as slow. */
  of(row: number, run: Run): number {
    const { tokens } = this.store;
    if (this.kind === "probability") return tokens.get("prob", row);
    if (this.kind === "entropy") return share(tokens.get("entropy", row), 0, FULL_DOUBT_BITS);
    const took = tookMs(this.store, row);
    if (Number.isNaN(took)) return 0; // put there by hand: it took no time
    if (run.rows[0] === row && run.info.parent === null && this.store.firstIndex(run) === 0) return 1;
    return share(took, ...this.scale);
  }

  get legend(): [string, string] {
    if (this.kind === "probability") return ["0 %", "100 %"];
    if (this.kind === "entropy") return ["sure", `${FULL_DOUBT_BITS} bits or more`];
    return [time(this.scale[0]), time(this.scale[1])];
  }

  /** The one number of a run, and what it is. */
  headline(run: Run | undefined): [string, string] {
    if (!run?.rows.length) return ["–", "no token yet"];
    const n = count(run.rows.length);
    const middle = (column: string) => median(run.rows.map((row) => this.store.tokens.get(column, row)));
    if (this.kind === "probability")
      return [percent(middle("prob")), `typical probability of a token (median of ${n})`];
    if (this.kind === "entropy")
      return [
        candidates(middle("entropy")),
        `equally likely candidates would leave the typical doubt (median of ${n})`,
      ];
    const later = laterTimes(this.store, [run]);
    return [time(quantile(later, 0.5)), `for a typical token after the first (median of ${count(later.length)})`];
  }

  /** What the caption adds. */
  get remark(): string {
    if (this.kind !== "latency") return "";
    return " A token put there by hand took none. The scale runs from the 5th to the 95th percentile, so that one slow token does not make all others look alike.";
  }
}
