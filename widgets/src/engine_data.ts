/**
 * An engine's run, read: steps, decisions, block tables and the pool, at any step.
 *
 * A step is given by its place in the recording (0 = the first recorded one); the engine's own number is
 * `stepAt(i).step`. What was received lies in engine_tables.ts. Knows nothing about the page.
 */
import type { Chunk } from "./chunk";
import type { Admission, EngineRequest, Step, Turn, Verdict } from "./engine_facts";
import { countUpTo } from "./engine_index";
import { type Block, type Holder, Pool, type PoolEvent, type PoolEventName } from "./engine_pool";
import { EngineTables, MAX_BLOCKS } from "./engine_tables";
import { fill, type Operands } from "./engine_words";

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

const NOTHING: readonly number[] = [];

export class EngineData extends EngineTables {
  private known: EngineRequest[] | null = null;
  private pools: Pool[] = [];

  /** @param labelOf what a run answers, in words; @param textOf a token's text. */
  constructor(
    private labelOf: (run: number) => string,
    private textOf: (id: number) => string = String,
  ) {
    super();
  }

  override add(chunk: Chunk): void {
    super.add(chunk);
    this.known = null;
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
