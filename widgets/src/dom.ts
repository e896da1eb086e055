/**
 * Small helpers for building pages by hand: elements, drawing once a frame, following the notebook's light or dark.
 *
 * Text only ever enters the page as text. Knows nothing about traces.
 */

const PAUSE_MS = 33;
const NO_FRAME_MS = 200;

type Child = Node | string | null | undefined | false;
type Attributes = Record<string, string | number | boolean | null | undefined | ((e: never) => void)>;

/** An element; `on…` attributes become listeners, true/false become "true"/"false", null leaves the attribute out. */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined) continue;
    if (typeof value === "function") element.addEventListener(name.slice(2), value as unknown as EventListener);
    else if (name === "class") element.className = String(value);
    else if (name === "style") element.style.cssText = String(value);
    else element.setAttribute(name, String(value));
  }
  put(element, ...children);
  return element;
}

export const put = (element: Element, ...children: Child[]): void =>
  element.append(...children.filter((c): c is Node | string => c !== null && c !== undefined && c !== false));

export function refill(element: Element, ...children: Child[]): void {
  element.replaceChildren();
  put(element, ...children);
}

/** Writes only what differs, so that nothing is laid out or read aloud again for no reason. */
export function say(element: Element, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}

/** `true`/`false` attribute only when it changes. */
export function flag(element: Element, name: string, value: boolean | string): void {
  const text = String(value);
  if (element.getAttribute(name) !== text) element.setAttribute(name, text);
}

/**
 * Calls `draw` soon, at most 30 times a second, and on a slow page so seldom that half of its time is left for hearing
 * and answering. A page that is out of sight gets no frames, so it does not wait for one for ever.
 */
export function paced(draw: () => void, signal: AbortSignal): () => void {
  let waiting = false;
  let earliest = 0;
  let [soon, late, frame] = [0, 0, 0];
  const go = () => {
    clearTimeout(soon);
    clearTimeout(late);
    cancelAnimationFrame(frame);
    waiting = false;
    if (signal.aborted) return;
    const began = performance.now();
    const rest = () => {
      const now = performance.now();
      earliest = now + Math.max(PAUSE_MS, now - began);
    };
    draw();
    rest();
    setTimeout(rest); // once more when the browser has laid it out and painted it: most of the work
  };
  return () => {
    if (waiting) return;
    waiting = true;
    const rest = Math.max(0, earliest - performance.now());
    soon = window.setTimeout(() => {
      frame = requestAnimationFrame(go);
    }, rest);
    late = window.setTimeout(go, rest + NO_FRAME_MS);
  };
}

/** Sets `data-theme` from the notebook's own switch, else from the system, and keeps following it. */
export function followTheme(root: HTMLElement, changed: () => void, signal: AbortSignal): void {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const apply = () => {
    const { jpThemeLight, vscodeThemeKind } = document.body.dataset;
    const notebook = jpThemeLight
      ? jpThemeLight === "false"
      : vscodeThemeKind && /dark|contrast$/.test(vscodeThemeKind);
    const dark = jpThemeLight || vscodeThemeKind ? notebook : system.matches;
    const theme = dark ? "dark" : "light";
    if (root.dataset.theme === theme) return;
    root.dataset.theme = theme;
    changed();
  };
  const observer = new MutationObserver(apply);
  observer.observe(document.body, {
    attributes: true,
    attributeFilter: ["data-jp-theme-light", "data-vscode-theme-kind"],
  });
  system.addEventListener("change", apply, { signal });
  signal.addEventListener("abort", () => observer.disconnect());
  apply();
}

/** An id for aria references; only its being different matters. */
export const freshId = (): string => `gl-${Math.random().toString(36).slice(2, 10)}`;
