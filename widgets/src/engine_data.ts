/**
 * What has been received of an engine's run: steps, decisions, block tables and the pool, at any step.
 *
 * Chunks go in, in any overlap. A step is given by its place in the recording (0 = the first recorded one); the engine's
 * own number is `stepAt(i).step`. Knows nothing about the page.
 */
import type { Chunk } from "./chunk";
import { BlockTable, countUpTo, Groups } from "./engine_index";
import { type Block, BlockStory, type Holder, Pool, type PoolEvent, type PoolEventName } from "./engine_pool";
import { count, visible } from "./format";
import { Table } from "./table";
import type { Header, TurnInfo } from "./types";

export type { Block, Holder, PoolEvent } from "./engine_pool";
export { Pool } from "./engine_pool";
export type Verdict = "decode" | "prefill" | "wait" | "preempt" | "reject";

export interface Step {
  /** The engine's own number. */
  step: number;
  startMs: number;
  durMs: number;
  /** Of that, inside the model. */
  runMs: number;
  budget: number;
  /** Tokens computed. */
  scheduled: number;
  /** Requests that waited before the step. */
  waiting: number;
  blocksUsed: number;
  blocksCached: number;
  blocksFree: number;
  blockSize: number;
}

export interface Turn {
  request: number;
  turn: number;
  /** The answer in the trace. */
  run: number | null;
  status: string;
  finish: string;
  promptTokens: number;
  generatedTokens: number;
  cachedPromptTokens: number;
  preemptions: number;
  recomputedTokens: number;
  /** NaN while it has not come, like the following. */
  arrivedMs: number;
  scheduledMs: number;
  firstTokenMs: number;
  finishedMs: number;
}

export interface EngineRequest {
  request: number;
  /** What it asks, in its own words. */
  label: string;
  turns: Turn[];
}

/** A request was given a place; `cachedTokens` of its text were in the cache already, `why` says why not more. */
export interface Admission {
  step: number;
  request: number;
  cachedTokens: number;
  readonly why: string;
}

/** A sentence's numbers by name; those that name a request can be written otherwise. */
export type Operands = readonly (readonly [string, number])[];
const REQUESTS = /^(head|winner|by|owner|request\d*)$/;
/** Places in a text, which people count from 1. */
const PLACES = /^token\d*$/;
const IDS = /^id\d*$/;

/** Put numbers into a sentence by plain replacement: a text from elsewhere is never a format. */
export function fill(template: string, operands: Operands, textOf?: (id: number) => string): string {
  let text = template;
  for (const [key, value] of operands) {
    let words = count(PLACES.test(key) ? value + 1 : value);
    if (value === 1 && !PLACES.test(key)) text = singular(text, key);
    if (REQUESTS.test(key)) words = letters(value);
    else if (textOf && IDS.test(key)) words = `“${visible(textOf(value))}”`;
    text = text.replace(textOf && IDS.test(key) ? `token id {${key}}` : `{${key}}`, () => words);
    text = text.split(`{${key}}`).join(words);
  }
  return text.replaceAll("{{", "{").replaceAll("}}", "}");
}

/** "{key} blocks are" where the number is 1: "{key} block is". */
const singular = (text: string, key: string): string =>
  text.replace(/\{(\w+)\}(?:( (?:token|block|row))s)?( are\b)?/g, (all, name, noun = "", verb = "") =>
    name === key ? `{${key}}${noun}${verb && " is"}` : all,
  );

/** "A" to "Z", then "AA": how a request is called in every picture. */
export function letters(request: number): string {
  let n = Math.max(0, Math.floor(request));
  let text = "";
  do {
    text = String.fromCharCode(65 + (n % 26)) + text;
    n = Math.floor(n / 26) - 1;
  } while (n >= 0);
  return text;
}

/** What was decided about one request in one step. The sentence is put together when somebody reads it. */
export class Decision {
  constructor(
    private data: EngineData,
    private row: number,
  ) {}

