/**
 * The block map: the pool of the key/value cache as a grid by owner, and the chosen request's own order above it.
 *
 * Joins its parts: blocks_map_layout.ts (where), blocks_map_paint.ts (colour), blocks_map_words.ts (why). A step repaints
 * only the cells that changed; rings and wires lie on a canvas of their own. Writes the linked block and request.
 */
import {
  cellAt,
  type Grid,
  poolGrid,
  ringsOf,
  spotOf,
  stretchesOf,
  stripGrid,
  type Wire,
  wiresOf,
} from "./blocks_map_layout";
import { type Brush, font, type Look, paintBracket, paintCell, paintRing, paintWire } from "./blocks_map_paint";
import { admissionWords, blockWords, plural } from "./blocks_map_words";
import { makeCard } from "./card";
import { h, refill, say } from "./dom";
import { type EngineInk, hueOf, readEngineInk } from "./engine_ink";
import type { Pool } from "./engine_pool";
import { letters } from "./engine_words";
import { count } from "./format";
import { originWords, placeInAnswer } from "./tokens";
import type { MakeView } from "./view";

const STRIP_TOP = 20;
const LANE = 5;
/** More stretches than this would be a band of wires: then only the chosen block has one. */
const MOST_WIRES = 10;

/** One blank canvas of the size of its place, in the screen's pixels. */
function sized(canvas: HTMLCanvasElement, width: number, height: number): Brush | null {
  const g = canvas.getContext("2d");
  if (!g || !width) return null;
  const dpr = devicePixelRatio || 1;
  const [w, hh] = [Math.round(width * dpr), Math.round(height * dpr)];
  if (canvas.width !== w || canvas.height !== hh) Object.assign(canvas, { width: w, height: hh });
  canvas.style.height = `${height}px`;
  g.setTransform(dpr, 0, 0, dpr, 0, 0);
  return g;
}

interface Scene {
  width: number;
  height: number;
  strip: Grid;
  grid: Grid;
  table: readonly number[];
  wires: Wire[];
  lanes: number;
}

