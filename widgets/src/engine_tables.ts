/**
 * What has been received of an engine's run: its tables, and which rows belong to which step, request and block.
 *
 * Chunks go in, in any overlap; rows and words come out. What they mean to a reader is said in engine_data.ts.
 */
import type { Chunk } from "./chunk";
import { type Turn, turnOf } from "./engine_facts";
import { BlockTable, Groups } from "./engine_index";
import { BlockStory, GONE, type Holder } from "./engine_pool";
import type { Operands } from "./engine_words";
import { Table } from "./table";
import type { Header } from "./types";

interface Track {
  first: number;
  /** Row + 1 by step from `first` on; 0 = none. */
  decisions: number[];
  holders: number[];
  /** Rows of its admissions, and their steps. */
  admitted: number[];
  admittedIn: number[];
  table: BlockTable;
}

const TABLES = [
  "steps",
  "decisions",
  "operands",
  "holders",
  "tables",
  "admissions",
  "admission_operands",
  "pool",
] as const;
/** More in a pool, or a place in a table beyond it, is no recording. */
export const MAX_BLOCKS = 1 << 20;
const NOTHING: readonly number[] = [];

export class EngineTables {
  readonly decisionTable = new Table("decisions");
  protected readonly byName = Object.fromEntries(
    TABLES.map((name) => [name, name === "decisions" ? this.decisionTable : new Table(name)]),
  ) as Record<(typeof TABLES)[number], Table>;
  protected decisionsOf = new Groups();
  protected operandRows = new Groups();
  protected holdersOf = new Groups();
  protected admissionsOf = new Groups();
  protected admissionOperands = new Groups();
  protected eventsOf = new Groups();
  protected scheduled: number[] = [];
  protected tracks = new Map<number, Track>();
  protected stories = new Map<number, BlockStory>();
  protected words: string[] = [];
  protected turns = new Map<string, { turn: Turn; seq: number }>();
  protected prompts = new Map<number, readonly number[]>();

  /** How many steps were recorded. */
  get steps(): number {
    return this.byName.steps.rows;
  }

  get blockSize(): number {
    return this.steps ? this.byName.steps.get("block_size", this.steps - 1) : 0;
  }

  /** A number's word; empty when it was never sent. */
  word(number: number): string {
    return this.words[number] ?? "";
  }

  operandsOf(decision: number): Operands {
    return this.named("operands", this.operandRows.range(decision));
  }

  protected named(table: "operands" | "admission_operands", [from, to]: [number, number]): Operands {
    const rows = this.byName[table];
    return Array.from({ length: to - from }, (_, k) => [
      this.word(rows.get("name", from + k)),
      rows.get("value", from + k),
    ]);
  }

  /** Block ids of a request's own order after a step; empty when it held none. */
  table(request: number, i: number): readonly number[] {
    const row = this.holderRow(request, i);
    return row === undefined ? NOTHING : this.holder(row, i).table;
  }

  protected holderRow(request: number, i: number): number | undefined {
    const track = this.tracks.get(request);
    const row = track?.holders[i - track.first];
    return row ? row - 1 : undefined;
  }

  protected holder(row: number, i: number): Holder {
    const get = (column: string) => this.byName.holders.get(column, row);
    const request = get("request");
    const table = this.tracks.get(request)?.table.at(i, get("num_blocks")) ?? NOTHING;
    return { request, row: get("row"), tokens: get("num_tokens"), table };
  }

  // ---------------------------------------------------------------- receiving

  /** Whether rows are missing between what is here and what the chunk brings. */
  gap(chunk: Chunk): boolean {
    return TABLES.some((name) => this.byName[name].gap(chunk));
  }

  add(chunk: Chunk): void {
    const before = Object.fromEntries(TABLES.map((name) => [name, this.byName[name].rows]));
    for (const name of TABLES) this.byName[name].append(chunk);
    this.learn(chunk.header);
    this.index("decisions", before, (row, step) => this.addDecision(row, step));
    this.index("operands", before, (row) => this.operandRows.add(this.byName.operands.get("decision", row)));
    this.index("tables", before, (row, step) => this.addChange(row, step));
    this.index("holders", before, (row, step) => this.addHolder(row, step));
    this.index("pool", before, (row, step) => this.addEvent(row, step));
    this.index("admissions", before, (row, step) => this.addAdmission(row, step));
    this.index("admission_operands", before, (row) =>
      this.admissionOperands.add(this.byName.admission_operands.get("admission", row)),
    );
  }

  private learn(header: Header): void {
    if (header.words && header.words.length > this.words.length) this.words = header.words.map(String);
    for (const [run, ids] of header.prompts ?? []) this.prompts.set(run, ids);
    for (const info of header.turns ?? []) {
      const key = `${info.request}.${info.turn}`;
      if ((this.turns.get(key)?.seq ?? -1) <= header.seq) this.turns.set(key, { turn: turnOf(info), seq: header.seq });
    }
  }

  /** Rows whose step is not known are left out: the data may come from anywhere. */
  private index(
    name: (typeof TABLES)[number],
    before: Record<string, number>,
    add: (row: number, step: number) => void,
  ): void {
    const table = this.byName[name];
    for (let row = before[name]; row < table.rows; row++) {
      const step = table.get("step", row);
      if (!(step >= this.steps)) add(row, step);
    }
  }

  private track(request: number, step: number): Track {
    let track = this.tracks.get(request);
    if (!track) {
      track = { first: step, decisions: [], holders: [], admitted: [], admittedIn: [], table: new BlockTable() };
      this.tracks.set(request, track);
    }
    return track;
  }

  private addDecision(row: number, step: number): void {
    this.decisionsOf.add(step);
    const track = this.track(this.decisionTable.get("request", row), step);
    while (track.decisions.length < step - track.first) track.decisions.push(0);
    track.decisions[step - track.first] = row + 1;
    this.scheduled[step] = (this.scheduled[step] ?? 0) + this.decisionTable.get("num_tokens", row);
  }

  private addHolder(row: number, step: number): void {
    this.holdersOf.add(step);
    const track = this.track(this.byName.holders.get("request", row), step);
    while (track.holders.length < step - track.first) track.holders.push(0);
    track.holders[step - track.first] = row + 1;
  }

  private addChange(row: number, step: number): void {
    const { tables } = this.byName;
    const index = tables.get("index", row);
    if (index < MAX_BLOCKS)
      this.track(tables.get("request", row), step).table.add(step, index, tables.get("block", row));
  }

  private addEvent(row: number, step: number): void {
    this.eventsOf.add(step);
    this.story(this.byName.pool.get("block", row)).event(step, row);
  }

  private addAdmission(row: number, step: number): void {
    const { admissions } = this.byName;
    this.admissionsOf.add(step);
    const track = this.track(admissions.get("request", row), step);
    track.admitted.push(row);
    track.admittedIn.push(step);
    const taken = Math.floor(admissions.get("cached_tokens", row) / (this.blockSize || 1));
    for (const block of this.table(admissions.get("request", row), step).slice(0, taken))
      if (block !== GONE) this.story(block).hit(step);
  }

  private story(block: number): BlockStory {
    let story = this.stories.get(block);
    if (!story) {
      story = new BlockStory();
      this.stories.set(block, story);
    }
    return story;
  }
}
