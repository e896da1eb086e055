/**
 * Everything the views of one trace share: the rows received so far, what is looked at, and whether a kernel answers.
 *
 * Receives a model (anywidget's, or the offline page's), reads chunks from its `chunk` trait and its messages, and asks
 * the kernel behind it. Knows nothing about the page. Views subscribe and draw; they never write to each other.
 */
import type { AnyModel } from "@anywidget/types";
import { type Chunk, decodeChunk } from "./chunk";
import { Looking, type TraceState } from "./looking";
import type { Knobs, RunInfo } from "./types";

export type { Change, TraceState } from "./looking";
export type { Changed, Run } from "./trace_data";

/** A new run that was asked for and has not begun. */
export interface Pending {
  kind: "branch" | "again";
  run: number;
  index: number;
  token: number | null;
}

export type Kernel = "unknown" | "present" | "absent";

const NO_ANSWER_MS = 1000;
const PATIENCE_MS = 30_000;
/** What a widget's model tells when its line to the kernel is cut or made anew. */
const LINK_NEWS = ["comm_live_update", "comm:close"] as const;
const RUN_AGAIN = " Run its cell again; if another cell is running, wait for its end.";
const LATE_MS = 2500;

const bytesOf = (v: unknown): Uint8Array | null =>
  ArrayBuffer.isView(v) && v.byteLength > 0 ? new Uint8Array(v.buffer, v.byteOffset, v.byteLength) : null;

export class Store extends Looking {
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

  private queue: Promise<void> = Promise.resolve();
  private timers = new Set<ReturnType<typeof setTimeout>>();
  /** Nothing can be sent at all: a page without a kernel, or a kernel that was shut down. */
  private alone = false;
  /** A hello that was said because something was missing is this fresh: another one waits. */
  private asking = false;
  /** A run that this page asked for: it is picked as soon as it has a token. */
  private follow: number | null = null;

  constructor(model: AnyModel<TraceState>, signal?: AbortSignal) {
    super(model);
    const onChunk = () => this.take(bytesOf(model.get("chunk")));
    const onSelected = () => this.quiet || this.emit("select");
    const onMessage = (message: unknown, buffers: unknown[]) => this.hear(message, buffers);
    const onLink = () => this.askWhoIsThere();
    model.on("change:chunk", onChunk);
    model.on("change:selected", onSelected);
    model.on("change:at", onSelected);
    model.on("msg:custom", onMessage);
    for (const news of LINK_NEWS) model.on(news, onLink);
    signal?.addEventListener("abort", () => {
      model.off("change:chunk", onChunk);
      model.off("change:selected", onSelected);
      model.off("change:at", onSelected);
      model.off("msg:custom", onMessage);
      for (const news of LINK_NEWS) model.off(news, onLink);
      for (const t of this.timers) clearTimeout(t);
      this.silence();
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

  /** What goes on now, in words; "" when nothing does, and when nobody is there who would know. */
  get doing(): string {
    if (!this.running || this.kernel === "absent") return "";
    return this.stopping ? "stopping" : "the model is writing";
  }

  // ---------------------------------------------------------------- asking

  /** Why nothing new can be generated now; null when it can. */
  get refusal(): string | null {
    if (this.kernel === "absent")
      return `Nothing new can be generated here: no running notebook answers this picture.${this.alone ? "" : RUN_AGAIN}`;
    if (this.kernel === "unknown") return "Asking whether a notebook is running …";
    if (this.running) return "The model is still writing. Stop it first.";
    if (this.pending) return "Waiting for the model to begin.";
    return this.can.branch ? null : this.why || "The notebook cannot continue this run.";
  }

  stop(): void {
    this.stopping = true;
    this.late = false;
    this.after(LATE_MS, () => {
      this.late ||= this.stopping;
      this.emit("data");
    });
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

  /** Ask whether a kernel is there, and for all rows. A kernel that is busy answers later, one that starts later too: ask on. */
  private hello(wait = NO_ANSWER_MS): void {
    if (!this.tell({ type: "hello" })) return;
    this.after(wait, () => {
      if (this.kernel === "present") return;
      this.kernel = "absent";
      this.emit("kernel");
      this.hello(Math.min(2 * wait, PATIENCE_MS));
    });
  }

  /** The line to the kernel was cut or made anew, as by a restart: what it said of itself no longer holds. */
  private askWhoIsThere(): void {
    if (this.kernel !== "present") return;
    this.kernel = "unknown";
    this.pending = null;
    this.stopping = false;
    this.emit("kernel");
    this.hello();
  }

  /** Rows are missing, so everything is asked for, at most once a second. */
  private askAgain(): void {
    if (this.asking) return;
    this.asking = true;
    this.tell({ type: "hello" });
    this.after(NO_ANSWER_MS, () => {
      this.asking = false;
    });
  }

  private tell(message: object): boolean {
    if (this.attempt(() => this.model.send(message))) return true;
    this.alone = true;
    this.kernel = "absent";
    this.pending = null;
    this.stopping = false;
    this.emit("kernel");
    return false;
  }

  private after(ms: number, action: () => void): void {
    const timer = setTimeout(() => {
      this.timers.delete(timer);
      action();
    }, ms);
    this.timers.add(timer);
  }

  // ---------------------------------------------------------------- hearing

  private hear(message: unknown, buffers: unknown[]): void {
    const m = message as { type?: string; after?: number; busy?: boolean; can?: Partial<Store["can"]>; why?: string };
    if (m?.type === "chunk") this.take(bytesOf(buffers?.[0]), m.after);
    else if (m?.type !== "state") return;
    const facts = () => [this.kernel, this.can.branch, this.can.stop, this.why, this.pending];
    const before = facts();
    this.kernel = "present";
    if (m.type === "state") {
      this.can = { branch: m.can?.branch === true, stop: m.can?.stop === true };
      this.why = typeof m.why === "string" ? m.why : "";
      if (m.busy === false && !this.can.branch) this.pending = null;
    }
    // what is drawn at once is drawn whole, and chunks come many times a second
    if (facts().some((fact, i) => fact !== before[i])) this.emit("kernel");
  }

  /** Chunks are unpacked one after the other, in the order they came. One of news only makes sense `after` another. */
  private take(bytes: Uint8Array | null, after?: number): void {
    if (!bytes) return;
    this.queue = this.queue
      .then(() => decodeChunk(bytes))
      .then((chunk) => this.merge(chunk, after))
      .catch((reason: unknown) => {
        this.error = reason instanceof Error ? reason.message : String(reason);
        this.emit("data");
      });
  }

  private merge(chunk: Chunk, after = -1): void {
    if (after > (this.header?.seq ?? -1) || !this.add(chunk)) {
      this.askAgain();
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
