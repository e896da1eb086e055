/**
 * What a hidden runtime widget offers to the trace models and views of a page. There are two of them, each with the code
 * of its own pictures: `answers.ts` and `engine.ts`.
 *
 * `createStore(model)` for a trace, `mount(kind, { el, signal }, store)` for each picture. Nothing is kept between calls
 * except the one style element of the page.
 */
import { followTheme, h, paced } from "./dom";
import { makeFarStop } from "./far_stop";
import { type Change, createStore, type Store } from "./store";
import css from "./styles.css";
import type { MakeView } from "./view";

interface Context {
  el: HTMLElement;
  signal?: AbortSignal;
}

function addStyles(): void {
  const known = [...document.head.querySelectorAll("style[data-genai-lab]")];
  if (known.some((style) => style.textContent === css)) return;
  document.head.append(h("style", { "data-genai-lab": "" }, css));
}

function publish(root: HTMLElement, store: Store): void {
  const at = store.selected;
  const place = store.at;
  Object.assign(root.dataset, {
    tokens: String(store.tokens.rows),
    runs: String(store.runs.length),
    status: store.status,
    selected: `${at.run}:${at.token}`,
    kernel: store.kernel,
    steps: String(store.engine.steps),
    at: `${place.step}:${place.request}:${place.block ?? ""}`,
  });
  if (store.ready) root.dataset.ready = "1";
}

/** JupyterLab runs one-letter commands ("d" twice deletes the cell); keys meant for a picture must not reach it. */
function keepKeys(e: KeyboardEvent): void {
  const plain = !e.ctrlKey && !e.metaKey && !e.altKey;
  if (plain && !(e.shiftKey && e.key === "Enter")) e.stopPropagation();
}

export type Kinds = Record<string, MakeView>;

function mount(kinds: Kinds, kind: string, { el, signal }: Context, store: Store): () => void {
  const make = kinds[kind];
  if (!make) throw new Error(`unknown kind of view "${kind}"; there are ${Object.keys(kinds).join(", ")}`);
  addStyles();
  const end = new AbortController();
  signal?.addEventListener("abort", () => end.abort());
  const root = h("div", { class: "gl", "data-kind": kind });
  const view = make({ store, root, signal: end.signal });
  root.append(view.element);
  el.replaceChildren(root);

  const farStop = makeFarStop(root, store, end.signal);
  const show = (change: Parameters<typeof view.draw>[0]) => {
    view.draw(change);
    farStop();
    publish(root, store);
  };
  const later = paced(() => show("data"), end.signal);
  // a notebook may take its pictures off the page, and hides them for a moment while it changes the colours
  let missed = false;
  const themed = () => {
    missed = !root.isConnected;
    if (missed) return;
    show("theme");
    later();
  };
  followTheme(root, themed, end.signal);
  const hear = (change: Change) => {
    const streams = change === "data" && store.status === root.dataset.status; // a beginning or an end is shown at once
    if (streams) later();
    else show(change);
  };
  store.subscribe(hear, end.signal);
  root.addEventListener("keydown", keepKeys, { signal: end.signal });
  let width = root.clientWidth;
  const sizes = new ResizeObserver(() => {
    if (missed) themed();
    else if (root.clientWidth !== width) show("size"); // it grows in height with every line
    width = root.clientWidth;
  });
  sizes.observe(root);
  end.signal.addEventListener("abort", () => {
    sizes.disconnect();
    root.remove();
  });
  show("data");
  return () => end.abort();
}

/** The module of a runtime that has these pictures. */
export const offer = (kinds: Kinds) => ({
  initialize: () => ({
    createStore,
    mount: (kind: string, context: Context, store: Store) => mount(kinds, kind, context, store),
  }),
});
