/**
 * The block map's legend: one small block of each kind, in the colours of the request that is looked at.
 *
 * Receives the store and the page's colours. Decides nothing about blocks.
 */
import { type Look, paintCell, sized } from "./blocks_map_paint";
import { h, refill } from "./dom";
import { type EngineInk, hueOf } from "./engine_ink";
import type { Store } from "./store";

export interface Legend {
  element: HTMLElement;
  /** What it was painted with: a page may be hidden while its theme changes. */
  readonly ink: EngineInk | null;
  paint(colours: EngineInk): void;
}

export function makeLegend(store: Store): Legend {
  const { engine } = store;
  const element = h("div", { class: "gl-maplegend" });
  let ink: EngineInk | null = null;
  const paint = (colours: EngineInk): void => {
    ink = colours;
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
    if (element.children.length !== kinds.length)
      refill(
        element,
        ...kinds.map(([words]) => h("span", {}, h("canvas", { width: 1, height: 1, "aria-hidden": true }), words)),
      );
    kinds.forEach(([, more], i) => {
      const g = sized(element.children[i].querySelector("canvas") as HTMLCanvasElement, 30, 20);
      g?.clearRect(0, 0, 30, 20);
      if (g) paintCell(g, colours, "large", { x: 0, y: 0 }, 30, 20, { ...plain, ...more });
    });
  };
  return {
    element,
    get ink() {
      return ink;
    },
    paint,
  };
}
