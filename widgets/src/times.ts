/**
 * When everything of one run happened: its tokens and stages as intervals in ms, counted from the run's start.
 *
 * Reads the store; knows nothing about pixels.
 */
import { median } from "./format";
import type { Run, Store } from "./store";

/** Slate tones of the picture. `recorder` is the recorder's own work, shown apart. */
export type Kind = "prep" | "run" | "choose" | "out" | "recorder";

export interface StageTime {
  name: string;
  kind: Kind;
  from: number;
  to: number;
}

export interface TokenTime {
  index: number;
  row: number;
  from: number;
  to: number;
  stages: StageTime[];
}

export interface RunTimes {
  /** First and last moment that the picture shows. */
  from: number;
  to: number;
  tokens: TokenTime[];
  /** Stages before the first token, such as the chat template. */
  before: StageTime[];
  /** Median time of a token after the first; NaN when there is none. */
  typical: number;
}

const KINDS: Record<string, Kind> = {
  chat_template: "prep",
  tokenize: "prep",
  prepare_inputs: "prep",
  run_prefill: "run",
  run_decode: "run",
  kv_append: "out",
  detokenize: "out",
  recorder: "recorder",
};

/** A stage that is not known is a person's own processor: it takes part in choosing. */
export const kindOf = (name: string): Kind => KINDS[name] ?? "choose";

const WORDS: Record<string, string[]> = {
  chat_template: ["chat template", "template"],
  tokenize: ["split into tokens", "tokenize"],
  prepare_inputs: ["prepare inputs", "prepare"],
  run_prefill: ["run model on the whole prompt", "run model", "model"],
  run_decode: ["run model", "model"],
  read_logits: ["read scores", "read"],
  repetition_penalty: ["penalty"],
  no_repeat_ngram: ["no repeats"],
  select: ["temperature, filters, draw", "filters, draw", "draw"],
  kv_append: ["keep in cache", "cache"],
  detokenize: ["turn into text", "to text"],
  recorder: ["the recorder's own work"],
};

/** A stage in words, longest first. */
export const stageWords = (name: string): string[] => WORDS[name] ?? [name.replace(/_/g, " ")];

export function timesOf(store: Store, run: Run): RunTimes {
  const zero = run.info.start_ms;
  const names = store.header?.stage_names ?? [];
  const tokens = run.rows.map((row, index): TokenTime => {
    const at = (column: string) => store.tokens.get(column, row) - zero;
    return { index, row, from: at("start_ms"), to: at("end_ms"), stages: [] };
  });
  const before: StageTime[] = [];
  for (const i of run.stages) {
    const get = (column: string) => store.stages.get(column, i);
    const name = names[get("stage")] ?? `stage ${get("stage")}`;
    const from = get("start_ms") - zero;
    const stage = { name, kind: kindOf(name), from, to: from + get("dur_ms") };
    (tokens[get("token")]?.stages ?? before).push(stage);
  }
  for (const { stages } of tokens) stages.sort((a, b) => a.from - b.from);
  const ends = [...before, ...tokens.map((t) => ({ to: Math.max(t.to, t.stages.at(-1)?.to ?? t.to) }))];
  const later = tokens.slice(1).map((t) => t.to - t.from);
  return {
    from: before.reduce((least, s) => Math.min(least, s.from), 0),
    to: ends.reduce((most, s) => Math.max(most, s.to), 0),
    tokens,
    before,
    typical: median(later),
  };
}

/** Neighbouring stages of choosing as one: [from, to] each. */
export function choosing(stages: readonly StageTime[]): [number, number][] {
  const out: [number, number][] = [];
  let open = false;
  for (const s of stages) {
    if (s.kind === "recorder") continue;
    if (s.kind === "choose" && open) out[out.length - 1][1] = s.to;
    else if (s.kind === "choose") out.push([s.from, s.to]);
    open = s.kind === "choose";
  }
  return out;
}

/** Where the time of a token went, in ms. `rest` leaves the recorder's own work out. */
export function shareOf(token: TokenTime): {
  total: number;
  model: number;
  choose: number;
  rest: number;
  recorder: number;
} {
  const sum = (kind: Kind) => token.stages.filter((s) => s.kind === kind).reduce((t, s) => t + s.to - s.from, 0);
  const inside = token.stages
    .filter((s) => s.kind === "recorder")
    .reduce((t, s) => t + Math.max(0, Math.min(s.to, token.to) - Math.max(s.from, token.from)), 0);
  const total = token.to - token.from - inside;
  const model = sum("run");
  const choose = sum("choose");
  return { total, model, choose, rest: Math.max(0, total - model - choose), recorder: sum("recorder") };
}
