/**
 * One append-only table of typed columns.
 *
 * Rows may arrive twice (a live batch and a snapshot hold the same ones): what is known already is skipped, a hole is refused.
 */
import type { Chunk, Numbers } from "./chunk";
import type { TableName } from "./types";

interface Grown {
  data: Numbers;
  width: number;
}

export class Table {
  rows = 0;
  private columns = new Map<string, Grown>();

  constructor(private name: TableName) {}

  /** Rows of this table that the chunk holds, and the index of the first. */
  private span(chunk: Chunk): [number, number, [string, Numbers, number][]] {
    const prefix = `${this.name}.`;
    const mine: [string, Numbers, number][] = [];
    let rows = Number.POSITIVE_INFINITY;
    for (const [name, column] of chunk.columns)
      if (name.startsWith(prefix)) {
        mine.push([name.slice(prefix.length), column.data, column.width]);
        rows = Math.min(rows, column.rows);
      }
    return [chunk.header.first[this.name] ?? 0, mine.length ? rows : 0, mine];
  }

  /** Whether rows are missing between what is here and what the chunk brings. */
  gap(chunk: Chunk): boolean {
    const [first, rows] = this.span(chunk);
    return rows > 0 && first > this.rows;
  }

  append(chunk: Chunk): void {
    const [first, rows, mine] = this.span(chunk);
    const skip = this.rows - first;
    if (rows <= skip) return;
    for (const [name, data, width] of mine) {
      const grown = this.room(name, data, width, first + rows);
      grown.data.set(data.subarray(skip * width, rows * width), this.rows * width);
    }
    this.rows = first + rows;
  }

  private room(name: string, like: Numbers, width: number, rows: number): Grown {
    const old = this.columns.get(name);
    if (old && old.width !== width) throw new Error(`column ${this.name}.${name} changed its width`);
    if (old && old.data.length >= rows * width) return old;
    const data = new (like.constructor as new (n: number) => Numbers)(Math.max(rows, this.rows * 2) * width);
    if (old) data.set(old.data);
    const grown = { data, width };
    this.columns.set(name, grown);
    return grown;
  }

  /** One number; NaN where the column was never sent. */
  get(column: string, row: number): number {
    return this.columns.get(column)?.data[row] ?? Number.NaN;
  }

  /** One row of a wide column, without copying. */
  row(column: string, row: number): Numbers {
    const grown = this.columns.get(column);
    return grown ? grown.data.subarray(row * grown.width, (row + 1) * grown.width) : new Uint8Array(0);
  }
}
