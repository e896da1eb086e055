/**
 * Stop within reach: while an answer is written and its own Stop button is out of sight, another one floats over the page.
 *
 * Receives the root of a picture that has a Stop button. Running a notebook to its end scrolls to the last cell, away from it.
 */
import { h, say } from "./dom";
import { oneLine } from "./format";
import type { Store } from "./store";

const BOX: Partial<CSSStyleDeclaration> = {
  position: "fixed",
  right: "28px",
  bottom: "40px",
  zIndex: "1000",
  display: "flex",
  gap: "12px",
  alignItems: "center",
  padding: "8px 12px",
  margin: "0",
  containerType: "normal",
  borderRadius: "8px",
  border: "1px solid var(--gl-line)",
  background: "var(--gl-surface)",
  boxShadow: "0 2px 10px rgb(0 0 0 / 0.25)",
};

/** Returns what brings it up to date. */
export function makeFarStop(root: HTMLElement, store: Store, signal: AbortSignal): () => void {
  const words = h("span");
  const stop = h(
    "button",
    { class: "gl-btn gl-stop", type: "button", "data-action": "far-stop", onclick: () => store.stop() },
    "Stop",
  );
  const look = h(
    "button",
    { class: "gl-btn", type: "button", onclick: () => root.scrollIntoView({ block: "start" }) },
    "Show it",
  );
  const box = h("div", { class: "gl", role: "group", "aria-label": "The answer being written" }, words, look, stop);
  Object.assign(box.style, BOX);

  const draw = (): void => {
    const run = store.running;
    // a notebook in a tab behind another one has its pictures, but they are not displayed
    const shown = root.isConnected && root.checkVisibility();
    const other = document.querySelector("[data-action=far-stop]");
    const near = root.querySelector("[data-action=stop]"); // pictures are made when there is something to show
    const place = near?.getBoundingClientRect();
    const inSight = !place || (place.bottom > 0 && place.top < window.innerHeight);
    if (!run || inSight || !shown || store.kernel !== "present" || (other && other !== stop)) {
      box.remove();
      return;
    }
    box.dataset.theme = root.dataset.theme ?? "";
    say(words, `Writing: ${oneLine(run.info.question, 40)}`);
    say(stop, store.stopping ? "Stopping …" : "Stop");
    stop.disabled = store.stopping;
    if (!box.isConnected) document.body.append(box);
  };
  const passed = () => draw();
  document.addEventListener("scroll", passed, { capture: true, passive: true, signal });
  signal.addEventListener("abort", () => box.remove());
  return draw;
}
