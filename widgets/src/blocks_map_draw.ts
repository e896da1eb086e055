/**
 * Painting a scene of the block map: the pool, one request's own blocks above it, and what lies over both.
 *
 * Receives a brush, a scene, the page's colours and the store. Of the pool only cells that changed are painted again.
 */
import { type Grid, ringsOf, spotOf, stretchesOf, wiresOf } from "./blocks_map_layout";
import { type Brush, font, paintBracket, paintCell, paintRing, paintWire } from "./blocks_map_paint";
import { keyOf, lookOf, MOST_WIRES, type Scene, tokenPlace } from "./blocks_map_scene";
import { plural } from "./blocks_map_words";
import { type EngineInk, hueOf } from "./engine_ink";
import { GONE } from "./engine_pool";
import { letters } from "./engine_words";
import { count } from "./format";
import type { Store } from "./store";

export interface PoolPainter {
  paint(g: Brush, scene: Scene, colours: EngineInk): void;
  /** The canvas or the colours are new: paint everything. */
  forget(): void;
}

export function makePoolPainter(store: Store, root: HTMLElement): PoolPainter {
  const { engine } = store;
  /** What each cell of the pool was painted as. */
  let painted: number[] = [];
  let paintedFor = "";

  const paint = (g: Brush, s: Scene, colours: EngineInk): void => {
    const { step } = store.at;
    const pool = engine.pool(step);
    const evicted = new Set(engine.evictedBlocks(step));
    const place = tokenPlace(store);
    const { grid } = s;
    const whole = `${s.width}/${grid.top}/${grid.size}/${pool.size}/${root.dataset.theme}/${devicePixelRatio}`;
    if (whole !== paintedFor) {
      painted = [];
      paintedFor = whole;
      g.clearRect(0, grid.top - 8, s.width, s.height);
      if (grid.size !== "large") paintRowNames(g, grid, pool.size, colours);
    }
    for (let id = 0; id < pool.size; id++) {
      const gone = evicted.has(id);
      const key = keyOf(store, pool, id, gone, place?.block === id ? place.slot : -1);
      if (painted[id] === key) continue;
      const spot = spotOf(grid, id);
      if (painted[id] !== undefined) g.clearRect(spot.x - 1, spot.y - 1, grid.w + 2, grid.h + 2);
      painted[id] = key;
      paintCell(g, colours, grid.size, spot, grid.w, grid.h, lookOf(store, colours, pool, id, gone, place));
    }
  };

  return {
    paint,
    forget() {
      paintedFor = "";
    },
  };
}

/** The first block of a row, where there is room for it. */
function paintRowNames(g: Brush, grid: Grid, size: number, colours: EngineInk): void {
  font(g, colours, 11);
  g.fillStyle = colours.tones["ink-3"];
  const every = Math.max(1, Math.ceil(15 / (grid.h + grid.gapY)));
  for (let row = 0; row < grid.rows; row += every) {
    const text = count(Math.min(size, row * grid.columns));
    const { y } = spotOf(grid, row * grid.columns);
    g.fillText(text, grid.left - 6 - g.measureText(text).width, y + grid.h / 2 + 4);
  }
}

/** The chosen request's blocks, with what of them was found in the cache underlined. */
export function paintStrip(g: Brush, s: Scene, colours: EngineInk, store: Store): void {
  const { engine } = store;
  const { step, request } = store.at;
  const pool = engine.pool(step);
  const { strip, table } = s;
  g.clearRect(0, 0, s.width, s.grid.top - 8);
  const hit = engine.admission(request, step);
  const hits = hit ? Math.floor(hit.cachedTokens / (engine.blockSize || 1)) : 0;
  paintStripTitle(g, s, colours, store);
  const place = tokenPlace(store);
  const gone = table.lastIndexOf(GONE) + 1;
  g.fillStyle = colours.tones["ink-3"];
  for (let i = 0; i < gone; i++) {
    const { x, y } = spotOf(strip, i);
    g.fillRect(x + strip.w / 4, y + strip.h / 2, strip.w / 2, 1);
  }
  for (let i = gone; i < table.length; i++) {
    const l = lookOf(store, colours, pool, table[i], false, place);
    const own = Math.min(pool.blockSize, Math.max(0, engine.numTokens(request, step) - i * pool.blockSize));
    const shown = { ...l, letter: "", filled: own, hue: hueOf(colours, request), holders: [] };
    paintCell(g, colours, strip.size, spotOf(strip, i), strip.w, strip.h, shown);
  }
  if (hits) {
    const last = spotOf(strip, Math.min(hits, strip.columns) - 1);
    g.fillStyle = colours.tones.ink;
    g.fillRect(strip.left, strip.top - 3.5, last.x + strip.w - strip.left, 1.5);
  }
  if (!s.wires.length) return;
  stretchesOf(table).forEach(({ from, to }) => {
    if (to - from < 2) return;
    const [a, b] = [spotOf(strip, from), spotOf(strip, to - 1)];
    paintBracket(g, hueOf(colours, request).edge, a.x, b.x + strip.w - a.x, strip.bottom + 6, 3);
  });
}

