/**
 * What happened to each request, as stretches of equal steps, and who shared each step's tokens. Grows with the recording.
 *
 * Reads an engine's facts; knows nothing about pixels or words.
 */

/** What this picture asks of an engine's recording (`EngineData`). Steps and turns are in the order of time. */
export interface Facts {
  steps: number;
  stepAt(i: number): {
    step: number;
    durMs: number;
    runMs: number;
    budget: number;
    blocksUsed: number;
    blocksCached: number;
    blocksFree: number;
  };
  stepOfTime(ms: number): number;
  requests: readonly { request: number; label: string; turns: readonly Turn[] }[];
  decisions(i: number): readonly Decided[];
  decision(request: number, i: number): Decided | null;
  admissions(i: number): readonly Admitted[];
}

export interface Decided {
  request: number;
  verdict: string;
  tokens: number;
  operands: readonly (readonly [string, number])[];
  why: string;
}

export interface Admitted {
  request: number;
  cachedTokens: number;
  why: string;
}

export interface Turn {
  finish: string;
  arrivedMs: number;
  finishedMs: number;
}

export type Kind = "wait" | "prefill" | "decode" | "preempt" | "reject";
export type Event = Kind | "hit" | "finish";

/** Steps [from, to), as places in the recording. A prompt chunk is a stretch of its own. */
export interface Stretch {
  kind: Kind;
  from: number;
  to: number;
}

/** Tokens found in the cache as the request was admitted. */
export interface CacheHit {
  kind: "hit";
  at: number;
  tokens: number;
  why: string;
}

export interface Finish {
  kind: "finish";
  at: number;
  reason: string;
}

export interface Lane {
  request: number;
  label: string;
  stretches: Stretch[];
  hits: CacheHit[];
  ends: Finish[];
  turns: readonly Turn[];
}

/** A request's part of a step's tokens. */
export interface Part {
  lane: number;
  tokens: number;
  answer: boolean;
}

const KINDS: readonly string[] = ["wait", "prefill", "decode", "preempt", "reject"] satisfies Kind[];

/** First place of a sorted list at which `test` holds. */
export function firstWhere<T>(list: ArrayLike<T>, test: (item: T) => boolean): number {
  let lo = 0;
  let hi = list.length;
  while (lo < hi) {
    const mid = (lo + hi) >> 1;
    if (test(list[mid])) hi = mid;
    else lo = mid + 1;
  }
  return lo;
}

export class Lanes {
  list: Lane[] = [];
  /** Parts of each step, answers first. */
  parts: Part[][] = [];
  /** Largest budget of a step, and most tokens of answers in one. */
  budget = 0;
  answers = 0;
  private place = new Map<number, number>();

  get steps(): number {
    return this.parts.length;
  }

  index(request: number): number | undefined {
    return this.place.get(request);
  }

  total(step: number): number {
    return this.parts[step].reduce((sum, p) => sum + p.tokens, 0);
  }

  /** Takes over what is new; what is known stays as it is. */
  update(engine: Facts): void {
    for (const { request, label } of engine.requests)
      if (!this.place.has(request)) {
        this.place.set(request, this.list.length);
        this.list.push({ request, label, stretches: [], hits: [], ends: [], turns: [] });
      }
    for (let i = this.steps; i < engine.steps; i++) this.addStep(engine, i);
    for (const { request, label, turns } of engine.requests) {
      const ends = turns
        .map(
          ({ finish, finishedMs }): Finish => ({ kind: "finish", at: engine.stepOfTime(finishedMs), reason: finish }),
        )
        .filter(({ at }) => at >= 0);
      Object.assign(this.list[this.place.get(request) as number], { label, turns, ends });
    }
  }

  private addStep(engine: Facts, i: number): void {
    const { budget } = engine.stepAt(i);
    const parts: Part[] = [];
    for (const { request, verdict, tokens } of engine.decisions(i)) {
      const lane = this.place.get(request);
      if (lane === undefined || !KINDS.includes(verdict)) continue;
      const kind = verdict as Kind;
      const { stretches } = this.list[lane];
      const last = stretches.at(-1);
      if (last?.kind === kind && last.to === i && (kind === "wait" || kind === "decode")) last.to = i + 1;
      else stretches.push({ kind, from: i, to: i + 1 });
      if (tokens) parts.push({ lane, tokens, answer: kind === "decode" });
    }
    for (const { request, cachedTokens, why } of engine.admissions(i)) {
      const lane = this.place.get(request);
      if (lane !== undefined && cachedTokens > 0)
        this.list[lane].hits.push({ kind: "hit", at: i, tokens: cachedTokens, why });
    }
    parts.sort((a, b) => Number(b.answer) - Number(a.answer) || a.lane - b.lane);
    this.parts.push(parts);
    this.budget = Math.max(this.budget, budget);
    this.answers = Math.max(
      this.answers,
      parts.reduce((sum, p) => sum + (p.answer ? p.tokens : 0), 0),
    );
  }

  /** What the request did in a step. */
  at(lane: number, step: number): Stretch | undefined {
    const { stretches } = this.list[lane];
    const found = stretches[firstWhere(stretches, (s) => s.to > step)];
    return found && found.from <= step ? found : undefined;
  }

  /** Where a kind of event happens, in the order of steps and requests: for a stretch, where it begins. */
  events(kind: Event): { step: number; lane: number }[] {
    const out = this.list.flatMap((lane, i) => {
      const { hits, ends, stretches } = lane;
      const steps =
        kind === "hit"
          ? hits.map((m) => m.at)
          : kind === "finish"
            ? ends.map((m) => m.at)
            : stretches.filter((s) => s.kind === kind).map((s) => s.from);
      return steps.map((step) => ({ step, lane: i }));
    });
    return out.sort((a, b) => a.step - b.step || a.lane - b.lane);
  }

  /** The next such event after a cell (or before it), from the other end when there is none. */
  next(kind: Event, at: { step: number; lane: number }, back = false): { step: number; lane: number } | undefined {
    const all = this.events(kind);
    const order = (e: typeof at) => e.step - at.step || e.lane - at.lane;
    return back ? (all.findLast((e) => order(e) < 0) ?? all.at(-1)) : (all.find((e) => order(e) > 0) ?? all[0]);
  }
}
