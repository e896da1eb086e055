/**
 * What the block map shows after the step that is looked at: where the pool's blocks and the chosen request's own ones
 * stand, and what each of them looks like.
 *
 * Reads the store, returns plain values. Knows nothing about canvases.
 */
import { type Grid, poolGrid, spotOf, stretchesOf, stripGrid, type Wire, wiresOf } from "./blocks_map_layout";
import type { Look } from "./blocks_map_paint";
import { type EngineInk, hueOf } from "./engine_ink";
import { GONE, type Pool } from "./engine_pool";
import { letters } from "./engine_words";
import type { Store } from "./store";

const STRIP_TOP = 20;
const LANE = 5;
/** More stretches than this would be a band of wires: then only the chosen block has one. */
export const MOST_WIRES = 10;

export interface Scene {
  width: number;
  height: number;
  strip: Grid;
  grid: Grid;
  table: readonly number[];
  wires: Wire[];
  lanes: number;
}

/** A slot of a block. */
export interface Slot {
  block: number;
  slot: number;
}

/** Where the token that is looked at lies. */
export function tokenPlace(store: Store): Slot | null {
  const { engine } = store;
  const { step, request } = store.at;
  const token = store.tokenAt(request, step);
  const row = token ? store.rowAt(token) : undefined;
  if (row === undefined || !engine.blockSize) return null;
  const position = store.tokens.get("position", row);
  const block = engine.table(request, step)[Math.floor(position / engine.blockSize)];
  return block === undefined || block === GONE ? null : { block, slot: position % engine.blockSize };
}

/** Where everything stands on a canvas of a width. */
export function layOut(store: Store, width: number): Scene {
  const { engine } = store;
  const { step, request } = store.at;
  const table = engine.table(request, step);
  const size = engine.poolSize;
  const like = poolGrid(width, 0, size);
  const strip = stripGrid(width, STRIP_TOP, table.length, like);
  const stretches = stretchesOf(table);
  const wired = like.size === "large" && strip.size === "large" && stretches.length <= MOST_WIRES;
  const lanes = strip.bottom + 14;
  // room for the lanes is kept even when there are none, so that the pool does not move while steps pass
  const room = like.size === "large" ? 12 + LANE * (MOST_WIRES - 1) : 12;
  const grid = poolGrid(width, Math.max(lanes, STRIP_TOP + 52) + room, size);
  const pairs = stretches.map(({ from, to }) => {
    const [a, b] = [spotOf(strip, from), spotOf(strip, to - 1)];
    return { from: (a.x + b.x + strip.w) / 2, block: table[from] };
  });
  const wires = wired ? wiresOf(pairs, grid) : [];
  return { width, height: Math.ceil(grid.bottom) + 4, strip, grid, table, wires, lanes };
}

/** What a block of the pool looks like. */
export function lookOf(
  store: Store,
  ink: EngineInk,
  pool: Pool,
  id: number,
  evicted: boolean,
  place: Slot | null,
): Look {
  const { engine } = store;
  const holders = pool.holders(id);
  const { request, step } = store.at;
  const owner = holders.includes(request) ? request : holders[0];
  const kept = !holders.length && engine.isKept(step, id);
  return {
    state: holders.length ? "used" : kept ? "cached" : "free",
    hue: owner === undefined ? null : hueOf(ink, owner),
    id: String(id),
    letter: owner === undefined ? "" : letters(owner),
    count: holders.length,
    filled: pool.filled[id],
    blockSize: pool.blockSize,
    holders: holders.length > 1 ? holders.map((r) => hueOf(ink, r)) : [],
    evicted,
    slot: place?.block === id ? place.slot : null,
  };
}

/** Two cells with the same key look the same; made for every block in every step, so a number. */
export function keyOf({ engine }: Store, pool: Pool, id: number, evicted: boolean, slot: number): number {
  const count = pool.counts[id];
  let who = count ? (pool.ownerOf(id) as number) + 2 : Number(engine.isKept(pool.step, id));
  // the holders of a shared block have their own marks, and the chosen one gives its letter
  if (count > 1) for (const r of pool.holders(id)) who = (who * 31 + r) % 65_521;
  return ((who * 4096 + pool.filled[id]) * 256 + Math.min(count, 255)) * 512 + (evicted ? 256 : 0) + (slot + 1);
}
