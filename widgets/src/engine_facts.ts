/**
 * What an engine's run is told in: steps, turns, requests and admissions, as a reader meets them.
 *
 * Types, and how a turn of the header becomes one. Knows nothing about tables or chunks.
 */
import type { TurnInfo } from "./types";

export type Verdict = "decode" | "prefill" | "wait" | "preempt" | "reject";

export interface Step {
  /** The engine's own number. */
  step: number;
  startMs: number;
  durMs: number;
  /** Of that, inside the model. */
  runMs: number;
  budget: number;
  /** Tokens computed. */
  scheduled: number;
  /** Requests that waited before the step. */
  waiting: number;
  blocksUsed: number;
  blocksCached: number;
  blocksFree: number;
  blockSize: number;
}

export interface Turn {
  request: number;
  turn: number;
  /** The answer in the trace. */
  run: number | null;
  status: string;
  finish: string;
  promptTokens: number;
  generatedTokens: number;
  cachedPromptTokens: number;
  preemptions: number;
  recomputedTokens: number;
  /** NaN while it has not come, like the following. */
  arrivedMs: number;
  scheduledMs: number;
  firstTokenMs: number;
  finishedMs: number;
}

export interface EngineRequest {
  request: number;
  /** What it asks, in its own words. */
  label: string;
  turns: Turn[];
}

/** A request was given a place; `cachedTokens` of its text were in the cache already, `why` says why not more. */
export interface Admission {
  step: number;
  request: number;
  cachedTokens: number;
  readonly why: string;
}

const ms = (value: number | null): number => (typeof value === "number" ? value : Number.NaN);

export const turnOf = (info: TurnInfo): Turn => ({
  request: info.request,
  turn: info.turn,
  run: typeof info.run === "number" ? info.run : null,
  status: info.status,
  finish: info.finish,
  promptTokens: info.prompt_tokens,
  generatedTokens: info.generated_tokens,
  cachedPromptTokens: info.cached_prompt_tokens,
  preemptions: info.preemptions,
  recomputedTokens: info.recomputed_tokens,
  arrivedMs: ms(info.arrived_ms),
  scheduledMs: ms(info.scheduled_ms),
  firstTokenMs: ms(info.first_token_ms),
  finishedMs: ms(info.finished_ms),
});
