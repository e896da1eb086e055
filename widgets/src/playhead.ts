/**
 * The playhead of an engine's run: one step at a time, forth and back, by itself, or to the next step of a kind.
 *
 * One per store, however many pictures show it. It moves the store's linked place and keeps none of its own.
 */
import { flag, h, refill, say } from "./dom";
import { GONE } from "./engine_pool";
import { letters } from "./engine_words";
import { count, oneLine } from "./format";
import { Jumps, KINDS } from "./jumps";
import type { Store } from "./store";
import { nameAt, placeInAnswer } from "./tokens";
import type { MakeView } from "./view";

const STEP_MS = 220;
const CALM_STEP_MS = 500;
const MANY = 16;

export class Playhead {
  playing = false;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private listeners = new Set<() => void>();
  private jumps: Jumps;

  constructor(private store: Store) {
    this.jumps = new Jumps(store.engine);
  }

  listen(listener: () => void, signal: AbortSignal): void {
    this.listeners.add(listener);
    signal.addEventListener("abort", () => {
      this.listeners.delete(listener);
      if (!this.listeners.size) this.pause();
    });
  }

  move(by: number): void {
    this.store.pick({ step: Math.max(0, this.store.at.step + by) });
  }

  toggle(): void {
    if (this.playing) this.pause();
    else this.play();
  }

  play(): void {
    if (this.store.at.step >= this.store.engine.steps - 1) this.store.pick({ step: 0 });
    this.playing = true;
    this.wait();
    this.tell();
  }

  pause(): void {
    clearTimeout(this.timer);
    this.playing = false;
    this.tell();
  }

  /** The next or last step that has something of a kind; undefined when there is none. */
  next(kind: string, by: 1 | -1): number | undefined {
    return this.jumps.next(kind, this.store.at.step, by);
  }

  /** To that step, and to the request or the block that it is about: every picture then explains the same thing. */
  jump(kind: string, by: 1 | -1): void {
    const step = this.next(kind, by);
    if (step === undefined) return;
    this.store.pick({ step, ...this.jumps.whom(kind, step, this.store.at.request) });
  }

  private wait(): void {
    const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.timer = setTimeout(
      () => {
        if (this.store.at.step >= this.store.engine.steps - 1) return this.pause();
        this.move(1);
        this.wait();
      },
      calm ? CALM_STEP_MS : STEP_MS,
    );
  }

  private tell(): void {
    for (const listener of [...this.listeners]) listener();
  }
}

const playheads = new WeakMap<Store, Playhead>();

/** The one playhead of a store. */
export function playheadOf(store: Store): Playhead {
  const known = playheads.get(store);
  if (known) return known;
  const made = new Playhead(store);
  playheads.set(store, made);
  return made;
}

/** A request's mark: its letter on its hue. */
export const ownerMark = (request: number): HTMLElement => {
  const hue = "ABCDEFGH"[request % 8];
  const style = `--c:var(--gl-o${hue});--e:var(--gl-e${hue});--t:var(--gl-t${hue})`;
  return h("span", { class: "gl-own", style }, letters(request));
};

const typing = (target: EventTarget | null): boolean =>
  target instanceof Element && target.matches("input:not([type=range]), select, textarea");

