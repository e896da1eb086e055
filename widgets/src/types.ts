/**
 * What a chunk's header says, in the words of PROTOCOL.md.
 *
 * Types only: nothing here runs. Every string may come from a model or a file and is shown as text, never as HTML.
 */

export interface Settings {
  mode: "greedy" | "sample";
  mode_reason?: string;
  temperature: number;
  top_k: number;
  top_p: number;
  min_p: number;
  repetition_penalty: number;
  min_length?: number;
  no_repeat_ngram_size?: number;
  random_seed?: number | null;
  max_length?: number;
  /** Names of all processors in the order in which they acted; sent when a person changed it or added one. */
  processors?: string[];
  /** Name of a person's own sampler, which took the place of everything after the processors. */
  sampler?: string | null;
}

export type RunStatus = "running" | "done" | "stopped" | "failed";

export interface RunInfo {
  run: number;
  parent: number | null;
  fork: number | null;
  forced: number | null;
  status: RunStatus;
  finish: string | null;
  error: string | null;
  prompt_tokens: number;
  cached_tokens: number;
  question: string;
  prompt_text: string;
  settings: Settings;
  start_ms: number;
}

export interface ColumnInfo {
  name: string;
  dtype: "u1" | "u2" | "u4" | "i4" | "f4" | "f8";
  shape: number[];
  offset: number;
}

export type EngineTableName =
  | "steps"
  | "decisions"
  | "operands"
  | "holders"
  | "tables"
  | "admissions"
  | "admission_operands"
  | "pool";
export type TableName = "tokens" | "changed" | "seen" | "stages" | EngineTableName;

/** One turn of an engine's request, as far as it has come. */
export interface TurnInfo {
  request: number;
  turn: number;
  run: number | null;
  status: string;
  finish: string;
  prompt_tokens: number;
  generated_tokens: number;
  cached_prompt_tokens: number;
  preemptions: number;
  recomputed_tokens: number;
  arrived_ms: number | null;
  scheduled_ms: number | null;
  first_token_ms: number | null;
  finished_ms: number | null;
}

export interface Header {
  format: string;
  version: number;
  seq: number;
  first: Partial<Record<TableName, number>>;
  model: { name: string; vocab_size: number; kv_bytes_per_token?: number };
  /** `dropped`: rows that did not fit into the recorder, by table. */
  origin: { machine?: string; recorded_at?: string; dropped?: Partial<Record<"tokens" | "stages" | "steps", number>> };
  runs: RunInfo[];
  /** Token id, text, 1 if special; a token that is not whole characters has its bytes in hex. */
  texts: [number, string, number, string?][];
  stage_names: string[];
  processor_names: string[];
  turns?: TurnInfo[];
  /** Run and the token ids it began with, for runs that are turns. */
  prompts?: [number, number[]][];
  /** What the engine's tables count in; missing when nothing was added since it was last sent. */
  words?: string[];
  columns: ColumnInfo[];
}

/** The settings a person can move; the rest of a run's settings stays as recorded. */
export type Knobs = Pick<Settings, "mode" | "temperature" | "top_k" | "top_p" | "min_p" | "repetition_penalty">;

export interface Selection {
  run: number;
  token: number;
}

/** What is looked at in an engine's run: a step by its place in the recording, a request, a block of the pool. */
export interface At {
  step: number;
  request: number;
  block: number | null;
}
