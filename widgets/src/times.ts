/**
 * When everything of one run happened: its tokens and stages as intervals in ms, counted from the run's start.
 *
 * Reads the store; knows nothing about pixels.
 */
import { median } from "./format";
import type { Run, Store } from "./store";
import { byHand, laterRows, tookMs } from "./tokens";

/** Slate tones of the picture. `recorder` is the recorder's own work, shown apart. */
export type Kind = "prep" | "run" | "choose" | "out" | "recorder";

export interface StageTime {
  name: string;
  kind: Kind;
  from: number;
  to: number;
}

export interface TokenTime {
  /** Place among the run's recorded tokens. */
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
  /** Median latency of a token after the first one that the model wrote; NaN when there is none. */
  typical: number;
  /** Place of the token for which the prompt was read; -1 when it is not here. */
  prompt: number;
}

const KINDS: Record<string, Kind> = {
  chat_template: "prep",
  tokenize: "prep",
  prepare_inputs: "prep",
  run_vision: "run",
  run_speech: "run",
  run_embedding: "run",
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
  run_vision: ["look at the images", "images"],
  run_speech: ["listen to the sounds", "sounds"],
  run_embedding: ["put them into the prompt", "embed"],
  prepare_inputs: ["prepare inputs", "prepare"],
  run_prefill: ["run model on the whole prompt (prefill)", "run model", "model"],
  run_decode: ["run model", "model"],
  read_logits: ["read scores", "read"],
  repetition_penalty: ["penalty"],
  no_repeat_ngram: ["no repeats"],
  select: ["temperature, filters, draw", "filters, draw", "draw"],
  commit: ["commit: put it into the text", "commit"],
  kv_append: ["keep in cache", "cache"],
  detokenize: ["turn into text", "to text"],
  recorder: ["the recorder's own work"],
};

/** A stage in words, longest first. */
export const stageWords = (name: string): string[] => WORDS[name] ?? [name.replace(/_/g, " ")];

export function timesOf(store: Store, run: Run): RunTimes {
  const zero = run.info.start_ms;
  const names = store.header?.stage_names ?? [];
  const lost = store.firstIndex(run);
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
    const served = get("token");
    if (served >= 0 && served < lost) continue; // that token was dropped
    (tokens[served - lost]?.stages ?? before).push(stage);
  }
  for (const { stages } of tokens) stages.sort((a, b) => a.from - b.from);
  const ends = [...before, ...tokens.map((t) => ({ to: Math.max(t.to, t.stages.at(-1)?.to ?? t.to) }))];
  const start =
    lost > 0 ? Math.min(...tokens.map((t) => t.from), ...tokens.flatMap((t) => t.stages.map((s) => s.from))) : 0;
  const prompt = lost > 0 || !tokens.length ? -1 : byHand(store, tokens[0].row) ? 1 : 0;
  return {
    from: before.reduce((least, s) => Math.min(least, s.from), start),
    to: ends.reduce((most, s) => Math.max(most, s.to), 0),
    tokens,
    before,
    typical: median(laterRows(store, run).map((row) => tookMs(store, row))),
    prompt,
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

/** Where the latency of a token went, in ms. The recorder's own work comes after it. */
export function shareOf(token: TokenTime): {
  total: number;
  model: number;
  choose: number;
  rest: number;
  recorder: number;
} {
  const sum = (kind: Kind) => token.stages.filter((s) => s.kind === kind).reduce((t, s) => t + s.to - s.from, 0);
  const total = token.to - token.from;
  const model = sum("run");
  const choose = sum("choose");
  return { total, model, choose, rest: Math.max(0, total - model - choose), recorder: sum("recorder") };
}
