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
  reason: string;
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

/** Why a request reads what it had read before it lost its place: nothing is chosen, also where it reads one token. */
export const READS_AGAIN = "reads_again";

/** What a decision came to: its verdict, but who reads again one by one only reads. */
export const kindOf = ({ verdict, reason }: { verdict: string; reason: string }): Kind =>
  reason === READS_AGAIN ? "prefill" : (verdict as Kind);

/** What a request may do in a step; and two things that happen at its beginning or end. */
export type Kind = "wait" | "prefill" | "decode" | "preempt" | "reject";
export type Event = Kind | "hit" | "finish";

/** Steps [from, to), as places in the recording. A prompt chunk is a stretch of its own. */
export interface Stretch {
  kind: Event;
  from: number;
  to: number;
}

/** A hit: tokens found in the cache as the request was given a place, and why not more. A finish: how its turn ended. */
export interface Moment extends Stretch {
  tokens: number;
  why: string;
}

export interface Lane {
  request: number;
  label: string;
  stretches: Stretch[];
  hits: Moment[];
  ends: Moment[];
  turns: readonly Turn[];
}

export interface Cell {
  step: number;
  lane: number;
}

/** A request's part of a step's tokens. */
export interface Part {
  lane: number;
  tokens: number;
  answer: boolean;
}

/** First place of a sorted list at which `test` holds. */
export function firstWhere<T>(list: readonly T[], test: (item: T) => boolean): number {
  let lo = 0;
  let hi = list.length;
  while (lo < hi) {
    const mid = (lo + hi) >> 1;
    if (test(list[mid])) hi = mid;
    else lo = mid + 1;
  }
  return lo;
}

export const sumOf = (parts: readonly Part[]): number => parts.reduce((sum, p) => sum + p.tokens, 0);

export class Lanes {
  list: Lane[] = [];
  /** Parts of each step, answers first. */
  parts: Part[][] = [];
  /** Largest budget of a step, and most tokens of answers in one. */
  budget = 1;
  answers = 0;
  private place = new Map<number, number>();

  get steps(): number {
    return this.parts.length;
  }

  index(request: number): number | undefined {
    return this.place.get(request);
  }

  /** Takes over what is new; what is known stays as it is. */
  update(engine: Facts): void {
    for (const { request, label } of engine.requests)
      if (!this.place.has(request))
        this.place.set(request, this.list.push({ request, label, stretches: [], hits: [], ends: [], turns: [] }) - 1);
    for (let i = this.steps; i < engine.steps; i++) this.addStep(engine, i);
    for (const { request, label, turns } of engine.requests) {
      const ends = turns.map(({ finish, finishedMs }): Moment => {
        const from = Number.isFinite(finishedMs) ? engine.stepOfTime(finishedMs) : -1;
        return { kind: "finish", from, to: from + 1, tokens: 0, why: finish };
      });
      Object.assign(this.of(request) as Lane, { label, turns, ends: ends.filter((e) => e.from >= 0) });
    }
  }

  private of(request: number): Lane | undefined {
    return this.list[this.place.get(request) ?? -1];
  }

  private addStep(engine: Facts, i: number): void {
    const parts: Part[] = [];
    const to = i + 1;
    for (const decision of engine.decisions(i)) {
      const { request, tokens } = decision;
      const lane = this.of(request);
      if (!lane) continue;
      const kind = kindOf(decision);
      const last = lane.stretches.at(-1);
      if (last?.kind === kind && last.to === i && (kind === "wait" || kind === "decode")) last.to = to;
      else lane.stretches.push({ kind, from: i, to });
      if (tokens) parts.push({ lane: this.list.indexOf(lane), tokens, answer: kind === "decode" });
    }
    for (const { request, cachedTokens: tokens, why } of engine.admissions(i))
      if (tokens) this.of(request)?.hits.push({ kind: "hit", from: i, to, tokens, why });
    parts.sort((a, b) => Number(b.answer) - Number(a.answer) || a.lane - b.lane);
    this.parts.push(parts);
    this.budget = Math.max(this.budget, engine.stepAt(i).budget);
    this.answers = Math.max(this.answers, sumOf(parts.filter((p) => p.answer)));
  }

  /** What the request did in a step. */
  at({ lane, step }: Cell): Stretch | undefined {
    const { stretches } = this.list[lane];
    const found = stretches[firstWhere(stretches, (s) => s.to > step)];
    return found?.from <= step ? found : undefined;
  }

  /** Where a kind of event begins, in the order of steps and requests. */
  events(kind: Event): Cell[] {
    return this.list
      .flatMap(({ stretches, hits, ends }, lane) =>
        [...stretches, ...hits, ...ends].filter((s) => s.kind === kind).map((s) => ({ step: s.from, lane })),
      )
      .sort(order);
  }

  /** The next such event after a cell (or before it), from the other end when there is none. */
  next(kind: Event, at: Cell, back: boolean): Cell | undefined {
    const all = this.events(kind);
    if (back) return all.findLast((e) => order(e, at) < 0) ?? all.at(-1);
    return all.find((e) => order(e, at) > 0) ?? all[0];
  }
}

const order = (a: Cell, b: Cell): number => a.step - b.step || a.lane - b.lane;
