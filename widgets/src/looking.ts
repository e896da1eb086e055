/**
 * What is looked at in a trace: a token, and in an engine's run a step, a request and a block; and who wants to know.
 *
 * Both live in a model's `selected` and `at`, so that every picture of a trace, in Python too, has the same. Without a
 * pick the data decide. Knows nothing about kernels or the page.
 */
import type { AnyModel } from "@anywidget/types";
import { TraceData } from "./trace_data";
import type { At, Selection } from "./types";

export interface TraceState {
  chunk: DataView | Uint8Array | null;
  selected: Selection;
  at: At;
  [name: string]: unknown;
}

export type Change = "data" | "select" | "kernel";
type Listener = (change: Change) => void;

/** A trace's data with what is looked at. */
export class Looking extends TraceData {
  /** A pick of this page is being written: it is not news. */
  protected quiet = false;
  private listeners = new Set<Listener>();
  private busiest: { steps: number; at: At } | null = null;
  private doubtful: { rows: number; at: Selection } | null = null;

  constructor(protected model: AnyModel<TraceState>) {
    super();
  }

  // ---------------------------------------------------------------- reading

  /** What is picked; without a pick the token at the playhead of an engine's run. Of other runs the newest token while it
   * streams, afterwards the one with the most doubt. */
  get selected(): Selection {
    const placed = this.picked ?? (this.engine.steps ? this.tokenAt(this.at.request, this.at.step) : null);
    if (placed) return placed;
    const streaming = this.running;
    if (streaming?.rows.length) return { run: streaming.info.run, token: streaming.rows.length - 1 };
    return this.mostDoubtful();
  }

  get picked(): Selection | null {
    const at = this.model.get("selected");
    return at && this.rowAt(at) !== undefined ? { run: at.run, token: at.token } : null;
  }

  private mostDoubtful(): Selection {
    if (this.doubtful?.rows === this.tokens.rows) return this.doubtful.at;
    const run = this.runs.find((r) => r.rows.length);
    const at = { run: run?.info.run ?? 0, token: -1 };
    let most = -1;
    run?.rows.forEach((row, i) => {
      const bits = this.tokens.get("entropy", row);
      if (bits > most) {
        most = bits;
        at.token = i;
      }
    });
    this.doubtful = { rows: this.tokens.rows, at };
    return at;
  }

  /** What is looked at in an engine's run; without a pick the newest step while it runs, afterwards the fullest one. */
  get at(): At {
    return this.pickedAt ?? this.mostBusy();
  }

  get pickedAt(): At | null {
    const at = this.model.get("at");
    const there = at && at.step >= 0 && at.step < this.engine.steps;
    return there ? { step: at.step, request: at.request, block: at.block ?? null } : null;
  }

  private mostBusy(): At {
    const { engine } = this;
    if (this.busiest?.steps === engine.steps) return this.busiest.at;
    let step = engine.steps - 1;
    if (!this.running)
      for (let i = step; i >= 0; i--) if (engine.stepAt(i).blocksUsed >= engine.stepAt(step).blocksUsed) step = i;
    const holders = engine.holders(step).sort((a, b) => b.table.length - a.table.length || a.request - b.request);
    const at = { step, request: holders[0]?.request ?? engine.requests[0]?.request ?? 0, block: null };
    this.busiest = { steps: engine.steps, at };
    return at;
  }

  // ---------------------------------------------------------------- writing

  /** Pick a token, and with it, in an engine's run, the step that made it. */
  select(run: number, token: number): void {
    const rows = this.run(run)?.rows;
    if (!rows?.length) return;
    const at = { run, token: Math.max(0, Math.min(rows.length - 1, token)) };
    const turn = this.engine.turnOfRun(run);
    const step = turn ? this.stepOfRow(rows[at.token]) : -1;
    this.write(at, turn && step >= 0 ? { step, request: turn.request, block: null } : null);
  }

  /** Pick a step, a request or a block of an engine's run, and with it the token that the request had got by then. A
   * step below 0 follows the newest one again, and its token. */
  pick(what: Partial<At>): void {
    const last = this.engine.steps - 1;
    if (last < 0) return;
    const now = this.at;
    const step = what.step ?? now.step;
    const at = { ...now, ...what, step: step < 0 ? -1 : Math.min(last, step) };
    this.write(at.step < 0 ? { run: 0, token: -1 } : this.tokenAt(at.request, at.step), at);
  }

  /** The newest token of a request after a step, if it has one. */
  tokenAt(request: number, step: number): Selection | null {
    for (const { run } of this.engine.request(request)?.turns.toReversed() ?? []) {
      const rows = run === null ? undefined : this.run(run)?.rows;
      const made = rows?.findLastIndex((row) => this.stepOfRow(row) <= step) ?? -1;
      if (run !== null && made >= 0) return { run, token: made };
    }
    return null;
  }

  /** The step of the engine that made a token. */
  stepOfRow(row: number): number {
    return this.engine.stepOfTime(this.tokens.get("end_ms", row));
  }

  private write(selected: Selection | null, at: At | null): void {
    const same = (a: object | null | undefined, b: object) =>
      Object.entries(b).every(([key, value]) => (a as Record<string, unknown> | null)?.[key] === value);
    const newToken = selected && !same(this.model.get("selected"), selected);
    const newAt = at && !same(this.model.get("at"), at);
    if (!newToken && !newAt) return;
    this.quiet = true;
    if (newToken) this.model.set("selected", selected);
    if (newAt) this.model.set("at", at);
    this.quiet = false;
    this.emit("select");
    this.attempt(() => this.model.save_changes());
  }

  subscribe(listener: Listener, signal: AbortSignal): void {
    this.listeners.add(listener);
    signal.addEventListener("abort", () => this.listeners.delete(listener));
  }

  protected emit(change: Change): void {
    for (const listener of [...this.listeners]) listener(change);
  }

  /** Nobody is told any more. */
  protected silence(): void {
    this.listeners.clear();
  }

  /** A model without a kernel behind it may refuse to send; that is an answer, not a failure. */
  protected attempt(action: () => void): boolean {
    try {
      action();
      return true;
    } catch {
      return false;
    }
  }
}
