/**
 * All pictures of a trace under one bar: which run, which token, in words.
 *
 * The bar moves the same selection that every picture reads and writes; it holds nothing of its own.
 */
import { flag, h, refill, say } from "./dom";
import { count, oneLine } from "./format";
import { makePipeline } from "./pipeline";
import { makeRibbon } from "./ribbon";
import { makeTimeline } from "./timeline";
import { nameAt, placeInAnswer, runName, tookWords } from "./tokens";
import type { MakeView, Place, View } from "./view";

const PICTURES = [makeRibbon, makePipeline, makeTimeline];

function makeBar({ store, root, signal }: Place): View {
  const step = (d: number) => store.select(store.selected.run, store.selected.token + d);
  const arrow = (d: number, name: string, sign: string) =>
    h(
      "button",
      { class: "gl-btn gl-step", type: "button", "aria-label": name, title: name, onclick: () => step(d) },
      sign,
    );
  const slider = h("input", { type: "range", class: "gl-rng", min: 0, step: 1, "aria-label": "Token" });
  slider.addEventListener("input", () => store.select(store.selected.run, Number(slider.value)));
  const where = h("div", { class: "gl-where" });
  const runs = h("div", { class: "gl-runs", role: "radiogroup", "aria-label": "Run" });
  const trail = h("div", { class: "gl-trail" });
  const play = h(
    "div",
    { class: "gl-play" },
    arrow(-1, "One token back ( , )", "◂"),
    slider,
    arrow(1, "One token on ( . )", "▸"),
  );
  const element = h("div", { class: "gl-bar", role: "group", "aria-label": "Token and run" }, play, where, runs, trail);

  runs.addEventListener("keydown", (e) => {
    const d = { ArrowRight: 1, ArrowLeft: -1 }[e.key];
    if (!d) return;
    const i = store.runs.findIndex((r) => r.info.run === store.selected.run);
    const next = store.runs[(i + d + store.runs.length) % store.runs.length];
    if (next) store.select(next.info.run, 0);
    runs.querySelector<HTMLElement>("[aria-checked=true]")?.focus();
    e.preventDefault();
    e.stopPropagation();
  });
  const onKey = (e: KeyboardEvent) => {
    if (e.ctrlKey || e.metaKey || e.altKey || (e.key !== "," && e.key !== ".")) return;
    step(e.key === "." ? 1 : -1);
    e.stopPropagation();
  };
  root.addEventListener("keydown", onKey, { signal });

  let known = "";
  const listRuns = (): void => {
    const key = store.runs.map((r) => runName(store, r)).join();
    if (key !== known)
      refill(
        runs,
        ...store.runs.map((r) =>
          h(
            "button",
            {
              class: "gl-btn",
              type: "button",
              role: "radio",
              "data-run": r.info.run,
              onclick: () => store.select(r.info.run, 0),
            },
            runName(store, r),
          ),
        ),
      );
    known = key;
    runs.hidden = store.runs.length < 2;
    for (const b of runs.children as unknown as HTMLElement[]) {
      const on = b.dataset.run === String(store.selected.run);
      flag(b, "aria-checked", on);
      b.tabIndex = on ? 0 : -1;
    }
  };

  return {
    element,
    draw() {
      const at = store.selected;
      const run = store.run(at.run);
      const row = store.rowAt(at);
      element.hidden = row === undefined;
      if (row === undefined || !run) return;
      const n = run.rows.length;
      const place = placeInAnswer(store, at) + 1;
      slider.max = String(n - 1);
      slider.value = String(at.token);
      slider.style.setProperty("--f", `${n > 1 ? (at.token / (n - 1)) * 100 : 0}%`);
      flag(slider, "aria-valuetext", `token ${place} of ${place - at.token - 1 + n}`);
      refill(where, "token ", h("b", {}, count(place)), ` of ${count(place - at.token - 1 + n)}`);
      listRuns();
      const name = oneLine(nameAt(store, at), 32);
      say(trail, [store.doing, `“${name}” ${tookWords(store, row)}`].filter(Boolean).join(" · "));
    },
  };
}

/** The pictures of a trace's answers. A trace that was empty when it was shown may have become an engine's run. */
export const makeWorkbench: MakeView = (place) => {
  const note = h("p", { class: "gl-lead" });
  const views = [makeBar(place), ...PICTURES.map((make) => make(place))];
  return {
    element: h("div", {}, note, ...views.map((v) => v.element)),
    draw: (change) => {
      const engine = place.store.engine.steps > 0;
      note.hidden = !engine;
      say(note, engine ? "This trace holds an engine's run by now. Show it once more to see who is served when." : "");
      for (const view of views) view.draw(change);
    },
  };
};
