/**
 * What has been received of one trace: its tables, its runs, its texts.
 *
 * Chunks go in, in any overlap; rows, runs and words come out. Knows nothing about models, kernels or the page.
 */
import type { Chunk, Numbers } from "./chunk";
import { EngineData } from "./engine_data";
import { Table } from "./table";
import type { Header, RunInfo, Selection, TableName } from "./types";

export interface Run {
  info: RunInfo;
  /** Rows of the `tokens` table, in the order of the answer. */
  rows: number[];
  /** Rows of the `stages` table. */
  stages: number[];
  seq: number;
}

export interface Changed {
  id: number;
  by: number;
  delta: number;
}

const TABLES = ["tokens", "changed", "seen", "stages"] as const satisfies readonly TableName[];

const fromHex = (text: string): Uint8Array => Uint8Array.from(text.match(/../g) ?? [], (b) => Number.parseInt(b, 16));

export class TraceData {
  readonly tokens = new Table("tokens");
  readonly changed = new Table("changed");
  readonly seen = new Table("seen");
  readonly stages = new Table("stages");
  readonly engine = new EngineData(
    (run) => this.byRun.get(run)?.info.question ?? "",
    (id) => this.text(id),
  );
  header: Header | null = null;
  private byRun = new Map<number, Run>();
  private ordered: Run[] = [];
  private words = new Map<number, { text: string; special: boolean; raw: Uint8Array | null }>();

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

  /** The bytes of a token that is not whole characters; null for any other. */
  raw(id: number): Uint8Array | null {
    return this.words.get(id)?.raw ?? null;
  }

  get vocabulary(): number {
    return this.header?.model.vocab_size ?? 0;
  }

  get running(): Run | undefined {
    return this.ordered.findLast((r) => r.info.status === "running");
  }

  /** The row of `tokens` behind a selection; undefined when there is none. */
  rowAt(at: Selection): number | undefined {
    return this.byRun.get(at.run)?.rows[at.token];
  }

  /** Index in its run's answer of the first row that is here; not 0 when the recorder dropped those before it. */
  firstIndex(run: Run): number {
    return run.rows.length ? this.tokens.get("index", run.rows[0]) || 0 : 0;
  }

  /** Index of a picked token in its run's answer, counted from 0, as Python does. */
  indexAt(at: Selection): number {
    const run = this.byRun.get(at.run);
    return at.token + (run ? this.firstIndex(run) : 0);
  }

  /** The answer that a branch, or a branch of a branch, began from. */
  rootOf(id: number): number {
    const parent = this.byRun.get(id)?.info.parent;
    return parent === null || parent === undefined ? id : this.rootOf(parent);
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
    const index = this.indexAt(at);
    return this.ordered.find(
      (r) => r.info.parent === at.run && r.info.fork === index && r.info.forced === token && r.rows.length,
    );
  }

  /** Adds what is new in a chunk; false when rows between are missing, and then nothing was added. */
  protected add(chunk: Chunk): boolean {
    if (TABLES.some((name) => this[name].gap(chunk)) || this.engine.gap(chunk)) return false;
    const had = { tokens: this.tokens.rows, stages: this.stages.rows };
    for (const name of TABLES) this[name].append(chunk);
    for (const [id, text, special, bytes] of chunk.header.texts)
      this.words.set(id, { text, special: special === 1, raw: bytes ? fromHex(bytes) : null });
    if (chunk.header.seq >= (this.header?.seq ?? 0)) this.header = chunk.header;
    this.describeRuns(chunk.header);
    this.engine.add(chunk);
    for (let i = had.tokens; i < this.tokens.rows; i++) this.byRun.get(this.tokens.get("run", i))?.rows.push(i);
    for (let i = had.stages; i < this.stages.rows; i++) this.byRun.get(this.stages.get("run", i))?.stages.push(i);
    return true;
  }

  /** Called for every run that was not known before. */
  protected begun(_info: RunInfo): void {}

  private describeRuns(header: Header): void {
    for (const info of header.runs) {
      // parents come first; anything else could send a walk to the root round in circles
      if (info.parent !== null && !(info.parent < info.run))
        throw new Error(`run ${info.run} cannot branch from a later run`);
      const known = this.byRun.get(info.run);
      if (!known) this.begin({ info, rows: [], stages: [], seq: header.seq });
      else if (header.seq >= known.seq) Object.assign(known, { info, seq: header.seq });
    }
  }

  private begin(run: Run): void {
    this.byRun.set(run.info.run, run);
    this.ordered = [...this.byRun.values()].sort((a, b) => a.info.run - b.info.run);
    this.begun(run.info);
  }
}
