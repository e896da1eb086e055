/**
 * Everything the views of one trace share: the rows received so far, the selected token, and whether a kernel answers.
 *
 * Receives a model (anywidget's, or the offline page's) and reads chunks from its `chunk` trait and its messages.
 * Knows nothing about the page. Views subscribe and draw; they never write to each other.
 */
import type { AnyModel } from "@anywidget/types";
import { type Chunk, decodeChunk, type Numbers } from "./chunk";
import { Table } from "./table";
import type { Header, Knobs, RunInfo, Selection, TableName } from "./types";

export interface TraceState {
  chunk: DataView | Uint8Array | null;
  selected: Selection;
  [name: string]: unknown;
}

export interface Run {
  info: RunInfo;
  /** Rows of the `tokens` table, in the order of the answer. */
  rows: number[];
  /** Rows of the `stages` table. */
  stages: number[];
  seq: number;
}

/** A new run that was asked for and has not begun. */
export interface Pending {
  kind: "branch" | "again";
  run: number;
  index: number;
  token: number | null;
}

export interface Changed {
  id: number;
  by: number;
  delta: number;
}

export type Change = "data" | "select" | "kernel";
export type Kernel = "unknown" | "present" | "absent";
type Listener = (change: Change) => void;

const NO_ANSWER_MS = 1000;
const LATE_MS = 2500;

const bytesOf = (v: unknown): Uint8Array | null =>
  ArrayBuffer.isView(v) && v.byteLength > 0 ? new Uint8Array(v.buffer, v.byteOffset, v.byteLength) : null;

export class Store {
  readonly tokens = new Table("tokens");
  readonly changed = new Table("changed");
  readonly seen = new Table("seen");
  readonly stages = new Table("stages");
  header: Header | null = null;
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

  private byRun = new Map<number, Run>();
  private ordered: Run[] = [];
  private words = new Map<number, { text: string; special: boolean }>();
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

  get runs(): readonly Run[] {
    return this.ordered;
  }

  run(id: number): Run | undefined {
    return this.byRun.get(id);
  }

  text(id: number): string {
    return this.words.get(id)?.text ?? `#${id}`;
  }

  special(id: number): boolean {
    return this.words.get(id)?.special ?? false;
  }

  get vocabulary(): number {
    return this.header?.model.vocab_size ?? 0;
  }

  get running(): Run | undefined {
    return this.ordered.findLast((r) => r.info.status === "running");
  }

  get status(): string {
    if (this.running) return this.stopping ? "stopping" : "running";
    return this.ordered.at(-1)?.info.status ?? "empty";
  }

  /** The row of `tokens` behind a selection; undefined when there is none. */
  rowAt(at: Selection): number | undefined {
    return this.byRun.get(at.run)?.rows[at.token];
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
    const run = this.ordered.find((r) => r.rows.length);
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

  /** Slots of `top_ids` that occur in the sequence already. */
  seenSlots(row: number): number[] {
    return this.ownedBy(this.seen, row).map((i) => this.seen.get("slot", i));
  }

  changes(row: number): Changed[] {
    return this.ownedBy(this.changed, row).map((i) => ({
      id: this.changed.get("id", i),
      by: this.changed.get("by", i),
      delta: this.changed.get("delta", i),
    }));
  }

  /** Rows of a side table that belong to one token; the side table is sorted by token row. */
  private ownedBy(table: Table, row: number): number[] {
    let lo = 0;
    let hi = table.rows;
    while (lo < hi) {
      const mid = (lo + hi) >> 1;
      if (table.get("row", mid) < row) lo = mid + 1;
      else hi = mid;
    }
    const out: number[] = [];
    for (; lo < table.rows && table.get("row", lo) === row; lo++) out.push(lo);
    return out;
  }

  top(column: "top_ids" | "top_delta" | "tail_count" | "tail_seen", row: number): Numbers {
    return this.tokens.row(column, row);
  }

  /** The branch that was already made with this choice, if any. */
  branchAt(at: Selection, token: number): Run | undefined {
    return this.ordered.find(
      (r) => r.info.parent === at.run && r.info.fork === at.token && r.info.forced === token && r.rows.length,
    );
  }

  // ---------------------------------------------------------------- writing

  select(run: number, token: number): void {
    const rows = this.byRun.get(run)?.rows.length ?? 0;
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
    const tables: TableName[] = ["tokens", "changed", "seen", "stages"];
    if (tables.some((name) => this[name].gap(chunk))) {
      if (this.asked < 3) this.hello();
      return;
    }
    const had = { tokens: this.tokens.rows, stages: this.stages.rows };
    for (const name of tables) this[name].append(chunk);
    for (const [id, text, special] of chunk.header.texts) this.words.set(id, { text, special: special === 1 });
    if (chunk.header.seq >= (this.header?.seq ?? 0)) this.header = chunk.header;
    this.error = null;
    this.describeRuns(chunk.header);
    for (let i = had.tokens; i < this.tokens.rows; i++) this.byRun.get(this.tokens.get("run", i))?.rows.push(i);
    for (let i = had.stages; i < this.stages.rows; i++) this.byRun.get(this.stages.get("run", i))?.stages.push(i);
    if (!this.running) this.stopping = false;
    this.followNew();
    this.emit("data");
  }

  private describeRuns(header: Header): void {
    for (const info of header.runs) {
      const known = this.byRun.get(info.run);
      if (!known) this.begin({ info, rows: [], stages: [], seq: header.seq });
      else if (header.seq >= known.seq) Object.assign(known, { info, seq: header.seq });
    }
  }

  private begin(run: Run): void {
    const { info } = run;
    this.byRun.set(info.run, run);
    this.ordered = [...this.byRun.values()].sort((a, b) => a.info.run - b.info.run);
    const p = this.pending;
    if (!p || info.parent !== p.run || info.fork !== p.index || info.forced !== p.token) return;
    this.pending = null;
    this.late = false;
    this.follow = info.run;
  }

  private followNew(): void {
    if (this.follow === null || !this.byRun.get(this.follow)?.rows.length) return;
    const run = this.follow;
    this.follow = null;
    this.select(run, 0);
  }
}

export const createStore = (model: AnyModel<TraceState>, signal?: AbortSignal): Store => new Store(model, signal);