function paintStripTitle(g: Brush, s: Scene, colours: EngineInk, store: Store): void {
  const { engine } = store;
  const { step, request } = store.at;
  const name = `Request ${letters(request)} in its own order`;
  font(g, colours, 11, 650);
  g.fillStyle = colours.tones.ink;
  g.fillText(name, 0, 11);
  const w = g.measureText(name).width;
  font(g, colours, 11);
  g.fillStyle = colours.tones["ink-2"];
  const tokens = engine.numTokens(request, step);
  const hit = engine.admission(request, step)?.cachedTokens ?? 0;
  const long = s.width > 640;
  const gone = s.table.lastIndexOf(GONE) + 1;
  const left = gone ? `, ${plural(gone, "block")} fell out of its window` : "";
  const held = `${plural(s.table.length - gone, "block")}, ${plural(tokens, "token")}${left}`;
  const text = s.table.length
    ? `${held}${hit ? `; under the line: ${plural(hit, "token")} found in the cache` : long ? "; below, where each block lies" : ""}`
    : "holds no block in this step";
  g.fillText(text, w + 10, 11);
}

/** Rings around the chosen request's blocks, wires, and the block `now` under the pointer or chosen. */
export function paintOver(g: Brush, s: Scene, colours: EngineInk, store: Store, now: number | null): void {
  const { request } = store.at;
  const { strip, grid, table } = s;
  const small = grid.size === "small";
  g.clearRect(0, 0, s.width, s.height + 4);
  const edge = hueOf(colours, request).edge;
  stretchesOf(table).forEach(({ from, to }, i) => {
    if (s.wires[i]) paintWire(g, edge, 1, s.wires[i], strip.bottom + (to - from > 1 ? 6 : 0), s.lanes);
  });
  for (const ring of ringsOf(grid, table.slice(table.lastIndexOf(GONE) + 1)))
    paintRing(g, colours.tones.mark, ring, small ? 1 : 1.5, small ? 0.5 : 2);
  // where there are too many wires to draw, the block of the newest token has one
  const wired = now ?? (s.wires.length ? null : (tokenPlace(store)?.block ?? table.at(-1) ?? null));
  const place = wired === null ? -1 : table.indexOf(wired);
  if (place >= 0 && wired !== null) {
    const spot = spotOf(strip, place);
    const [wire] = wiresOf([{ from: spot.x + strip.w / 2, block: wired }], grid);
    const lane = Math.min(MOST_WIRES, Math.max(0, ...s.wires.map((w) => w.lane + 1)));
    // with a light seam, so that it stays readable over small cells
    const own = { ...wire, lane: s.wires.length ? lane : 0 };
    paintWire(g, colours.tones.surface, 4, own, spot.y + strip.h, s.lanes);
    paintWire(g, now === null ? edge : colours.tones.mark, now === null ? 1 : 2, own, spot.y + strip.h, s.lanes);
    if (now !== null) paintRing(g, colours.tones.mark, { ...spot, w: strip.w, h: strip.h }, 2, 1);
  }
  if (now === null || now >= store.engine.poolSize) return;
  const spot = spotOf(grid, now);
  paintRing(g, colours.tones.surface, { ...spot, w: grid.w, h: grid.h }, 5, 2);
  paintRing(g, colours.tones.mark, { ...spot, w: grid.w, h: grid.h }, small ? 2 : 3, 2);
}
