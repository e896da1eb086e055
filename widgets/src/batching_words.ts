/**
 * The batching timeline in words: what a request did in a step, and why. Pure: facts in, plain text out.
 *
 * Requests have letters, as in all pictures; step numbers are the engine's own, as in `trace.why(request, step)`.
 */
import {
  type Cell,
  type Event,
  type Facts,
  type Lanes,
  type Moment,
  READS_AGAIN,
  type Stretch,
  sumOf,
} from "./batching_lanes";
import { letters, namesRequest, sentence } from "./engine_words";
import { count, time } from "./format";

/** Kinds in the order of the legend: what it is called there, and in a heading about one request. */
export const KINDS: readonly (readonly [Event, string, string])[] = [
  ["wait", "waits", "waits"],
  ["prefill", "reads", "reads a piece of its prompt"],
  ["hit", "found in the cache", "finds its beginning in the cache"],
  ["decode", "answers", "makes one token of its answer"],
  ["preempt", "loses its place", "loses its place (preempted)"],
  ["finish", "finished", "finishes"],
  ["reject", "can never run", "can never run"],
];

export const headingOf = (kind: Event): string => KINDS.find(([k]) => k === kind)?.[2] ?? kind;

/** The keys of the picture, once it was clicked. */
export const KEY_WORDS: readonly (readonly [string, string])[] = [
  ["← →", "step (Shift: ten)"],
  ["↑ ↓", "request"],
  ["N B", "next, last of the kind pressed above"],
  ["W S", "zoom"],
  ["A D", "move"],
  ["F", "this step"],
  ["0", "all steps"],
];
/** Those of the playhead, which is not there when this picture stands alone. */
export const PLAY_WORDS: typeof KEY_WORDS = [
  [", .", "step"],
  ["space", "play"],
  ["Shift A", "request A"],
];

const FINISH: Record<string, string> = {
  eos: "it said that its answer ends",
  stop_string: "a stop string appeared",
  max_generated_tokens: "it reached its limit of new tokens",
  max_session_tokens: "it reached the limit of its conversation",
  cancelled: "it was cancelled",
  failed: "it failed",
  stopping_criterion: "a stopping criterion ended it",
};

const ending = ({ why }: Moment): string => FINISH[why] ?? why;
const of = (n: number, all: number): string => `${count(n)} of ${count(all)}`;

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
  leader: "who reads it for both",
  freed_blocks: "blocks it gives back",
  num_computed: "tokens that it had read",
  again: "of them for the second time",
};

/** Why a request was served or not in a step; where nothing was decided, where it was then. */
export function answerOf(engine: Facts, lanes: Lanes, cell: Cell): Answer {
  const { step } = cell;
  const { request, turns, hits, ends } = lanes.list[cell.lane];
  const head = `Request ${letters(request)} in step ${engine.stepAt(step).step}: `;
  const decision = engine.decision(request, step);
  const now = lanes.at(cell);
  const { budget, blocksUsed, blocksCached, blocksFree } = engine.stepAt(step);
  const facts: Answer["facts"] = [
    ["tokens of the whole step", of(sumOf(lanes.parts[step]), budget)],
    ["blocks in use after it", of(blocksUsed, blocksUsed + blocksCached + blocksFree)],
  ];
  if (!decision || !now) {
    const [state, text] = away(engine, lanes, cell);
    return { head: head + state, text, facts };
  }
  const long = now.to - now.from;
  const nth = now.kind === "wait" && long > 1 ? `, step ${of(step - now.from + 1, long)} that it waits` : "";
  const hit = hits.find((m) => m.from === step);
  const end = ends.find((m) => m.from === step);
  const front = decision.operands.find(([name]) => name === "head")?.[1];
  const itself = front === undefined ? null : engine.decision(front, step);
  const text = [
    decision.why,
    itself && `As for request ${letters(itself.request)}: ${itself.why}`,
    hit &&
      `${plural(hit.tokens, "token")} of its beginning were in the cache already and are not read again. ${sentence(hit.why)}`,
    end && `This is its last step: ${ending(end)}.`,
  ];
  const turn = turns.findLastIndex((t) => engine.stepOfTime(t.arrivedMs) <= step) + 1;
  if (turns.length > 1 && turn) facts.unshift(["turn of the conversation", count(turn)]);
  for (const [name, value] of decision.operands.toReversed())
    if (name !== "num_tokens" || value)
      facts.unshift([OPERANDS[name] ?? name.replaceAll("_", " "), namesRequest(name) ? letters(value) : count(value)]);
  const doing = decision.reason === READS_AGAIN ? "reads again what it had lost" : headingOf(now.kind);
  return { head: `${head}${doing}${nth}`, text: text.filter(Boolean).join(" ").trim(), facts };
}

/** A request that the step did not decide about: not there yet, between turns, or over. */
function away(engine: Facts, lanes: Lanes, { lane, step }: Cell): [string, string] {
  const { stretches, ends } = lanes.list[lane];
  const number = ({ from }: Stretch) => engine.stepAt(from).step;
  const next = stretches.find((s) => s.from > step);
  if (next === stretches[0]) return ["not here yet", next ? `It comes in at step ${number(next)}.` : ""];
  const ended = ends.findLast((m) => m.from <= step);
  const text = ended
    ? `Its turn ended in step ${number(ended)}: ${ending(ended)}.`
    : "Nothing was decided about it in this step.";
  return next ? ["has nothing to do", `${text} It goes on in step ${number(next)}.`] : ["finished", text];
}

/** One step in one line. */
export function stepWords(engine: Facts, lanes: Lanes, step: number): string {
  const s = engine.stepAt(step);
  const [answers, prompts] = [true, false].map((answer) => lanes.parts[step].filter((p) => p.answer === answer));
  const waits = engine.decisions(step).filter((d) => d.verdict === "wait").length;
  const said = [
    answers.length && plural(answers.length, "answer gets a token", "answers get a token each"),
    prompts.length && `${plural(sumOf(prompts), "token")} read for ${plural(prompts.length, "request")}`,
    waits && plural(waits, "request waits", "requests wait"),
  ];
  return `${said.filter(Boolean).join(", ") || "nobody is served"}; ${time(s.durMs)}, of which ${time(s.runMs)} in the model`;
}

/** Text cut at every "request C" that names a known request, so that it can be asked in turn. */
export function splitRequests(text: string, numberOf: (name: string) => number | undefined): (string | number)[] {
  return text.split(/(\brequest [A-Z]+\b)/).map((part) => numberOf(/^request ([A-Z]+)$/.exec(part)?.[1] ?? "") ?? part);
}