export const makeBlocksMap: MakeView = ({ store, root }) => {
  const { engine } = store;
  let ink: EngineInk | null = null;
  let scene: Scene | null = null;
  let hover: number | null = null;
  /** What each cell of the pool was painted as. */
  let painted: number[] = [];
  let paintedFor = "";

  const card = makeCard(() => {
    const { step } = store.at;
    const size = engine.steps ? engine.poolSize : 0;
    return {
      head: ["block", "state", "held by", "filled", "taken over", "last event"],
      numeric: [true, false, false, true, true, false],
      rows: Array.from({ length: size }, (_, id) => {
        const b = engine.block(step, id);
        const state = { free: "free", cached: "free, kept", used: b.holders.length > 1 ? "shared" : "in use" }[b.state];
        const last = b.last ? `${b.last.event} in step ${engine.stepAt(b.last.step).step}` : "";
        const filled = b.filled ? `${b.filled} of ${engine.blockSize}` : "";
        return [id, state, b.holders.map(letters).join(" "), filled, b.hits || "", last];
      }),
    };
  });
  card.element.classList.add("gl-map");
  const legend = h("div", { class: "gl-maplegend" });
  const counts = h("div", { class: "gl-mapcount" });
  const base = h("canvas", { class: "gl-mapbase", "aria-hidden": true });
  const over = h("canvas", { class: "gl-mapover", tabindex: 0, role: "application" });
  const stage = h("div", { class: "gl-mapstage" }, base, over);
  const what = h("div");
  const why = h("div");
  const holds = h("div", { class: "gl-holds" });
  const read = h("div", { class: "gl-read gl-mapread", "aria-live": "polite" }, what, why, holds);
  const empty = h("div", { class: "gl-empty" });
  card.body.append(h("div", { class: "gl-tools" }, legend, counts), stage, read, empty);

  // ---------------------------------------------------------------- what is where

  const active = (): number | null => hover ?? store.at.block;

  const tokenPlace = (): { block: number; slot: number } | null => {
    const { step, request } = store.at;
    const token = store.tokenAt(request, step);
    const row = token ? store.rowAt(token) : undefined;
    if (row === undefined || !engine.blockSize) return null;
    const position = store.tokens.get("position", row);
    const block = engine.table(request, step)[Math.floor(position / engine.blockSize)];
    return block === undefined ? null : { block, slot: position % engine.blockSize };
  };

  const layOut = (width: number): Scene => {
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
  };

  const look = (pool: Pool, id: number, evicted: boolean, place: ReturnType<typeof tokenPlace>): Look => {
    const holders = pool.holders(id);
    const { request, step } = store.at;
    const owner = holders.includes(request) ? request : holders[0];
    const kept = !holders.length && engine.isKept(step, id);
    return {
      state: holders.length ? "used" : kept ? "cached" : "free",
      hue: owner === undefined || !ink ? null : hueOf(ink, owner),
      id: String(id),
      letter: owner === undefined ? "" : letters(owner),
      count: holders.length,
      filled: pool.filled[id],
      blockSize: pool.blockSize,
      holders: holders.length > 1 && ink ? holders.map((r) => hueOf(ink as EngineInk, r)) : [],
      evicted,
      slot: place?.block === id ? place.slot : null,
    };
  };

  /** Two cells with the same key look the same; made for every block in every step, so a number. */
  const keyOf = (pool: Pool, id: number, evicted: boolean, slot: number): number => {
    const count = pool.counts[id];
    let who = count ? (pool.ownerOf(id) as number) + 2 : Number(engine.isKept(pool.step, id));
    // the holders of a shared block have their own marks, and the chosen one gives its letter
    if (count > 1) for (const r of pool.holders(id)) who = (who * 31 + r) % 65_521;
    return ((who * 4096 + pool.filled[id]) * 256 + Math.min(count, 255)) * 512 + (evicted ? 256 : 0) + (slot + 1);
  };

  // ---------------------------------------------------------------- painting

  const paintPool = (g: Brush, s: Scene, colours: EngineInk): void => {
    const { step } = store.at;
    const pool = engine.pool(step);
    const evicted = new Set(engine.evictedBlocks(step));
    const place = tokenPlace();
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
      const key = keyOf(pool, id, gone, place?.block === id ? place.slot : -1);
      if (painted[id] === key) continue;
      const spot = spotOf(grid, id);
      if (painted[id] !== undefined) g.clearRect(spot.x - 1, spot.y - 1, grid.w + 2, grid.h + 2);
      painted[id] = key;
      paintCell(g, colours, grid.size, spot, grid.w, grid.h, look(pool, id, gone, place));
    }
  };

  /** The first block of a row, where there is room for it. */
  const paintRowNames = (g: Brush, grid: Grid, size: number, { tones, ...rest }: EngineInk): void => {
    font(g, { tones, ...rest }, 11);
    g.fillStyle = tones["ink-3"];
    const every = Math.max(1, Math.ceil(15 / (grid.h + grid.gapY)));
    for (let row = 0; row < grid.rows; row += every) {
      const text = count(Math.min(size, row * grid.columns));
      const { y } = spotOf(grid, row * grid.columns);
      g.fillText(text, grid.left - 6 - g.measureText(text).width, y + grid.h / 2 + 4);
    }
  };

  const paintStrip = (g: Brush, s: Scene, colours: EngineInk): void => {
    const { step, request } = store.at;
    const pool = engine.pool(step);
    const { strip, table } = s;
    g.clearRect(0, 0, s.width, s.grid.top - 8);
    const hit = engine.admission(request, step);
    const hits = hit ? Math.floor(hit.cachedTokens / (engine.blockSize || 1)) : 0;
    paintStripTitle(g, s, colours);
    const place = tokenPlace();
    for (let i = 0; i < table.length; i++) {
      const l = look(pool, table[i], false, place);
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
  };

  const paintStripTitle = (g: Brush, s: Scene, colours: EngineInk): void => {
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
    const held = `${plural(s.table.length, "block")}, ${plural(tokens, "token")}`;
    const text = s.table.length
      ? `${held}${hit ? `; under the line: ${plural(hit, "token")} found in the cache` : long ? "; below, where each block lies" : ""}`
      : "holds no block in this step";
    g.fillText(text, w + 10, 11);
  };

  /** Rings around the chosen request's blocks, wires, and the block under the pointer or chosen. */
  const paintOver = (g: Brush, s: Scene, colours: EngineInk): void => {
    const { request } = store.at;
    const { strip, grid, table } = s;
    const small = grid.size === "small";
    g.clearRect(0, 0, s.width, s.height + 4);
    const now = active();
    const edge = hueOf(colours, request).edge;
    stretchesOf(table).forEach(({ from, to }, i) => {
      if (s.wires[i]) paintWire(g, edge, 1, s.wires[i], strip.bottom + (to - from > 1 ? 6 : 0), s.lanes);
    });
    for (const ring of ringsOf(grid, table)) paintRing(g, colours.tones.mark, ring, small ? 1 : 1.5, small ? 0.5 : 2);
    // where there are too many wires to draw, the block of the newest token has one
    const wired = now ?? (s.wires.length ? null : (tokenPlace()?.block ?? table.at(-1) ?? null));
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
    if (now === null || now >= engine.poolSize) return;
    const spot = spotOf(grid, now);
    paintRing(g, colours.tones.surface, { ...spot, w: grid.w, h: grid.h }, 5, 2);
    paintRing(g, colours.tones.mark, { ...spot, w: grid.w, h: grid.h }, small ? 2 : 3, 2);
  };

  let legendInk: EngineInk | null = null; // what it was painted with: a page may be hidden while its theme changes
  const paintLegend = (colours: EngineInk): void => {
    legendInk = colours;
    const hue = hueOf(colours, store.at.request);
    const plain: Look = {
      state: "used",
      hue,
      id: "",
      letter: "",
      count: 1,
      filled: engine.blockSize,
      blockSize: engine.blockSize,
      holders: [],
      evicted: false,
      slot: null,
    };
    const partly = Math.max(1, Math.floor(engine.blockSize * 0.4));
    const kinds: [string, Partial<Look>][] = [
      ["full", {}],
      ["partly filled", { filled: partly }],
      ["shared, × holders", { count: 2 }],
      ["free but kept", { state: "cached" }],
      ["free", { state: "free" }],
      ["evicted just now", { evicted: true }],
    ];
    if (legend.children.length !== kinds.length)
      refill(
        legend,
        ...kinds.map(([words]) => h("span", {}, h("canvas", { width: 1, height: 1, "aria-hidden": true }), words)),
      );
    kinds.forEach(([, more], i) => {
      const g = sized(legend.children[i].querySelector("canvas") as HTMLCanvasElement, 30, 20);
      g?.clearRect(0, 0, 30, 20);
      if (g) paintCell(g, colours, "large", { x: 0, y: 0 }, 30, 20, { ...plain, ...more });
    });
  };

  // ---------------------------------------------------------------- words

  const saySummary = (pool: Pool): void => {
    const { blocksCached, blocksFree, step } = engine.stepAt(store.at.step);
    card.number(
      `${count(pool.used)} of ${count(pool.size)}`,
      pool.saved
        ? `blocks in use in step ${count(step)}; sharing saves ${count(pool.saved)} more`
        : `blocks in use in step ${count(step)}`,
    );
    say(counts, `${count(pool.shared)} shared · ${count(blocksCached)} kept · ${count(blocksFree)} free`);
    const label = `Pool of ${count(pool.size)} blocks after step ${step}: ${pool.used} in use, ${pool.shared} shared, ${blocksCached} kept, ${blocksFree} free. Arrows move, Enter takes the holder, Escape lets go.`;
    over.setAttribute("aria-label", label);
  };

  const sayBlock = (): void => {
    const { step, request } = store.at;
    const table = engine.table(request, step);
    const chosen = active();
    const id = chosen ?? tokenPlace()?.block ?? table.at(-1);
    if (id === undefined || id >= engine.poolSize) {
      const why0 = engine.decision(request, step)?.why ?? "";
      refill(what, h("b", {}, `Request ${letters(request)}`), " holds no block in this step.");
      say(why, why0);
      refill(holds);
      return;
    }
    const words = blockWords(store, step, id, request);
    refill(what, h("b", {}, words.title), `, ${words.what}.`);
    const admitted = chosen === null ? ` ${admissionWords(store, request, step)}` : "";
    say(why, `${words.why}${admitted}`);
    const { token } = words;
    refill(
      holds,
      words.holds && `Holds “${words.holds}” `,
      token &&
        h(
          "button",
          { class: "gl-lnk", type: "button", onclick: () => store.select(token.run, token.token) },
          `go to token ${count(placeInAnswer(store, token) + 1)}`,
        ),
    );
  };

  // ---------------------------------------------------------------- pointer and keys

  const under = (e: MouseEvent): number | null => {
    if (!scene) return null;
    const { left, top } = over.getBoundingClientRect();
    const [x, y] = [e.clientX - left, e.clientY - top];
    const place = cellAt(scene.strip, scene.table.length, x, y);
    if (place !== undefined) return scene.table[place];
    return cellAt(scene.grid, engine.poolSize, x, y) ?? null;
  };
  const preview = (block: number | null) => {
    if (block === hover) return;
    hover = block;
    drawOver();
    sayBlock();
  };
  over.addEventListener("pointermove", (e) => preview(under(e)));
  over.addEventListener("pointerleave", () => preview(null));
  over.addEventListener("click", (e) => {
    const block = under(e);
    if (block === null) return;
    const { holders } = engine.block(store.at.step, block);
    const { request } = store.at;
    store.pick({ block, request: holders.length && !holders.includes(request) ? holders[0] : request });
  });
  over.addEventListener("keydown", (e) => {
    if (!scene) return;
    const { step, block, request } = store.at;
    const from = block ?? tokenPlace()?.block ?? engine.table(request, step)[0] ?? 0;
    const by = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: scene.grid.columns, ArrowUp: -scene.grid.columns }[e.key];
    if (by !== undefined) {
      const to = block === null ? from : from + by;
      if (to >= 0 && to < engine.poolSize) store.pick({ block: to });
    } else if (e.key === "Enter") {
      const { holders } = engine.block(step, from);
      const next = holders[(holders.indexOf(request) + 1) % (holders.length || 1)];
      if (next !== undefined) store.pick({ request: next, block: from });
    } else if (e.key === "Escape" && block !== null) store.pick({ block: null });
    else return;
    e.preventDefault();
    e.stopPropagation();
  });

  // ---------------------------------------------------------------- drawing

  const drawOver = (): void => {
    if (!scene || !ink) return;
    const g = sized(over, scene.width, scene.height);
    if (g) paintOver(g, scene, ink);
  };

  card.title(
    "Where does the memory of each answer live?",
    "What the model has read of a request is kept in blocks. Requests with the same beginning use the same blocks.",
  );
  return {
    element: card.element,
    draw(change) {
      const there = engine.steps > 0 && engine.poolSize > 0;
      for (const part of [stage, read, legend, counts]) part.hidden = !there;
      card.element.classList.toggle("gl-blank", !there);
      empty.hidden = there;
      if (!there) {
        say(empty, store.ready ? "No step of an engine was recorded yet." : "Reading the recording …");
        return;
      }
      if (change === "theme" || !ink) {
        ink = readEngineInk(root);
        painted = [];
        paintedFor = "";
      }
      const width = stage.clientWidth;
      if (!width) return;
      scene = layOut(width);
      if (hover !== null && hover >= engine.poolSize) hover = null;
      const before = base.height;
      const g = sized(base, width, scene.height);
      if (base.height !== before) paintedFor = "";
      if (!g) return;
      paintStrip(g, scene, ink);
      paintPool(g, scene, ink);
      drawOver();
      if (change !== "data" || legendInk !== ink) paintLegend(ink);
      saySummary(engine.pool(store.at.step));
      sayBlock();
      card.caption(
        "measured",
        `${originWords(store)} Whose a block is and what happened to it are the engine's own books after each step; nothing is modelled. Blocks of ${plural(engine.blockSize, "token")}.`,
      );
      card.refreshTable();
    },
  };
};
