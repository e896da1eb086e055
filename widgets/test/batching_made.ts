/** A made-up engine's recording: a small scheduler, with a budget, places, prompts in chunks, and one preemption on demand. */
import type { Admitted, Decided, Facts, Turn } from "../src/batching_lanes";

interface Wish {
  prompt: number;
  answer: number;
  arrives?: number;
  cached?: number;
  /** Loses its place at this step. */
  preempted?: number;
}

interface Options {
  budget?: number;
  places?: number;
  chunk?: number;
  first?: number;
}

const MS = 10;

export function engineOf(wishes: Wish[], { budget = 48, places = 4, chunk = 32, first = 0 }: Options = {}): Facts {
  const steps: Decided[][] = [];
  const admitted: Admitted[][] = [];
  const state = wishes.map((w) => ({ read: w.cached ?? 0, made: 0, row: false, ...w }));
  const turns: Turn[] = wishes.map((w) => ({
    finish: "",
    arrivedMs: (w.arrives ?? 0) * MS,
    finishedMs: Number.NaN,
  }));
  while (state.some((r) => r.made < r.answer)) {
    const i = steps.length;
    let left = budget;
    const here = state.filter((r) => (r.arrives ?? 0) <= i && r.made < r.answer);
    const decided: Decided[] = [];
    const given: Admitted[] = [];
    const say = (r: (typeof state)[number], verdict: string, tokens: number, why: string) =>
      decided.push({ request: state.indexOf(r), verdict, reason: "fits", tokens, why, operands: [["budget", left]] });
    for (const r of here.filter((r) => r.preempted === i && r.row)) {
      say(r, "preempt", 0, "It loses its place: request A needed a block, none was free, and this one came last.");
      Object.assign(r, { row: false, read: r.cached ?? 0 });
    }
    const answering = (r: (typeof state)[number]) => r.row && r.read >= r.prompt;
    for (const r of here.filter(answering)) {
      say(r, "decode", 1, "Answers under way come first.");
      r.made++;
      left--;
      if (r.made === r.answer) {
        const turn = turns[state.indexOf(r)];
        Object.assign(turn, { finish: "eos", finishedMs: i * MS + 8 });
      }
    }
    for (const r of here.filter((r) => !decided.some((d) => d.request === state.indexOf(r)))) {
      const tokens = Math.min(chunk, r.prompt - r.read, left);
      const place = r.row || state.filter((o) => o.row && o.made < o.answer).length < places;
      if (!place) say(r, "wait", 0, `It waits for a place: all ${places} rows are taken (max_batch_size).`);
      else if (tokens < 1) say(r, "wait", 0, `It waits: ${left} tokens of the step's budget are left.`);
      else {
        if (!r.row) given.push({ request: state.indexOf(r), cachedTokens: r.cached ?? 0, why: "" });
        r.row = true;
        r.read += tokens;
        left -= tokens;
        say(r, "prefill", tokens, `${tokens} tokens are read.`);
      }
    }
    steps.push(decided);
    admitted.push(given);
  }
  return {
    steps: steps.length,
    stepAt: (i) => ({
      step: i + first,
      durMs: 9,
      runMs: 8,
      budget,
      blocksUsed: 12,
      blocksCached: 3,
      blocksFree: 25,
    }),
    requests: wishes.map((_, request) => ({ request, label: `question ${request}`, turns: [turns[request]] })),
    decisions: (i) => steps[i],
    decision: (request, i) => steps[i].find((d) => d.request === request) ?? null,
    admissions: (i) => admitted[i],
    stepOfTime: (ms) => (ms >= 0 ? Math.min(steps.length - 1, Math.floor(ms / MS)) : -1),
  };
}

/** Eight questions that share their beginning, four places. */
export const eight = (): Facts =>
  engineOf([
    { prompt: 41, answer: 24 },
    { prompt: 42, answer: 60, cached: 16 },
    { prompt: 44, answer: 30, cached: 16 },
    { prompt: 40, answer: 36, cached: 16, preempted: 20 },
    { prompt: 143, answer: 20, cached: 16, arrives: 3 },
    { prompt: 42, answer: 28, cached: 32, arrives: 9 },
    { prompt: 41, answer: 24, cached: 32 },
    { prompt: 41, answer: 9, cached: 32, arrives: 50 },
  ]);

/** Sixty-four requests over about two thousand steps, that come one after the other. */
export const many = (): Facts =>
  engineOf(
    Array.from({ length: 64 }, (_, i) => ({
      prompt: 60 + ((i * 37) % 400),
      answer: 150 + ((i * 91) % 400),
      arrives: i * 24,
      cached: i % 3 ? 32 : 0,
      ...(i % 5 === 4 ? { preempted: i * 27 + 90 } : {}),
    })),
    { budget: 128, places: 12, chunk: 64 },
  );