/** The bar: buttons, a slider, jumps, requests, and the linked place in words. */
export const makePlayhead: MakeView = ({ store, root, signal }) => {
  const head = playheadOf(store);
  const button = (name: string, sign: string, act: () => void) =>
    h("button", { class: "gl-btn gl-step", type: "button", "aria-label": name, title: name, onclick: act }, sign);
  const playButton = button("Play (space)", "▶", () => head.toggle());
  const slider = h("input", { type: "range", class: "gl-rng", min: 0, step: 1, "aria-label": "Step" });
  slider.addEventListener("input", () => store.pick({ step: Number(slider.value) }));
  const where = h("div", { class: "gl-where" });
  const kinds = h(
    "select",
    { class: "gl-btn gl-pick", "aria-label": "What to jump to" },
    ...KINDS.map(([kind, words]) => h("option", { value: kind }, words)),
  );
  const ways = ([-1, 1] as const).map((by) => {
    const name = by > 0 ? "Next step with it" : "Last step with it";
    return { by, name, go: button(name, by > 0 ? "▸" : "◂", () => head.jump(kinds.value, by)) };
  });
  const drawJumps = (): void => {
    const word = kinds.selectedOptions[0]?.textContent;
    for (const { by, name, go } of ways) {
      const none = head.next(kinds.value, by) === undefined;
      // a button that is switched off loses the focus, and the keys of the page with it
      if (none && go.matches(":focus")) kinds.focus();
      go.disabled = none;
      flag(go, "title", none ? `no ${by > 0 ? "later" : "earlier"} step has ${word}` : name);
    }
  };
  kinds.addEventListener("change", drawJumps);
  const jumps = h(
    "div",
    { class: "gl-jumps" },
    h("span", { class: "gl-ink2" }, "jump to"),
    ways[0].go,
    kinds,
    ways[1].go,
  );
  const follow = h("button", { class: "gl-btn", type: "button", onclick: () => store.pick({ step: -1 }) }, "Follow");
  const play = h(
    "div",
    { class: "gl-play" },
    button("One step back ( , )", "◂", () => head.move(-1)),
    playButton,
    button("One step on ( . )", "▸", () => head.move(1)),
    slider,
    where,
    follow,
  );
  const requests = h("div", { class: "gl-runs", role: "radiogroup", "aria-label": "Request" });
  const trail = h("div", { class: "gl-trail" });
  const element = h(
    "div",
    { class: "gl-bar gl-playhead", role: "group", "aria-label": "Step and request" },
    play,
    requests,
    jumps,
    trail,
  );

  const choose = (request: number) => store.pick({ request, block: null });
  requests.addEventListener("keydown", (e) => {
    const d = { ArrowRight: 1, ArrowLeft: -1 }[e.key];
    if (!d) return;
    const all = store.engine.requests;
    const i = all.findIndex((r) => r.request === store.at.request);
    choose(all[(i + d + all.length) % all.length].request);
    requests.querySelector<HTMLElement>("[aria-checked=true]")?.focus();
    e.preventDefault();
    e.stopPropagation();
  });
  const onKey = (e: KeyboardEvent) => {
    if (e.ctrlKey || e.metaKey || e.altKey || typing(e.target) || !store.engine.steps) return;
    const byLetter = /^[A-Z]$/.test(e.key) && e.shiftKey ? e.key.charCodeAt(0) - 65 : -1;
    if (e.key === "," || e.key === ".") head.move(e.key === "." ? 1 : -1);
    else if (e.key === " " && !(e.target as Element).matches("button, summary")) head.toggle();
    else if (byLetter >= 0 && store.engine.request(byLetter)) choose(byLetter);
    else return;
    e.preventDefault();
    e.stopPropagation();
  };
  root.addEventListener("keydown", onKey, { signal });

  let known = "";
  const listRequests = (now: number): void => {
    const all = store.engine.requests;
    const key = all.map((r) => `${r.request}`).join();
    if (key !== known) {
      known = key;
      if (all.length <= MANY)
        refill(
          requests,
          ...all.map((r) =>
            h(
              "button",
              {
                class: "gl-ownbtn",
                type: "button",
                role: "radio",
                "data-request": r.request,
                onclick: () => choose(r.request),
              },
              ownerMark(r.request),
            ),
          ),
        );
      else {
        const list = h(
          "select",
          { class: "gl-btn gl-pick", "aria-label": "Request" },
          ...all.map((r) => h("option", { value: r.request }, `${letters(r.request)} · request ${r.request}`)),
        );
        list.addEventListener("change", () => choose(Number(list.value)));
        refill(requests, list);
      }
    }
    const list = requests.querySelector("select");
    if (list) list.value = String(now);
    for (const b of requests.querySelectorAll<HTMLElement>("[role=radio]")) {
      const on = b.dataset.request === String(now);
      flag(b, "aria-checked", on);
      b.tabIndex = on ? 0 : -1;
      const name = Number(b.dataset.request);
      b.title = `${store.engine.request(name)?.label ?? ""} (Shift and ${letters(name)})`;
    }
  };

  const draw = (): void => {
    const { engine } = store;
    element.hidden = !engine.steps;
    if (!engine.steps) return;
    const at = store.at;
    const last = engine.steps - 1;
    slider.max = String(last);
    slider.value = String(at.step);
    slider.style.setProperty("--f", `${last > 0 ? (at.step / last) * 100 : 100}%`);
    const [number, first, final] = [at.step, 0, last].map((i) => count(engine.stepAt(i).step));
    flag(slider, "aria-valuetext", `step ${number} of ${first} to ${final}`);
    refill(
      where,
      "step ",
      h("b", {}, number),
      engine.stepAt(0).step ? ` of ${first} to ${final}` : `, the last is ${final}`,
    );
    const name = head.playing ? "Pause (space)" : "Play (space)";
    flag(playButton, "aria-label", name);
    flag(playButton, "title", name);
    say(playButton, head.playing ? "❚❚" : "▶");
    follow.hidden = !store.running || !store.pickedAt;
    listRequests(at.request);
    drawJumps();
    refill(trail, ...placeWords(store));
  };
  head.listen(draw, signal);
  return { element, draw };
};

const DOING = {
  wait: "waits",
  prefill: "reads its prompt",
  decode: "makes a token",
  preempt: "loses its place",
  reject: "can never run",
  none: "is not at work",
};

/** The linked place: the newest token, the step that made it, the block and slot that hold it. */
function placeWords(store: Store): (string | HTMLElement)[] {
  const { engine, at } = store;
  const link = (words: string, act: () => void) =>
    h("button", { class: "gl-lnk", type: "button", onclick: act }, words);
  const token = store.tokenAt(at.request, at.step);
  const name = letters(at.request);
  const row = token && store.rowAt(token);
  if (!token || row === undefined || row === null) {
    const doing = DOING[engine.decision(at.request, at.step)?.verdict ?? "none"];
    return [`request ${name} ${doing}; no token of it is known yet`];
  }
  const made = store.stepOfRow(row);
  const position = store.tokens.get("position", row);
  const size = engine.blockSize || 1;
  const block = engine.table(at.request, at.step)[Math.floor(position / size)];
  const words = `${count(placeInAnswer(store, token) + 1)} “${oneLine(nameAt(store, token), 24)}”`;
  const parts: (string | HTMLElement)[] = [
    "token ",
    link(words, () => store.select(token.run, token.token)),
    " made in step ",
    link(count(engine.stepAt(made).step), () => store.select(token.run, token.token)),
  ];
  if (block === undefined) return [...parts, ", not in a block yet"];
  if (block === GONE) return [...parts, ", out of the window by now"];
  const slot = (position % size) + 1;
  const verb = position < engine.numTokens(at.request, at.step) ? " is in " : " goes to ";
  return [...parts, verb, link(`block ${count(block)}, slot ${slot}`, () => store.pick({ block }))];
}
