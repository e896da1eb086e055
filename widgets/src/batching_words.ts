/**
 * The batching timeline in words: what a request did in a step, and why. Pure: facts in, plain text out.
 *
 * Requests have letters, as in all pictures; step numbers are the engine's own, as in `trace.why(request, step)`.
 */
import type { Event, Facts, Finish, Kind, Lanes } from "./batching_lanes";
import { letters } from "./engine_data";
import { count, time } from "./format";

/** Kinds in the order of the legend: what it is called there, and in a heading about one request. */
export const KINDS: readonly (readonly [Event, string, string])[] = [
  ["wait", "waits", "waits"],
  ["prefill", "reads its prompt", "reads a piece of its prompt"],
  ["hit", "found in the cache", "finds its beginning in the cache"],
  ["decode", "answers", "makes one token of its answer"],
  ["preempt", "loses its place", "loses its place (preempted)"],
  ["finish", "finished", "finishes"],
  ["reject", "can never run", "can never run"],
];

export const headingOf = (kind: Kind): string => KINDS.find(([k]) => k === kind)?.[2] ?? kind;

const FINISH: Record<string, string> = {
  eos: "it said that its answer ends",
  stop_string: "a stop string appeared",
  max_generated_tokens: "it reached its limit of new tokens",
  max_session_tokens: "it reached the limit of its conversation",
  cancelled: "it was cancelled",
  failed: "it failed",
};

const ending = ({ reason }: Finish): string => FINISH[reason] ?? reason;

export const plural = (n: number, one: string, many = `${one}s`): string => `${count(n)} ${n === 1 ? one : many}`;

export interface Answer {
  head: string;
  text: string;
  /** Numbers of the moment. */
  facts: [string, string][];
}

/** The numbers that a decision compared, and its own. */
const OPERANDS: Record<string, string> = {
  num_tokens: "tokens that it gets",
  budget: "tokens left of the budget",
  needs_blocks: "new blocks it needs",
  free_blocks: "blocks free just then",
  missing_blocks: "blocks missing",
  num_blocks: "blocks of the whole pool",
  rows: "places in the batch",
  head: "first in line",
  winner: "who needed the room",
  freed_blocks: "blocks it gives back",
  num_computed: "tokens to read again",
};

/** Why a request was served or not in a step; where nothing was decided, where it was then. */
export function answerOf(engine: Facts, lanes: Lanes, lane: number, step: number): Answer {
  const { request, turns, hits, ends } = lanes.list[lane];
  const who = `Request ${letters(request)} in step ${engine.stepAt(step).step}`;
  const decision = engine.decision(request, step);
  const now = lanes.at(lane, step);
  const facts = factsOf(engine, lanes, step);
  if (!decision || !now) {
    const [state, text] = away(engine, lanes, lane, step);
    return { head: `${who}: ${state}`, text, facts };
  }
  const long = now.kind === "wait" ? now.to - now.from : 0;
  const nth = long > 1 ? `, step ${count(step - now.from + 1)} of ${count(long)} in line` : "";
  const text = [decision.why];
  for (const { tokens, why } of hits.filter((m) => m.at === step))
    text.push(`${plural(tokens, "token")} of its beginning were in the cache already and are not read again. ${why}`);
  for (const end of ends.filter((m) => m.at === step)) text.push(`This is its last step: ${ending(end)}.`);
  const compared = decision.operands
    .filter(([name, value]) => name !== "num_tokens" || value > 0)
    .map(([name, value]): [string, string] => [
      OPERANDS[name] ?? name.replaceAll("_", " "),
      name === "head" || name === "winner" ? letters(value) : count(value),
    ]);
  const turn = turns.findLastIndex((t) => engine.stepOfTime(t.arrivedMs) <= step) + 1;
  const of: [string, string][] = turns.length > 1 && turn ? [["turn of the conversation", count(turn)]] : [];
  return {
    head: `${who}: ${headingOf(now.kind)}${nth}`,
    text: text.join(" ").trim(),
    facts: [...compared, ...of, ...facts],
  };
}

/** A request that the step did not decide about: not there yet, between turns, or over. */
function away(engine: Facts, lanes: Lanes, lane: number, step: number): [string, string] {
  const { stretches, ends } = lanes.list[lane];
  const first = stretches[0];
  if (!first) return ["not here yet", "No step has decided about it so far."];
  if (step < first.from) return ["not here yet", `It comes in at step ${engine.stepAt(first.from).step}.`];
  const ended = ends.findLast((m) => m.at <= step);
  const next = stretches.find((s) => s.from > step);
  const end = ended ? `Its turn ended in step ${engine.stepAt(ended.at).step}: ${ending(ended)}.` : "";
  if (next) return ["has nothing to do", `${end} It goes on in step ${engine.stepAt(next.from).step}.`.trim()];
  return ended ? ["finished", end] : ["has nothing to do", "Nothing was decided about it in this step."];
}

function factsOf(engine: Facts, lanes: Lanes, step: number): [string, string][] {
  const s = engine.stepAt(step);
  const all = s.blocksUsed + s.blocksCached + s.blocksFree;
  return [
    ["tokens of the whole step", `${count(lanes.total(step))} of ${count(s.budget)}`],
    ["blocks in use after it", `${count(s.blocksUsed)} of ${count(all)}`],
  ];
}

/** One step in one line. */
export function stepWords(engine: Facts, lanes: Lanes, step: number): string {
  const s = engine.stepAt(step);
  const parts = lanes.parts[step];
  const answers = parts.filter((p) => p.answer).length;
  const prompts = parts.length - answers;
  const tokens = parts.reduce((sum, p) => sum + (p.answer ? 0 : p.tokens), 0);
  const waits = engine.decisions(step).filter((d) => d.verdict === "wait").length;
  const said = [
    answers && plural(answers, "answer gets a token", "answers get a token each"),
    prompts && `${plural(tokens, "prompt token")} read for ${plural(prompts, "request")}`,
    waits && plural(waits, "request waits", "requests wait"),
  ].filter(Boolean);
  return `${said.join(", ") || "nobody is served"}; ${time(s.durMs)}, of which ${time(s.runMs)} in the model`;
}

/** Text cut at every "request C" that names a known request, so that it can be asked in turn. */
export function splitRequests(text: string, numberOf: (name: string) => number | undefined): (string | number)[] {
  return text.split(/(\b[Rr]equest [A-Z]+\b)/).map((part) => {
    const name = /^[Rr]equest ([A-Z]+)$/.exec(part)?.[1];
    return (name && numberOf(name)) ?? part;
  });
}
