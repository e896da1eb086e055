/**
 * What the playhead can jump to: in which steps of an engine's run it happens, and to whom.
 *
 * A step is looked through once, also while the run grows: at every step that plays, two buttons ask whether there is one.
 */
import { kindOf } from "./batching_lanes";
import type { EngineData } from "./engine_data";
import { countUpTo } from "./engine_index";
import type { At } from "./types";

/** Whom a step does it to; a block where that is what it happens to. */
type Whom = Omit<At, "step">;

const of = (all: readonly { request: number }[]): Whom[] => all.map(({ request }) => ({ request, block: null }));
const decided =
  (kind: string) =>
  (engine: EngineData, i: number): Whom[] =>
    of(engine.decisions(i).filter((d) => kindOf(d) === kind));
/** The step in which each turn ended, below 0 where none that is known did. */
const ends = (engine: EngineData): { request: number; step: number }[] =>
  engine.requests.flatMap(({ request, turns }) =>
    turns.map((turn) => ({ request, step: engine.stepOfTime(turn.finishedMs) })),
  );

const JUMPS: Record<string, readonly [string, (engine: EngineData, i: number) => Whom[]]> = {
  wait: ["a wait", decided("wait")],
  admit: ["an admission", (engine, i) => of(engine.admissions(i))],
  hit: ["a prefix hit", (engine, i) => of(engine.admissions(i).filter((a) => a.cachedTokens > 0))],
  prefill: ["a prompt chunk", decided("prefill")],
  preempt: ["a preemption", decided("preempt")],
  evict: ["an eviction", (engine, i) => engine.events(i).filter((e) => e.event === "evicted")],
  finish: ["an end", (engine, i) => of(ends(engine).filter((e) => e.step === i))],
};

/** Each kind, and what it is called. */
export const KINDS = Object.entries(JUMPS).map(([kind, [words]]) => [kind, words] as const);

export class Jumps {
  private known = new Map<string, { seen: number; steps: number[] }>();

  constructor(private engine: EngineData) {}

  /** The nearest step before or after `step` that has one; undefined when there is none. */
  next(kind: string, step: number, by: 1 | -1): number | undefined {
    const steps = this.steps(kind);
    return steps[by > 0 ? countUpTo(steps, step) : countUpTo(steps, step - 1) - 1];
  }

  /** Whom a step does it to: the request that is looked at if it is one of them, else the first. */
  whom(kind: string, step: number, request: number): Whom | undefined {
    const all = JUMPS[kind][1](this.engine, step);
    const found = all.find((one) => one.request === request) ?? all[0];
    return found && { request: found.request, block: found.block };
  }

  private steps(kind: string): number[] {
    const { engine } = this;
    // that a turn is over may be told after the step in which it ended
    if (kind === "finish")
      return [...new Set(ends(engine).map((e) => e.step))].filter((i) => i >= 0).sort((a, b) => a - b);
    const known = this.known.get(kind) ?? { seen: 0, steps: [] };
    this.known.set(kind, known);
    for (; known.seen < engine.steps; known.seen++)
      if (JUMPS[kind][1](engine, known.seen).length) known.steps.push(known.seen);
    return known.steps;
  }
}
