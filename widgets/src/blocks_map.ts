/**
 * The block map: the pool of the key/value cache as a grid by owner, and the chosen request's own order above it.
 *
 * Joins its parts: blocks_map_scene.ts (what is where), blocks_map_draw.ts (painting it), blocks_map_legend.ts and
 * blocks_map_words.ts (why). Rings and wires lie on a canvas of their own. Writes the linked block and request.
 */
import { makePoolPainter, paintOver, paintStrip } from "./blocks_map_draw";
import { cellAt } from "./blocks_map_layout";
import { makeLegend } from "./blocks_map_legend";
import { sized } from "./blocks_map_paint";
import { layOut, type Scene, tokenPlace } from "./blocks_map_scene";
import { admissionWords, blockWords, plural } from "./blocks_map_words";
import { makeCard } from "./card";
import { h, refill, say } from "./dom";
import { type EngineInk, readEngineInk } from "./engine_ink";
import { GONE, type Pool } from "./engine_pool";
import { letters } from "./engine_words";
import { count } from "./format";
import { originWords, placeInAnswer } from "./tokens";
import type { MakeView } from "./view";

export const makeBlocksMap: MakeView = ({ store, root }) => {
  const { engine } = store;
  let ink: EngineInk | null = null;
  let scene: Scene | null = null;
  let hover: number | null = null;

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
  const painter = makePoolPainter(store, root);
  const legend = makeLegend(store);
  const counts = h("div", { class: "gl-mapcount" });
  const base = h("canvas", { class: "gl-mapbase", "aria-hidden": true });
  const over = h("canvas", { class: "gl-mapover", tabindex: 0, role: "application" });
  const stage = h("div", { class: "gl-mapstage" }, base, over);
  const what = h("div");
  const why = h("div");
  const holds = h("div", { class: "gl-holds" });
  const read = h("div", { class: "gl-read gl-mapread", "aria-live": "polite" }, what, why, holds);
  const empty = h("div", { class: "gl-empty" });
  card.body.append(h("div", { class: "gl-tools" }, legend.element, counts), stage, read, empty);

  const active = (): number | null => hover ?? store.at.block;

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
    const id = chosen ?? tokenPlace(store)?.block ?? table.at(-1);
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
    if (place !== undefined) return scene.table[place] === GONE ? null : scene.table[place];
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
    const from = block ?? tokenPlace(store)?.block ?? engine.table(request, step).find((b) => b !== GONE) ?? 0;
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
    if (g) paintOver(g, scene, ink, store, active());
  };

  card.title(
    "Where does the memory of each answer live?",
    "What the model has read of a request is kept in blocks. Requests with the same beginning use the same blocks.",
  );
  return {
    element: card.element,
    draw(change) {
      const there = engine.steps > 0 && engine.poolSize > 0;
      for (const part of [stage, read, legend.element, counts]) part.hidden = !there;
      card.element.classList.toggle("gl-blank", !there);
      empty.hidden = there;
      if (!there) {
        say(empty, store.ready ? "No step of an engine was recorded yet." : "Reading the recording …");
        return;
      }
      if (change === "theme" || !ink) {
        ink = readEngineInk(root);
        painter.forget();
      }
      const width = stage.clientWidth;
      if (!width) return;
      scene = layOut(store, width);
      if (hover !== null && hover >= engine.poolSize) hover = null;
      const before = base.height;
      const g = sized(base, width, scene.height);
      if (base.height !== before) painter.forget();
      if (!g) return;
      paintStrip(g, scene, ink, store);
      painter.paint(g, scene, ink);
      drawOver();
      if (change !== "data" || legend.ink !== ink) legend.paint(ink);
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
