/**
 * An engine's run as one picture: the playhead, who is served when, where memory lies, and the chosen request's answer.
 *
 * Every part reads and writes the same linked place; this file holds nothing but which request's text is shown.
 */
import { makeBatching } from "./batching";
import { makeBlocksMap } from "./blocks_map";
import { h } from "./dom";
import { makePlayhead } from "./playhead";
import { makeRibbon } from "./ribbon";
import type { Run, Store } from "./store";
import type { MakeView } from "./view";

/** The store as one request's text sees it: its own answers and their branches, and its own selected token. */
export function onlyChosen(store: Store): Store {
  const mine = (): Run[] => {
    const roots = new Set(store.engine.request(store.at.request)?.turns.map((t) => t.run));
    return store.runs.filter((r) => roots.has(store.rootOf(r.info.run)));
  };
  /** No other request's token, and none that is not there yet at the playhead. A branch is made by no step. */
  const selected = () => {
    const { picked } = store;
    const { request, step } = store.at;
    const runs = mine();
    const there = picked && runs.some((r) => r.info.run === picked.run);
    const early = picked && store.engine.turnOfRun(picked.run) && store.stepOfRow(store.rowAt(picked)!) > step;
    if (there && !early) return picked;
    return store.tokenAt(request, step) ?? { run: runs.at(-1)?.info.run ?? -1, token: -1 };
  };
  return new Proxy(store, {
    get(target, name) {
      if (name === "runs") return mine();
      if (name === "selected") return selected();
      // the page cannot stop an engine, so no text of it offers to
      if (name === "running" && !target.can.stop) return undefined;
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === "function" ? value.bind(target) : value;
    },
    set: (target, name, value) => Reflect.set(target, name, value, target),
  });
}

/** Tokens that are not there yet at the playhead, and those in the chosen block. */
function markTokens(store: Store, text: Element): void {
  const { step, block, request } = store.at;
  const { engine } = store;
  const place = block === null ? -1 : engine.table(request, step).indexOf(block);
  const size = engine.blockSize || 1;
  for (const box of text.querySelectorAll<HTMLElement>("[data-run]")) {
    const rows = store.run(Number(box.dataset.run))?.rows ?? [];
    const served = !!engine.turnOfRun(Number(box.dataset.run)); // a branch is no turn: no step makes its tokens
    for (const span of box.querySelectorAll<HTMLElement>(".gl-tk")) {
      const row = rows[Number(span.dataset.i)];
      if (row === undefined) continue;
      const inside = served && place >= 0 && Math.floor(store.tokens.get("position", row) / size) === place;
      span.classList.toggle("gl-inb", inside);
      span.classList.toggle("gl-later", served && store.stepOfRow(row) > step);
    }
  }
}

export const makeEngineBench: MakeView = (place) => {
  const { store } = place;
  const ribbon = makeRibbon({ ...place, store: onlyChosen(store) });
  const views = [makePlayhead(place), makeBatching(place), makeBlocksMap(place), ribbon];
  return {
    element: h("div", {}, ...views.map((v) => v.element)),
    draw(change) {
      for (const view of views) view.draw(change);
      if (store.engine.steps) markTokens(store, ribbon.element);
    },
  };
};
