/**
 * Finding things in an engine's tables quickly: rows that belong to one key, and block tables at any step.
 *
 * Everything grows at its end only. Knows nothing about chunks or names of columns.
 */

/** How many of a sorted list are at most `value`. */
export function countUpTo(sorted: ArrayLike<number>, value: number): number {
  let lo = 0;
  let hi = sorted.length;
  while (lo < hi) {
    const mid = (lo + hi) >> 1;
    if (sorted[mid] <= value) lo = mid + 1;
    else hi = mid;
  }
  return lo;
}

/** Rows of a table whose key (a step, a decision) never falls: where each key's rows begin. */
export class Groups {
  private from: number[] = [];
  private rows = 0;

  add(key: number): void {
    while (this.from.length <= key) this.from.push(this.rows);
    this.rows++;
  }

  /** The first row of a key, and the first that is not its any more. */
  range(key: number): [number, number] {
    return [this.from[key] ?? this.rows, this.from[key + 1] ?? this.rows];
  }
}

const FRAME = 64;
const NOTHING: readonly number[] = [];

/** One request's block table as a list of changes, with the whole table kept every 64 changes. */
export class BlockTable {
  private steps: number[] = [];
  private places: number[] = [];
  private blocks: number[] = [];
  private frames: number[][] = [[]];
  private now: number[] = [];
  private last: { changes: number; length: number; table: readonly number[] } | null = null;

  /** From `step` on, place `index` is `block`. */
  add(step: number, index: number, block: number): void {
    this.steps.push(step);
    this.places.push(index);
    this.blocks.push(block);
    this.now[index] = block;
    if (this.steps.length % FRAME === 0) this.frames.push(this.now.slice());
  }

  /** The step up to `step` in which place `index` was last written; undefined when it never was. */
  since(step: number, index: number): number | undefined {
    for (let i = countUpTo(this.steps, step) - 1; i >= 0; i--) if (this.places[i] === index) return this.steps[i];
    return undefined;
  }

  /** The table after `step`, cut to the `length` that it had then. */
  at(step: number, length: number): readonly number[] {
    const changes = countUpTo(this.steps, step);
    if (this.last?.changes === changes && this.last.length === length) return this.last.table;
    if (!length) return NOTHING;
    const frame = Math.floor(changes / FRAME);
    const table = this.frames[frame].slice();
    for (let i = frame * FRAME; i < changes; i++) table[this.places[i]] = this.blocks[i];
    table.length = Math.min(length, table.length);
    this.last = { changes, length, table };
    return table;
  }
}