  private get(column: string): number {
    return this.data.decisionTable.get(column, this.row);
  }

  get request(): number {
    return this.get("request");
  }

  get verdict(): Verdict {
    return this.data.word(this.get("verdict")) as Verdict;
  }

  get reason(): string {
    return this.data.word(this.get("reason"));
  }

  get tokens(): number {
    return this.get("num_tokens");
  }

  get operands(): Operands {
    return this.data.operandsOf(this.row);
  }

  get why(): string {
    return fill(this.data.word(this.get("template")), this.operands);
  }
}

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
const MAX_BLOCKS = 1 << 20;
const NOTHING: readonly number[] = [];

export class EngineData {
  readonly decisionTable = new Table("decisions");
  private readonly byName = Object.fromEntries(
    TABLES.map((name) => [name, name === "decisions" ? this.decisionTable : new Table(name)]),
  ) as Record<(typeof TABLES)[number], Table>;
  private decisionsOf = new Groups();
  private operandRows = new Groups();
  private holdersOf = new Groups();
  private admissionsOf = new Groups();
  private admissionOperands = new Groups();
  private eventsOf = new Groups();
  private scheduled: number[] = [];
  private tracks = new Map<number, Track>();
  private stories = new Map<number, BlockStory>();
  private words: string[] = [];
  private turns = new Map<string, { turn: Turn; seq: number }>();
  private prompts = new Map<number, readonly number[]>();
  private known: EngineRequest[] | null = null;
  private pools: Pool[] = [];

  /** @param labelOf what a run answers, in words; @param textOf a token's text. */
  constructor(
    private labelOf: (run: number) => string,
    private textOf: (id: number) => string = String,
  ) {}

  // ---------------------------------------------------------------- reading

  /** How many steps were recorded. */
  get steps(): number {
    return this.byName.steps.rows;
  }

  stepAt(i: number): Step {
    const get = (column: string) => this.byName.steps.get(column, i);
    return {
      step: get("step"),
      startMs: get("start_ms"),
      durMs: get("dur_ms"),
      runMs: get("run_ms"),
      budget: get("budget"),
      scheduled: this.scheduled[i] ?? 0,
      waiting: get("num_waiting"),
      blocksUsed: get("blocks_used"),
      blocksCached: get("blocks_cached"),
      blocksFree: get("blocks_free"),
      blockSize: get("block_size"),
    };
  }

  /** The last step that began at `ms` or before; -1 when none did. */
  stepOfTime(ms: number): number {
    let lo = 0;
    let hi = this.steps;
    while (lo < hi) {
      const mid = (lo + hi) >> 1;
      if (this.byName.steps.get("start_ms", mid) <= ms) lo = mid + 1;
      else hi = mid;
    }
    return lo - 1;
  }

  get blockSize(): number {
    return this.steps ? this.byName.steps.get("block_size", this.steps - 1) : 0;
  }

  get poolSize(): number {
    if (!this.steps) return 0;
    const { blocksUsed, blocksCached, blocksFree } = this.stepAt(this.steps - 1);
    const size = blocksUsed + blocksCached + blocksFree;
    return size <= MAX_BLOCKS ? size : 0;
  }

  /** Every request that was ever seen, by number. */
  get requests(): readonly EngineRequest[] {
    if (this.known) return this.known;
    const found = new Map<number, Turn[]>();
    for (const request of this.tracks.keys()) found.set(request, []);
    for (const { turn } of this.turns.values()) {
      const mine = found.get(turn.request);
      if (mine) mine.push(turn);
      else found.set(turn.request, [turn]);
    }
    this.known = [...found]
      .sort(([a], [b]) => a - b)
      .map(([request, turns]) => {
        turns.sort((a, b) => a.turn - b.turn);
        const run = turns.find((t) => t.run !== null)?.run;
        return { request, turns, label: typeof run === "number" ? this.labelOf(run) : "" };
      });
    return this.known;
  }

  request(request: number): EngineRequest | undefined {
    return this.requests.find((r) => r.request === request);
  }

