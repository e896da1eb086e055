/**
 * Everything the views of one trace share: the rows received so far, the selected token, and whether a kernel answers.
 *
 * Receives a model (anywidget's, or the offline page's) and reads chunks from its `chunk` trait and its messages.
 * Knows nothing about the page. Views subscribe and draw; they never write to each other.
 */
import type { AnyModel } from "@anywidget/types";
import { type Chunk, decodeChunk } from "./chunk";
import { TraceData } from "./trace_data";
import type { Knobs, RunInfo, Selection } from "./types";

export type { Changed, Run } from "./trace_data";

export interface TraceState {
  chunk: DataView | Uint8Array | null;
  selected: Selection;
  [name: string]: unknown;
}

/** A new run that was asked for and has not begun. */
export interface Pending {
  kind: "branch" | "again";
  run: number;
  index: number;
  token: number | null;
}

export type Change = "data" | "select" | "kernel";
export type Kernel = "unknown" | "present" | "absent";
type Listener = (change: Change) => void;

const NO_ANSWER_MS = 1000;
const LATE_MS = 2500;

const bytesOf = (v: unknown): Uint8Array | null =>
  ArrayBuffer.isView(v) && v.byteLength > 0 ? new Uint8Array(v.buffer, v.byteOffset, v.byteLength) : null;

export class Store extends TraceData {
  /** True once everything that was there at the start has been read. */
  ready = false;
  error: string | null = null;
  kernel: Kernel = "unknown";
  can = { branch: false, stop: false };
  why = "";
  stopping = false;
  pending: Pending | null = null;
  /** A request is older than a moment and nothing has come back. */
  late = false;

  private listeners = new Set<Listener>();
  private queue: Promise<void> = Promise.resolve();
  private timers = new Set<ReturnType<typeof setTimeout>>();
  private asked = 0;
  /** A run that this page asked for: it is picked as soon as it has a token. */
  private follow: number | null = null;
  private doubtful: { rows: number; at: Selection } | null = null;

  constructor(
    private model: AnyModel<TraceState>,
    signal?: AbortSignal,
  ) {
    super();
    const onChunk = () => this.take(bytesOf(model.get("chunk")));
    const onSelected = () => this.emit("select");
    const onMessage = (message: unknown, buffers: unknown[]) => this.hear(message, buffers);
    model.on("change:chunk", onChunk);
    model.on("change:selected", onSelected);
    model.on("msg:custom", onMessage);
    signal?.addEventListener("abort", () => {
      model.off("change:chunk", onChunk);
      model.off("change:selected", onSelected);
      model.off("msg:custom", onMessage);
      for (const t of this.timers) clearTimeout(t);
      this.listeners.clear();
    });
    onChunk();
    this.queue = this.queue.then(() => {
      this.ready = true;
      this.emit("data");
    });
    this.hello();
  }

  // ---------------------------------------------------------------- reading

  get status(): string {
    if (this.running) return this.stopping ? "stopping" : "running";
    return this.runs.at(-1)?.info.status ?? "empty";
  }

