/**
 * The pool of blocks after one step: whose each block is, how full, and what happened to it last.
 *
 * Made whole from everybody's block tables; nothing is kept between steps, so going back costs what going on costs.
 */
import { countUpTo } from "./engine_index";

export type BlockStateName = "free" | "cached" | "used";
export type PoolEventName = "kept" | "emptied" | "evicted" | "overwritten";

/** What became of a block, or of the content it had. */
export interface PoolEvent {
  step: number;
  event: PoolEventName;
  /** Who let it go, or who needed the room. */
  request: number;
  /** Who computed the content. */
  owner: number;
  /** Place of its first token in that request's text. */
  start: number;
  candidates: number;
  policy: string;
}

export interface Block {
  block: number;
  state: BlockStateName;
  /** Requests whose table has it. */
  holders: readonly number[];
  filled: number;
  /** How often requests took this content over instead of computing it. */
  hits: number;
  /** It lost its content in this very step. */
  evicted: boolean;
  /** The last thing that happened to it, up to this step. */
  last: PoolEvent | null;
}

/** One request as it stands after a step. */
export interface Holder {
  request: number;
  row: number;
  tokens: number;
  table: readonly number[];
}

/** In a table: what was at this place fell out of the request's window. */
export const GONE = 0xffffffff;

const NOBODY: readonly number[] = [];

/** The whole pool after a step. */
export class Pool {
  readonly counts: Uint16Array;
  readonly filled: Uint16Array;
  private owner: Int32Array;
  private more = new Map<number, number[]>();
  used = 0;
  shared = 0;
  /** Blocks that would be needed besides, if nothing were shared. */
  saved = 0;

  constructor(
    readonly step: number,
    readonly size: number,
    readonly blockSize: number,
    holders: readonly Holder[],
  ) {
    this.counts = new Uint16Array(size);
    this.filled = new Uint16Array(size);
    this.owner = new Int32Array(size);
    for (const holder of holders) this.hold(holder);
  }

  private hold({ request, tokens, table }: Holder): void {
    for (let place = 0; place < table.length; place++) {
      const block = table[place];
      if (!(block < this.size)) continue;
      const count = ++this.counts[block];
      this.filled[block] = Math.max(
        this.filled[block],
        Math.min(this.blockSize, Math.max(0, tokens - place * this.blockSize)),
      );
      if (count === 1) {
        this.owner[block] = request;
        this.used++;
        continue;
      }
      this.saved++;
      if (count === 2) {
        this.shared++;
        this.more.set(block, [this.owner[block]]);
      }
      this.more.get(block)?.push(request);
    }
  }

  holders(block: number): readonly number[] {
    if (!this.counts[block]) return NOBODY;
    return this.more.get(block) ?? [this.owner[block]];
  }

  /** The only or first holder; undefined when there is none. */
  ownerOf(block: number): number | undefined {
    return this.counts[block] ? this.owner[block] : undefined;
  }
}

/** What happened to one block over time. */
export class BlockStory {
  private steps: number[] = [];
  private rows: number[] = [];
  private hits: number[] = [];

  event(step: number, row: number): void {
    this.steps.push(step);
    this.rows.push(row);
  }

  hit(step: number): void {
    this.hits.push(step);
  }

  /** The row of its last event up to a step. */
  last(step: number): number | undefined {
    return this.rows[countUpTo(this.steps, step) - 1];
  }

  /** Steps of all hits up to a step, from `since` on. */
  hitsBetween(since: number, step: number): number {
    return countUpTo(this.hits, step) - countUpTo(this.hits, since - 1);
  }

  /** Rows of all events up to a step, newest first. */
  *backwards(step: number): Generator<number> {
    for (let i = countUpTo(this.steps, step) - 1; i >= 0; i--) yield this.rows[i];
  }
}
