/**
 * A model with a make-believe kernel behind it, for looking at streaming, branches and Stop without Jupyter.
 *
 * It answers as PROTOCOL.md says a kernel does; the tokens come from the fixture.
 */
import type { AnyModel } from "@anywidget/types";
import type { TraceState } from "../src/store";
import type { RunInfo } from "../src/types";
import { answerRun, branchRun, chunkOf, join, type Trace } from "./fixture";

type Listener = (...args: never[]) => void;

export class LiveModel {
  private state: Record<string, unknown> = { chunk: null, selected: { run: 0, token: -1 } };
  private listeners = new Map<string, Set<Listener>>();
  private seq = 0;
  private timer: ReturnType<typeof setInterval> | null = null;
  trace: Trace = { runs: [], tokens: [], stages: [] };
  sent: unknown[] = [];

  constructor(private everyMs = 40) {}

  get(name: string): unknown {
    return this.state[name];
  }

  set(name: string, value: unknown): void {
    this.state[name] = value;
    this.fire(`change:${name}`);
  }

  save_changes(): void {}

  on(name: string, listener: Listener): void {
    const known = this.listeners.get(name) ?? new Set();
    this.listeners.set(name, known.add(listener));
  }

  off(name: string, listener: Listener): void {
    this.listeners.get(name)?.delete(listener);
  }

  private fire(name: string, ...args: unknown[]): void {
    for (const l of this.listeners.get(name) ?? []) (l as (...a: unknown[]) => void)(...args);
  }

  send(message: { type: string; run: number; index: number; token: number | null }): void {
    this.sent.push(message);
    setTimeout(() => this.answer(message), 5);
  }

  private answer(message: { type: string; run: number; index: number; token: number | null }): void {
    const { type, run, index, token } = message;
    if (type === "hello") {
      this.tellState();
      this.tellRows(0, 0);
    } else if (type === "again") {
      const at = Math.max(...this.trace.tokens.map((t) => t.end_ms)) + 400;
      const made = answerRun("B", this.trace.runs.length, at);
      this.stream({ ...made, runs: [{ ...made.runs[0], parent: run, fork: 0 }] });
    } else if (type === "stop") setTimeout(() => this.finish("stopped"), 150);
    else if (type === "branch") {
      const from = this.trace.runs.find((r) => r.run === run) as RunInfo;
      const at = Math.max(...this.trace.tokens.map((t) => t.end_ms)) + 400;
      const forced = token ?? this.trace.tokens.find((t) => t.run === run && t.index === index)!.token;
      const made = branchRun(this.trace, from, index, forced, this.trace.runs.length, at);
      if (token === null) made.runs[0].forced = null;
      this.stream(made);
    }
  }

  private tellState(): void {
    const busy = this.timer !== null;
    this.fire(
      "msg:custom",
      { type: "state", busy, can: { branch: !busy, stop: true }, why: busy ? "It is writing." : "" },
      [],
    );
  }

  private async tellRows(tokens: number, stages: number): Promise<void> {
    const { trace } = this;
    const seq = ++this.seq;
    const bytes = await chunkOf(trace, {
      tokens: [tokens, trace.tokens.length],
      stages: [stages, trace.stages.length],
      seq,
    });
    this.fire("msg:custom", { type: "chunk", seq }, [new DataView(bytes.buffer)]);
  }

  /** Adds a finished run token by token. */
  stream(made: Trace): void {
    const info = { ...made.runs[0], status: "running" as RunInfo["status"], finish: null };
    this.trace = { ...this.trace, runs: [...this.trace.runs, info] };
    let next = 0;
    const step = () => {
      const had = { tokens: this.trace.tokens.length, stages: this.trace.stages.length };
      if (next < made.tokens.length) {
        const index = made.tokens[next].index;
        const more = {
          runs: [],
          tokens: [made.tokens[next]],
          stages: made.stages.filter((s) => Math.max(0, s.token) === index),
        };
        this.trace = join(this.trace, more);
        next++;
        this.tellRows(had.tokens, had.stages);
      } else this.finish("done", made.runs[0].finish);
    };
    this.timer = setInterval(step, this.everyMs);
    this.tellState();
  }

  private finish(status: RunInfo["status"], finish: string | null = null): void {
    if (this.timer === null) return;
    clearInterval(this.timer);
    this.timer = null;
    const last = this.trace.runs.at(-1)!;
    this.trace = { ...this.trace, runs: [...this.trace.runs.slice(0, -1), { ...last, status, finish }] };
    this.tellRows(this.trace.tokens.length, this.trace.stages.length);
    this.tellState();
  }

  asModel(): AnyModel<TraceState> {
    return this as unknown as AnyModel<TraceState>;
  }
}

/** One answer of `n` tokens: the story over and over. */
export function longStory(n: number): Trace {
  const story = answerRun("B", 0, 0);
  const each = story.tokens.length;
  const lap = story.tokens[each - 1].end_ms - story.tokens[1].start_ms;
  const shift = (i: number) => Math.floor(i / each) * lap;
  const tokens = Array.from({ length: n }, (_, i) => {
    const t = story.tokens[i % each];
    return { ...t, index: i, position: 94 + i, start_ms: t.start_ms + shift(i), end_ms: t.end_ms + shift(i) };
  });
  const stages = Array.from({ length: Math.ceil(n / each) }, (_, lapNumber) =>
    story.stages
      .filter((s) => s.token >= 0 || lapNumber === 0)
      .map((s) => ({
        ...s,
        token: s.token < 0 ? -1 : s.token + lapNumber * each,
        start_ms: s.start_ms + lapNumber * lap,
      })),
  ).flat();
  return { runs: story.runs, tokens, stages };
}

/** The story with processors that forbid and push candidates, a token from far down the list, and texts that mean harm. */
export function storyWithProcessors(): Trace {
  const story = answerRun("B", 0, 12);
  for (const t of story.tokens) {
    t.changed.push({ id: t.ids[1], by: 2, delta: Number.POSITIVE_INFINITY });
    t.changed.push(
      { id: t.ids[4], by: 3, delta: Number.POSITIVE_INFINITY },
      { id: t.ids[2], by: 3, delta: t.deltas[2] - 2 },
    );
  }
  const far = story.tokens[30];
  Object.assign(far, { token: 49151, rank: 1204, prob: 0.00002 });
  const bad = story.tokens[3];
  Object.assign(bad, { token: 49150, rank: 3000, prob: 0.000001 });
  return story;
}

/** A finished answer with two branches, the second inside the first. */
export function storyWithBranches(): Trace {
  const story = answerRun("B", 0, 12);
  const ids = story.tokens[55].ids;
  const one = branchRun(story, story.runs[0], 55, ids[1], 1, 2000);
  const two = branchRun(one, one.runs[0], 4, one.tokens[4].ids[3], 2, 2600);
  return join(story, one, two);
}