  /** The turn that a run of the trace is. */
  turnOfRun(run: number): Turn | undefined {
    for (const { turn } of this.turns.values()) if (turn.run === run) return turn;
    return undefined;
  }

  /** Token ids that a run began with, the request's earlier turns included; empty when they were not sent. */
  promptOf(run: number): readonly number[] {
    return this.prompts.get(run) ?? NOTHING;
  }

  /** The turn of a request that was the newest one at a step. */
  turnAt(request: number, i: number): Turn | undefined {
    const { startMs, durMs } = this.stepAt(i);
    return this.request(request)?.turns.findLast((turn) => !(turn.arrivedMs > startMs + durMs));
  }

  /** What was decided in a step, about every request that the policy saw. */
  decisions(i: number): Decision[] {
    const [from, to] = this.decisionsOf.range(i);
    return Array.from({ length: to - from }, (_, k) => new Decision(this, from + k));
  }

  decision(request: number, i: number): Decision | null {
    const track = this.tracks.get(request);
    const row = track?.decisions[i - track.first];
    return row ? new Decision(this, row - 1) : null;
  }

  /** Requests that held a row after a step. */
  holders(i: number): Holder[] {
    const [from, to] = this.holdersOf.range(i);
    return Array.from({ length: to - from }, (_, k) => this.holder(from + k, i));
  }

  /** Block ids of a request's own order after a step; empty when it held none. */
  table(request: number, i: number): readonly number[] {
    const row = this.holderRow(request, i);
    return row === undefined ? NOTHING : this.holder(row, i).table;
  }

  /** The step in which a place of a request's table got the block that it has after step `i`. */
  since(request: number, i: number, place: number): number | undefined {
    return this.tracks.get(request)?.table.since(i, place);
  }

  /** Tokens of a request in the cache after a step. */
  numTokens(request: number, i: number): number {
    const row = this.holderRow(request, i);
    return row === undefined ? 0 : this.byName.holders.get("num_tokens", row);
  }

  /** Requests that were given a row in a step. */
  admissions(i: number): Admission[] {
    const [from, to] = this.admissionsOf.range(i);
    return Array.from({ length: to - from }, (_, k) => this.admissionAt(from + k));
  }

  /** The last time a request that holds a row after step `i` was given it. */
  admission(request: number, i: number): Admission | null {
    const track = this.tracks.get(request);
    if (!track || this.holderRow(request, i) === undefined) return null;
    const row = track.admitted[countUpTo(track.admittedIn, i) - 1];
    return row === undefined ? null : this.admissionAt(row);
  }

  private admissionAt(row: number): Admission {
    const get = (column: string) => this.byName.admissions.get(column, row);
    const operands = () => this.named("admission_operands", this.admissionOperands.range(row));
    const template = this.word(get("template"));
    const { textOf } = this;
    return {
      step: get("step"),
      request: get("request"),
      cachedTokens: get("cached_tokens"),
      get why() {
        return fill(template, operands(), textOf);
      },
    };
  }

  /** The whole pool after a step. */
  pool(i: number): Pool {
    const step = Math.max(0, Math.min(this.steps - 1, i));
    const known = this.pools.find((p) => p.step === step);
    if (known) return known;
    const pool = new Pool(step, this.poolSize, this.blockSize, this.holders(step));
    this.pools = [pool, ...this.pools.slice(0, 3)];
    return pool;
  }

  /** Whether a block that nobody holds after a step still has content that can be found. */
  isKept(i: number, block: number): boolean {
    const row = this.stories.get(block)?.last(i);
    return row !== undefined && this.word(this.byName.pool.get("event", row)) === "kept";
  }

  block(i: number, id: number): Block {
    const pool = this.pool(i);
    const story = this.stories.get(id);
    const row = story?.last(i);
    const last = row === undefined ? null : this.eventAt(row);
    const holders = pool.holders(id);
    const kept = !holders.length && last?.event === "kept";
    return {
      block: id,
      state: holders.length ? "used" : kept ? "cached" : "free",
      holders,
      filled: kept ? pool.blockSize : (pool.filled[id] ?? 0),
      hits: this.hits(i, id),
      evicted: this.evictedIn(i, id),
      last,
    };
  }

