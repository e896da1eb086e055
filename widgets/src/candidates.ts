/**
 * One recorded step as the sampling pipeline wants it: candidates, processors, rows of ranks, the settings it was drawn with.
 *
 * Reads the store; computes nothing. Knows nothing about the page.
 */
import { count } from "./format";
import { GUIDANCE, PENALTY, type Processor, type Stage, type Step } from "./sampling";
import type { Store } from "./store";
import type { Knobs, Settings } from "./types";

const OURS = [GUIDANCE, "min_length", PENALTY, "no_repeat_ngram"];

/** The settings of a run as knobs: greedy is temperature 0. */
export function knobsOf(s: Settings): Knobs {
  const { mode, top_k, top_p, min_p, repetition_penalty } = s;
  return { mode, top_k, top_p, min_p, repetition_penalty, temperature: mode === "greedy" ? 0 : s.temperature };
}

export function stepOf(store: Store, row: number): Step {
  const get = (name: string) => store.tokens.get(name, row);
  return {
    deltas: Float64Array.from(store.top("top_delta", row).subarray(0, candidatesOf(store, row)), (d) => d / 1024),
    seen: new Set(store.seenSlots(row)),
    topLogit: get("top_logit"),
    logZ: get("log_z"),
    tail: {
      lo: get("tail_lo"),
      hi: get("tail_hi"),
      count: store.top("tail_count", row),
      seen: store.top("tail_seen", row),
    },
    exact: exactOf(store, row),
    grammar: get("allowed") > 0 ? { allowed: get("allowed"), mass: get("allowed_mass") } : undefined,
  };
}

/** How many candidates there are: of a token that a grammar forced, itself alone. */
export function candidatesOf(store: Store, row: number): number {
  return store.tokens.get("forced", row) === 1 ? 1 : store.top("top_ids", row).length;
}

/** How many candidates are the most likely tokens without a gap; those behind were let through or lifted. */
export function exactOf(store: Store, row: number): number {
  const all = candidatesOf(store, row);
  return Math.min(all, store.tokens.get("exact", row) || all);
}

/** Slots to be shown by themselves although others are more likely: what a grammar let through, what was lifted. */
export function liftedOf(step: Step, processors: readonly Processor[]): number[] {
  const moved = processors.find((p) => p.name === GUIDANCE)?.moved;
  const slots = Array.from(step.deltas, (_, slot) => slot);
  const open = (slot: number) => moved?.get(slot) !== Number.POSITIVE_INFINITY;
  return slots.filter((slot) => (step.grammar ? open(slot) : slot >= (step.exact ?? slots.length)));
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
  const out: Processor[] = [...found].map(([name, moved]) => ({ name, moved }));
  const allowed = store.tokens.get("allowed", row);
  if (allowed > 0) {
    if (!found.has(GUIDANCE)) out.unshift({ name: GUIDANCE, moved: new Map() });
    for (const processor of out) if (processor.name === GUIDANCE) processor.note = `${count(allowed)} allowed`;
  }
  if (!found.has(PENALTY)) {
    const first = out.findIndex((p) => p.name !== GUIDANCE && p.name !== "min_length");
    out.splice(first < 0 ? out.length : first, 0, { name: PENALTY, moved: new Map() });
  }
  return inOrder(out, store.run(store.tokens.get("run", row))?.info.settings.processors ?? []);
}

/** Processors of a person's own always show, also where they changed none of the candidates; all in the run's order. */
function inOrder(acted: Processor[], order: readonly string[]): Processor[] {
  if (!order.length) return acted;
  const silent = order.filter((name) => !OURS.includes(name) && !acted.some((p) => p.name === name));
  const all = [...acted, ...silent.map((name): Processor => ({ name, moved: new Map() }))];
  return all.sort((a, b) => order.indexOf(a.name) - order.indexOf(b.name));
}

/** A line of the picture: one candidate, several by rank, or a band of the tail. */
export type Line =
  /** `rank` 0: not known. */
  | { kind: "one"; slot: number; rank: number }
  | { kind: "some"; slots: number[]; from: number; to: number }
  | { kind: "band"; band: number; from: number; to: number };

export const SHOWN = 12;
const LIFTED = 5;
const RANK_EDGES = [20, 64];
export const TAIL_EDGES = [1000];

/** Slots that get a line each: the best, some of the lifted ones, and the chosen one always. */
function shownOf(candidates: number, chosen: number, lifted: readonly number[]): number[] {
  const first = Array.from({ length: Math.min(SHOWN, candidates) }, (_, i) => i);
  const behind = lifted.filter((slot) => slot >= first.length);
  const wanted = behind.slice(0, Math.max(0, LIFTED - (lifted.length - behind.length)));
  if (chosen >= first.length && chosen < candidates && !wanted.includes(chosen)) {
    if (wanted.length >= LIFTED) wanted.pop();
    wanted.push(chosen);
  }
  wanted.sort((a, b) => a - b);
  return [...first.slice(0, first.length - wanted.length), ...wanted];
}

/**
 * The best one by one (the chosen one always, and what was let through or lifted), then groups of ranks down to the last
 * token of the vocabulary. Slots from `exact` on have a rank that is not known.
 */
export function linesOf(
  candidates: number,
  vocabulary: number,
  chosen: number,
  exact = candidates,
  lifted: readonly number[] = [],
  chosenRank = 0,
): Line[] {
  const shown = shownOf(candidates, chosen, lifted);
  const rankOf = (slot: number) => (slot < exact ? slot + 1 : slot === chosen ? chosenRank : 0);
  const out: Line[] = shown.map((slot) => ({ kind: "one", slot, rank: rankOf(slot) }));
  let from = 0;
  for (const edge of RANK_EDGES) {
    const to = Math.min(edge, exact);
    const slots = Array.from({ length: Math.max(0, to - from) }, (_, i) => from + i).filter((s) => !shown.includes(s));
    if (slots.length) out.push({ kind: "some", slots, from: slots[0] + 1, to });
    from = to;
  }
  const others = Array.from({ length: candidates - exact }, (_, i) => exact + i).filter((s) => !shown.includes(s));
  if (others.length) out.push({ kind: "some", slots: others, from: 0, to: 0 });
  if (vocabulary > candidates) {
    const ends = [...TAIL_EDGES.filter((e) => e > exact && e < vocabulary), vocabulary];
    let start = exact;
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
  if (line.to === 0) return "let through";
  if (line.from === line.to) return count(line.from);
  return last ? `${count(line.from)}+` : `${count(line.from)}–${count(line.to)}`;
};
