/**
 * One recorded step as the sampling pipeline wants it: candidates, processors, rows of ranks, the settings it was drawn with.
 *
 * Reads the store; computes nothing. Knows nothing about the page.
 */
import { count } from "./format";
import { PENALTY, type Processor, type Stage, type Step } from "./sampling";
import type { Store } from "./store";
import type { Knobs, Settings } from "./types";

/** The settings of a run as knobs: greedy is temperature 0. */
export function knobsOf(s: Settings): Knobs {
  const { mode, top_k, top_p, min_p, repetition_penalty } = s;
  return { mode, top_k, top_p, min_p, repetition_penalty, temperature: mode === "greedy" ? 0 : s.temperature };
}

export function stepOf(store: Store, row: number): Step {
  const get = (name: string) => store.tokens.get(name, row);
  return {
    deltas: Float64Array.from(store.top("top_delta", row), (d) => d / 1024),
    seen: new Set(store.seenSlots(row)),
    topLogit: get("top_logit"),
    logZ: get("log_z"),
    tail: {
      lo: get("tail_lo"),
      hi: get("tail_hi"),
      count: store.top("tail_count", row),
      seen: store.top("tail_seen", row),
    },
  };
}

/** The processors that acted at a row, in their order; the penalty is always among them, because its slider is. */
export function processorsOf(store: Store, row: number): Processor[] {
  const names = store.header?.processor_names ?? [];
  const ids = Array.from(store.top("top_ids", row));
  const deltas = store.top("top_delta", row);
  const now = new Map<number, number>();
  const found = new Map<string, Map<number, number>>();
  for (const { id, by, delta } of store.changes(row)) {
    const slot = ids.indexOf(id);
    const name = names[by] ?? `processor ${by}`;
    const moved = found.get(name) ?? new Map<number, number>();
    found.set(name, moved);
    if (slot < 0) continue;
    const before = now.get(slot) ?? deltas[slot] / 1024;
    const after = delta > 1e30 ? Number.POSITIVE_INFINITY : delta;
    moved.set(slot, after === Number.POSITIVE_INFINITY ? after : after - before);
    now.set(slot, after);
  }
  const out = [...found].map(([name, moved]) => ({ name, moved }));
  if (!found.has(PENALTY)) out.splice(out[0]?.name === "min_length" ? 1 : 0, 0, { name: PENALTY, moved: new Map() });
  return out;
}

/** A line of the picture: one candidate, several by rank, or a band of the tail. */
export type Line =
  | { kind: "one"; slot: number; rank: number }
  | { kind: "some"; slots: number[]; from: number; to: number }
  | { kind: "band"; band: number; from: number; to: number };

export const SHOWN = 12;
const RANK_EDGES = [20, 64];
export const TAIL_EDGES = [1000];

/** The best one by one (the chosen one always), then groups of ranks down to the last token of the vocabulary. */
export function linesOf(candidates: number, vocabulary: number, chosen: number): Line[] {
  const shown = Array.from({ length: Math.min(SHOWN, candidates) }, (_, i) => i);
  if (chosen >= shown.length && chosen < candidates) shown[shown.length - 1] = chosen;
  const out: Line[] = shown.map((slot) => ({ kind: "one", slot, rank: slot + 1 }));
  let from = 0;
  for (const edge of RANK_EDGES) {
    const to = Math.min(edge, candidates);
    const slots = Array.from({ length: Math.max(0, to - from) }, (_, i) => from + i).filter((s) => !shown.includes(s));
    if (slots.length) out.push({ kind: "some", slots, from: slots[0] + 1, to });
    from = to;
  }
  if (vocabulary > candidates) {
    const ends = [...TAIL_EDGES.filter((e) => e > candidates && e < vocabulary), vocabulary];
    let start = candidates;
    for (const end of ends) {
      out.push({ kind: "band", band: TAIL_EDGES.filter((e) => e <= start).length, from: start + 1, to: end });
      start = end;
    }
  }
  return out;
}

/** Share, number of tokens and reason of a line at a stage. */
export function lineAt(line: Line, stage: Stage): { prob: number; left: number; cut: string | null } {
  if (line.kind === "one") {
    const prob = stage.prob[line.slot];
    return { prob, left: prob > 0 ? 1 : 0, cut: stage.cut[line.slot] };
  }
  if (line.kind === "band") return stage.bands[line.band];
  const prob = line.slots.reduce((sum, s) => sum + stage.prob[s], 0);
  const left = line.slots.filter((s) => stage.prob[s] > 0).length;
  const cut = left ? null : (line.slots.map((s) => stage.cut[s]).find((why) => why !== null) ?? null);
  return { prob, left, cut: cut?.replace(/^rank /, "from rank ") ?? null };
}

/** Ranks of a group of candidates, without the word "rank". */
export const ranksOf = (line: Exclude<Line, { kind: "one" }>, last: boolean): string => {
  if (line.from === line.to) return count(line.from);
  return last ? `${count(line.from)}+` : `${count(line.from)}–${count(line.to)}`;
};
