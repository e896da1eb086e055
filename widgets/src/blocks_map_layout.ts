/**
 * Where the blocks of the pool and of one request's own order stand, and how wires run between them.
 *
 * Plain numbers in pixels; knows nothing about canvases or engines.
 */
import { GONE } from "./engine_pool";

/** Large cells have a number, a letter and slots; medium ones a letter and a level; small ones only a level. */
export type Size = "large" | "medium" | "small";

export interface Grid {
  size: Size;
  columns: number;
  rows: number;
  left: number;
  top: number;
  w: number;
  h: number;
  gapX: number;
  gapY: number;
  /** Lower end of the last row. */
  bottom: number;
}

export interface Spot {
  x: number;
  y: number;
}

const TALLEST = 420;
const EDGE = 6;
const GUTTER = 36;

const ends = (grid: Omit<Grid, "bottom">): Grid => ({
  ...grid,
  bottom: grid.top + grid.rows * (grid.h + grid.gapY) - grid.gapY,
});

function large(width: number, top: number, count: number): Grid {
  const wide = width > 760;
  const columns = wide ? 24 : 16;
  const gap = wide ? 7 : 5;
  const w = (width - 2 * EDGE - gap * (columns - 1)) / columns;
  const rows = Math.ceil(count / columns);
  return ends({ size: "large", columns, rows, left: EDGE, top, w, h: 38, gapX: gap, gapY: 7 });
}

function packed(width: number, top: number, count: number, pitchX: number, pitchY: number, gap: number): Grid {
  const columns = Math.max(8, Math.floor((width - GUTTER - EDGE) / pitchX / 8) * 8);
  const w = (width - GUTTER - EDGE) / columns - gap;
  const rows = Math.ceil(count / columns);
  const size = pitchX >= 18 ? "medium" : "small";
  return ends({ size, columns, rows, left: GUTTER, top, w, h: pitchY - gap, gapX: gap, gapY: gap });
}

/** The whole pool, as large as fits into about 420 pixels of height. */
export function poolGrid(width: number, top: number, count: number): Grid {
  const tries = [large(width, top, count), packed(width, top, count, 21, 23, 4), packed(width, top, count, 14, 14, 2)];
  for (let pitch = 12; pitch > 3; pitch--) tries.push(packed(width, top, count, pitch, pitch, 1));
  return tries.find((grid) => grid.bottom - grid.top <= TALLEST) ?? tries[tries.length - 1];
}

/** One request's blocks in their own order: one line of large cells, or several of small ones. */
export function stripGrid(width: number, top: number, count: number, like: Grid): Grid {
  const n = Math.max(1, count);
  const room = width - 2 * EDGE;
  const w = Math.min(like.size === "large" ? like.w : 32, (room - 3 * (n - 1)) / n);
  if (w >= 15) return ends({ size: "large", columns: n, rows: 1, left: EDGE, top, w, h: 38, gapX: 3, gapY: 3 });
  const pitch = n <= 160 ? 14 : 10;
  const columns = Math.floor(room / pitch);
  return ends({
    size: "small",
    columns,
    rows: Math.ceil(n / columns),
    left: EDGE,
    top,
    w: room / columns - 1,
    h: pitch - 1,
    gapX: 1,
    gapY: 1,
  });
}

export const spotOf = (grid: Grid, index: number): Spot => ({
  x: grid.left + (index % grid.columns) * (grid.w + grid.gapX),
  y: grid.top + Math.floor(index / grid.columns) * (grid.h + grid.gapY),
});

/** The cell under a point; undefined between cells. */
export function cellAt(grid: Grid, count: number, x: number, y: number): number | undefined {
  const column = Math.floor((x - grid.left + grid.gapX / 2) / (grid.w + grid.gapX));
  const row = Math.floor((y - grid.top + grid.gapY / 2) / (grid.h + grid.gapY));
  const index = row * grid.columns + column;
  return column >= 0 && column < grid.columns && row >= 0 && index < count ? index : undefined;
}

/** Places [from, to) of a block table that hold neighbouring blocks of the pool, upwards or downwards. */
export interface Stretch {
  from: number;
  to: number;
}

export function stretchesOf(table: readonly number[]): Stretch[] {
  const out: Stretch[] = [];
  for (let i = table.lastIndexOf(GONE) + 1; i < table.length; i++) {
    const last = out.at(-1);
    const d = last && table[i] - table[i - 1];
    const goesOn = last && (last.to - last.from === 1 ? Math.abs(d!) === 1 : d === table[i - 1] - table[i - 2]);
    if (goesOn) last.to = i + 1;
    else out.push({ from: i, to: i + 1 });
  }
  return out;
}

/** Cells of one row side by side, as one box: what a ring is drawn around. */
export interface Ring {
  x: number;
  y: number;
  w: number;
  h: number;
}

export function ringsOf(grid: Grid, blocks: Iterable<number>): Ring[] {
  const sorted = [...new Set(blocks)].sort((a, b) => a - b);
  const out: Ring[] = [];
  let last = -2;
  for (const block of sorted) {
    const { x, y } = spotOf(grid, block);
    const ring = out.at(-1);
    if (ring && block === last + 1 && block % grid.columns) ring.w = x + grid.w - ring.x;
    else out.push({ x, y, w: grid.w, h: grid.h });
    last = block;
  }
  return out;
}

/** A wire from the lower edge of the strip to a cell of the pool: down, along a lane of its own, down, in. */
export interface Wire {
  from: number;
  to: Spot;
  /** It comes in from the left side, through the gap between two columns. */
  side: boolean;
  lane: number;
}

/** Wires that go right are laid the later the higher, those that go left the other way round, so that they cross least;
 * no two share a stretch of a lane. */
export function wiresOf(pairs: readonly { from: number; block: number }[], grid: Grid): Wire[] {
  const wires = pairs.map(({ from, block }): Wire => {
    const { x, y } = spotOf(grid, block);
    const side = block >= grid.columns;
    return { from, to: side ? { x: x - grid.gapX / 2, y: y + grid.h / 2 } : { x: x + grid.w / 2, y }, side, lane: 0 };
  });
  const right = wires.filter((w) => w.to.x >= w.from).sort((a, b) => b.from - a.from);
  const left = wires.filter((w) => w.to.x < w.from).sort((a, b) => a.from - b.from);
  const laid: Wire[] = [];
  const ends = (w: Wire) => [Math.min(w.from, w.to.x) - 6, Math.max(w.from, w.to.x) + 6];
  for (const wire of [...right, ...left]) {
    const [a, b] = ends(wire);
    const taken = new Set(laid.filter((w) => ends(w)[0] < b && ends(w)[1] > a).map((w) => w.lane));
    while (taken.has(wire.lane)) wire.lane++;
    laid.push(wire);
  }
  return wires;
}