  /** Everything that happened to blocks in a step, in order. */
  events(i: number): (PoolEvent & { block: number })[] {
    const [from, to] = this.eventsOf.range(i);
    return Array.from({ length: to - from }, (_, k) => this.eventAt(from + k));
  }

  /** Blocks whose content was given up in a step. */
  evictedBlocks(i: number): number[] {
    return this.events(i)
      .filter((e) => e.event === "evicted")
      .map((e) => e.block);
  }

  /** What happened to a block up to a step, newest first. */
  *storyOf(block: number, i: number): Generator<PoolEvent & { block: number }> {
    for (const row of this.stories.get(block)?.backwards(i) ?? []) yield this.eventAt(row);
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
    this.known = null;
  }

  /** A number's word; empty when it was never sent. */
  word(number: number): string {
    return this.words[number] ?? "";
  }

  operandsOf(decision: number): Operands {
    return this.named("operands", this.operandRows.range(decision));
  }

  private named(table: "operands" | "admission_operands", [from, to]: [number, number]): Operands {
    const rows = this.byName[table];
    return Array.from({ length: to - from }, (_, k) => [
      this.word(rows.get("name", from + k)),
      rows.get("value", from + k),
    ]);
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
    for (const block of this.table(admissions.get("request", row), step).slice(0, taken)) this.story(block).hit(step);
  }

  private story(block: number): BlockStory {
    let story = this.stories.get(block);
    if (!story) {
      story = new BlockStory();
      this.stories.set(block, story);
    }
    return story;
  }

  private holderRow(request: number, i: number): number | undefined {
    const track = this.tracks.get(request);
    const row = track?.holders[i - track.first];
    return row ? row - 1 : undefined;
  }

  private holder(row: number, i: number): Holder {
    const get = (column: string) => this.byName.holders.get(column, row);
    const request = get("request");
    const table = this.tracks.get(request)?.table.at(i, get("num_blocks")) ?? NOTHING;
    return { request, row: get("row"), tokens: get("num_tokens"), table };
  }

  private eventAt(row: number): PoolEvent & { block: number } {
    const get = (column: string) => this.byName.pool.get(column, row);
    return {
      block: get("block"),
      step: get("step"),
      event: this.word(get("event")) as PoolEventName,
      request: get("request"),
      owner: get("owner"),
      start: get("start"),
      candidates: get("candidates"),
      policy: this.word(get("policy")),
    };
  }

  private evictedIn(i: number, block: number): boolean {
    for (const event of this.storyOf(block, i)) {
      if (event.step !== i) return false;
      if (event.event === "evicted") return true;
    }
    return false;
  }

  /** Hits of the content that a block has now: those since it was last given up. */
  private hits(i: number, block: number): number {
    const story = this.stories.get(block);
    if (!story) return 0;
    for (const event of this.storyOf(block, i)) if (event.event !== "kept") return story.hitsBetween(event.step, i);
    return story.hitsBetween(0, i);
  }
}

const ms = (value: number | null): number => (typeof value === "number" ? value : Number.NaN);

const turnOf = (info: TurnInfo): Turn => ({
  request: info.request,
  turn: info.turn,
  run: typeof info.run === "number" ? info.run : null,
  status: info.status,
  finish: info.finish,
  promptTokens: info.prompt_tokens,
  generatedTokens: info.generated_tokens,
  cachedPromptTokens: info.cached_prompt_tokens,
  preemptions: info.preemptions,
  recomputedTokens: info.recomputed_tokens,
  arrivedMs: ms(info.arrived_ms),
  scheduledMs: ms(info.scheduled_ms),
  firstTokenMs: ms(info.first_token_ms),
  finishedMs: ms(info.finished_ms),
});