  /** What is picked; without a pick the newest token while it streams, afterwards the one with the most doubt. */
  get selected(): Selection {
    const picked = this.picked;
    if (picked) return picked;
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

  // ---------------------------------------------------------------- writing

  select(run: number, token: number): void {
    const rows = this.run(run)?.rows.length ?? 0;
    if (!rows) return;
    const at = { run, token: Math.max(0, Math.min(rows - 1, token)) };
    const now = this.model.get("selected");
    if (now?.run === at.run && now?.token === at.token) return;
    this.model.set("selected", at);
    this.attempt(() => this.model.save_changes());
  }

  subscribe(listener: Listener, signal: AbortSignal): void {
    this.listeners.add(listener);
    signal.addEventListener("abort", () => this.listeners.delete(listener));
  }

  /** Why nothing new can be generated now; null when it can. */
  get refusal(): string | null {
    if (this.kernel === "absent") return "Nothing new can be generated here: no running notebook answers this picture.";
    if (this.kernel === "unknown") return "Asking whether a notebook is running …";
    if (this.running) return "The model is still writing. Stop it first.";
    if (this.pending) return "Waiting for the model to begin.";
    return this.can.branch ? null : this.why || "The notebook cannot continue this run.";
  }

  stop(): void {
    this.stopping = true;
    this.tell({ type: "stop" });
    this.emit("kernel");
  }

  branch(run: number, index: number, token: number | null, settings: Knobs | null): void {
    this.ask({ kind: "branch", run, index, token }, { type: "branch", run, index, token, settings });
  }

  again(run: number, settings: Knobs): void {
    this.ask({ kind: "again", run, index: 0, token: null }, { type: "again", run, settings });
  }

  private ask(pending: Pending, message: object): void {
    this.pending = pending;
    this.late = false;
    this.after(LATE_MS, () => {
      this.late = this.pending === pending;
      if (this.late) this.emit("kernel");
    });
    this.tell(message);
    this.emit("kernel");
  }

  private hello(): void {
    this.asked++;
    const mine = this.asked;
    if (!this.tell({ type: "hello" })) return;
    this.after(NO_ANSWER_MS, () => {
      if (this.kernel === "unknown" && mine === this.asked) {
        this.kernel = "absent";
        this.emit("kernel");
      }
    });
  }

  private tell(message: object): boolean {
    if (this.attempt(() => this.model.send(message))) return true;
    this.kernel = "absent";
    this.pending = null;
    this.stopping = false;
    this.emit("kernel");
    return false;
  }

  /** A model without a kernel behind it may refuse to send; that is an answer, not a failure. */
  private attempt(action: () => void): boolean {
    try {
      action();
      return true;
    } catch {
      return false;
    }
  }

  private after(ms: number, action: () => void): void {
    const timer = setTimeout(() => {
      this.timers.delete(timer);
      action();
    }, ms);
    this.timers.add(timer);
  }

  private emit(change: Change): void {
    for (const listener of [...this.listeners]) listener(change);
  }

  // ---------------------------------------------------------------- hearing

  private hear(message: unknown, buffers: unknown[]): void {
    const m = message as { type?: string; busy?: boolean; can?: Partial<Store["can"]>; why?: string };
    if (m?.type === "chunk") this.take(bytesOf(buffers?.[0]));
    else if (m?.type !== "state") return;
    this.kernel = "present";
    if (m.type === "state") {
      this.can = { branch: m.can?.branch === true, stop: m.can?.stop === true };
      this.why = typeof m.why === "string" ? m.why : "";
      if (m.busy === false && !this.can.branch) this.pending = null;
    }
    this.emit("kernel");
  }

  /** Chunks are unpacked one after the other, in the order they came. */
  private take(bytes: Uint8Array | null): void {
    if (!bytes) return;
    this.queue = this.queue
      .then(() => decodeChunk(bytes))
      .then((chunk) => this.merge(chunk))
      .catch((reason: unknown) => {
        this.error = reason instanceof Error ? reason.message : String(reason);
        this.emit("data");
      });
  }

  private merge(chunk: Chunk): void {
    if (!this.add(chunk)) {
      if (this.asked < 3) this.hello();
      return;
    }
    this.error = null;
    if (!this.running) this.stopping = false;
    this.followNew();
    this.emit("data");
  }

  protected override begun(info: RunInfo): void {
    const p = this.pending;
    if (!p || info.parent !== p.run || info.fork !== p.index || info.forced !== p.token) return;
    this.pending = null;
    this.late = false;
    this.follow = info.run;
  }

  private followNew(): void {
    if (this.follow === null || !this.run(this.follow)?.rows.length) return;
    const run = this.follow;
    this.follow = null;
    this.select(run, 0);
  }
}

export const createStore = (model: AnyModel<TraceState>, signal?: AbortSignal): Store => new Store(model, signal);
