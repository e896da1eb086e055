/**
 * The token ribbon: the answer and its branches as text, tinted by how sure, how doubtful or how slow each token was.
 *
 * Appends what is new and touches nothing else while text streams in. Every branch stands in a box of its own, in the order
 * of the tree, and can be branched again.
 */
import { choice, makeCard } from "./card";
import { flag, h, refill, say } from "./dom";
import { count, oneLine, percent, time } from "./format";
import { makePin } from "./pin";
import { RunBox } from "./run_box";
import type { Run, Store } from "./store";
import { HEADS, TINTS, Tint } from "./tint";
import {
  isAgain,
  LATENCY_WORDS,
  nameAt,
  ORIGINS,
  originOf,
  originWords,
  placeInAnswer,
  settingsWords,
  tookMs,
} from "./tokens";
import type { Selection } from "./types";
import type { MakeView } from "./view";

/** Children after their parents, depth first, in the order they were made; runs under a closed one are left out. */
export function treeOrder(store: Pick<Store, "runs">, closed: ReadonlySet<number>): { run: Run; depth: number }[] {
  const out: { run: Run; depth: number }[] = [];
  const visit = (run: Run, depth: number) => {
    if (closed.has(run.info.run)) return;
    out.push({ run, depth });
    for (const child of store.runs) if (child.info.parent === run.info.run) visit(child, depth + 1);
  };
  for (const run of store.runs) if (run.info.parent === null) visit(run, 0);
  return out;
}

/** What a screen reader hears when the newest answer is over. */
function outcome(status: string): string {
  if (status === "failed") return "the answer failed";
  return status === "stopped" ? "the answer was stopped" : "the answer is complete";
}

/** Why there is no answer to show. */
export function emptyWords(store: Pick<Store, "ready" | "can" | "kernel">): string {
  if (!store.ready) return "Reading the recording …";
  if (store.kernel === "present" && store.can.stop)
    return "Waiting to begin: for the answer before it, or for the model to load.";
  return "No answer has been recorded (beam search keeps none). Generate something inside “with genai_lab.record() as trace:” and show the trace again.";
}

/** All numbers of a run's tokens, for the table. */
function tokenSheet(store: Store, run: Run | undefined) {
  const get = (column: string, row: number) => store.tokens.get(column, row);
  return {
    head: ["token (from 1)", "index (from 0)", "text", "probability", "rank", "entropy", "time"],
    numeric: [true, true, false, true, true, true, true],
    rows: (run?.rows ?? []).map((row, i) => [
      placeInAnswer(store, { run: run?.info.run ?? 0, token: i }) + 1,
      store.indexAt({ run: run?.info.run ?? 0, token: i }),
      nameAt(store, { run: run?.info.run ?? 0, token: i }),
      percent(get("prob", row)),
      count(get("rank", row)),
      `${get("entropy", row).toFixed(2)} bits`,
      time(tookMs(store, row)),
    ]),
  };
}

/** What the signs between the words mean. */
function glyphWords(spaces: boolean, parts: boolean, speculated: boolean, steps: boolean): string {
  const signs = spaces ? ["· is a space, ↵ a line end"] : [];
  if (parts) signs.push("1/3 is the first of three tokens that make up one character");
  if (speculated)
    signs.push("above a token: • proposed and accepted, × instead of a rejected proposal, + behind accepted ones");
  signs.push("the line under a token is the longer, the bluer the token is");
  if (steps) signs.push("grey ones are not there yet at the playhead");
  return `${signs.join("; ")}.`;
}

export const makeRibbon: MakeView = ({ store, root, signal }) => {
  const tint = new Tint(store);
  let spaces = true;
  let hovered: Selection | null = null;
  let layout = "";
  const closed = new Set<number>();
  const boxes = new Map<number, RunBox>();

  const card = makeCard(() => tokenSheet(store, store.run(store.selected.run)));
  const [tints, showTint] = choice("Tint by", TINTS, (kind) => {
    tint.kind = kind;
    draw();
  });
  const legend = h("span", { class: "gl-legend" });
  const glyphs = h("div", { class: "gl-words" });
  const spacesButton = h("button", { class: "gl-btn gl-tog", type: "button" }, "Spaces");
  const stopButton = h("button", { class: "gl-btn gl-stop", type: "button", "data-action": "stop" }, "Stop");
  const text = h("div", { class: "gl-text" });
  const closedNote = h("div", { class: "gl-closed" });
  const live = h("div", { class: "gl-sr", "aria-live": "polite" });
  const empty = h("div", { class: "gl-empty" });
  const pin = makePin(store, () => focusToken(store.selected));
  const tools = h(
    "div",
    { class: "gl-tools" },
    tints,
    h("div", { class: "gl-right" }, legend, spacesButton, stopButton),
  );
  card.body.append(tools, text, closedNote, glyphs, empty, pin.element, live);

  // ---------------------------------------------------------------- runs on the page

  const paint = (span: HTMLElement, row: number, run: Run): void =>
    span.style.setProperty("--w", `${tint.of(row, run) * 100}%`);

  const boxOf = (run: Run): RunBox => {
    const box = boxes.get(run.info.run) ?? new RunBox(store, run, () => closeBranch(run));
    boxes.set(run.info.run, box);
    return box;
  };

  const arrange = (): void => {
    const order = treeOrder(store, closed);
    const key = order.map(({ run, depth }) => `${run.info.run}/${depth}`).join();
    for (const { run } of order) {
      boxOf(run).update(paint);
    }
    if (key === layout) return;
    layout = key;
    const focus = document.activeElement;
    refill(
      text,
      ...order.map(({ run, depth }) => {
        const { element } = boxOf(run);
        element.style.setProperty("--depth", String(Math.min(3, Math.max(0, depth - 1))));
        return element;
      }),
    );
    if (focus instanceof HTMLElement && text.contains(focus)) focus.focus();
    const n = closed.size;
    const agains = [...closed].filter((id) => isAgain(store.run(id)!)).length;
    const one = agains === n ? "more answer" : agains ? "branch or answer" : "branch";
    const many = agains === n ? "more answers" : agains ? "branches or answers" : "branches";
    refill(
      closedNote,
      n > 0 && `${n} ${n === 1 ? one : many} closed `,
      n > 0 &&
        h(
          "button",
          { class: "gl-lnk", type: "button", onclick: () => reopen() },
          n === 1 ? "show it again" : "show them again",
        ),
    );
  };

  const reopen = () => {
    closed.clear();
    draw();
  };

  const closeBranch = (run: Run): void => {
    closed.add(run.info.run);
    const parent = run.info.parent === null ? undefined : store.run(run.info.parent);
    if (parent && hidden(store.selected.run))
      store.select(parent.info.run, (run.info.fork ?? 0) - store.firstIndex(parent));
    draw();
    focusToken(store.selected);
  };

  /** Whether a run or one that it hangs on is closed. */
  const hidden = (id: number): boolean => {
    const parent = store.run(id)?.info.parent;
    return closed.has(id) || (parent !== null && parent !== undefined && hidden(parent));
  };

  /** A pick inside a closed branch, made in another picture, opens it again. */
  const openSelected = (at: Selection): void => {
    for (let run = store.run(at.run); run; run = run.info.parent === null ? undefined : store.run(run.info.parent))
      closed.delete(run.info.run);
  };

  let painted = "";
  const repaint = (): void => {
    const key = tint.fit();
    if (key === painted) return;
    painted = key;
    for (const { spans, run } of boxes.values()) for (const [i, span] of spans.entries()) paint(span, run.rows[i], run);
    const [low, high] = tint.legend;
    refill(legend, h("span", {}, low), h("i"), h("span", {}, high));
  };

  // ---------------------------------------------------------------- selection

  let marked: HTMLElement | null = null;
  const mark = (at: Selection): void => {
    const span = boxes.get(at.run)?.spans[at.token] ?? null;
    if (span === marked) return;
    marked?.classList.remove("gl-on");
    if (marked) {
      marked.tabIndex = -1;
      flag(marked, "aria-selected", false);
      marked.removeAttribute("aria-label");
    }
    marked = span;
    if (!span) return;
    span.classList.add("gl-on");
    span.tabIndex = 0;
    flag(span, "aria-selected", true);
    const row = store.rowAt(at)!;
    const name = oneLine(nameAt(store, at), 32);
    const origin = ORIGINS[originOf(store, row)];
    flag(
      span,
      "aria-label",
      `token ${placeInAnswer(store, at) + 1}, ${name}, ${percent(store.tokens.get("prob", row))}${origin && `, ${origin}`}`,
    );
  };

  const focusToken = (at: Selection): void => boxes.get(at.run)?.spans[at.token]?.focus();

  const placeOf = (target: EventTarget | null): Selection | null => {
    const span = (target as Element | null)?.closest<HTMLElement>(".gl-tk");
    const run = span?.closest<HTMLElement>("[data-run]")?.dataset.run;
    return span && run !== undefined ? { run: Number(run), token: Number(span.dataset.i) } : null;
  };

  text.addEventListener("click", (e) => {
    const at = placeOf(e.target);
    if (at) store.select(at.run, at.token);
  });
  text.addEventListener("mouseover", (e) => {
    hovered = placeOf(e.target);
    pin.show(hovered ?? store.selected, !!hovered);
  });
  text.addEventListener("mouseleave", () => {
    hovered = null;
    pin.show(store.selected, false);
  });
  text.addEventListener("keydown", (e) => {
    const at = placeOf(e.target);
    if (!at) return;
    const run = store.run(at.run);
    const to = { ArrowRight: at.token + 1, ArrowLeft: at.token - 1, Home: 0, End: Number.MAX_SAFE_INTEGER }[e.key];
    if (to !== undefined) {
      store.select(at.run, to);
      focusToken(store.selected);
    } else if (e.key === "ArrowDown" || e.key === "Enter") {
      store.select(at.run, at.token);
      pin.focus();
    } else if (e.key === "Escape" && run && run.info.parent !== null) closeBranch(run);
    else return;
    e.preventDefault();
    e.stopPropagation();
  });
  spacesButton.addEventListener("click", () => {
    spaces = !spaces;
    draw();
  });
  stopButton.addEventListener("click", () => {
    store.stop();
    draw();
  });

  // ---------------------------------------------------------------- drawing

  const caption = (run: Run | undefined): void => {
    const how = run ? ` Tokens were picked by ${settingsWords(run.info.settings)}.` : "";
    const what = tint.kind === "latency" ? ` ${LATENCY_WORDS}` : " Probabilities are those of the model itself.";
    card.caption(
      "measured",
      `${originWords(store)}${how}${what}${tint.remark} Pictures count tokens from 1, trace.tokens() from 0 (index).`,
    );
  };

  const controls = (): void => {
    showTint(tint.kind);
    flag(spacesButton, "aria-pressed", spaces);
    text.classList.toggle("gl-nows", !spaces);
    stopButton.hidden = !store.running;
    const stopping = store.stopping;
    say(stopButton, stopping ? "Stopping …" : "Stop");
    const gone = store.kernel === "absent";
    stopButton.disabled = stopping || gone;
    stopButton.title = gone ? "No running notebook answers, so there is nothing to stop." : "";
    const last = store.runs.at(-1);
    say(live, store.doing || (last && !store.running ? outcome(last.info.status) : ""));
  };

  const draw = (): void => {
    const at = store.selected;
    openSelected(at);
    repaint();
    arrange();
    mark(at);
    controls();
    const run = store.run(at.run);
    card.title(...HEADS[tint.kind]);
    card.number(...tint.headline(run));
    caption(run);
    empty.hidden = store.runs.length > 0;
    card.element.classList.toggle("gl-blank", !empty.hidden);
    tools.hidden = !store.runs.length;
    glyphs.hidden = tools.hidden;
    const has = (what: string, where: Element = text) => !!where.querySelector(what);
    say(glyphs, glyphWords(spaces, has(".gl-part"), has("[data-o]"), has(".gl-playhead", root)));
    if (!empty.hidden) {
      say(empty, store.error ? `This recording cannot be shown: ${store.error}.` : emptyWords(store));
    }
    pin.show(hovered ?? at, !!hovered);
    card.refreshTable();
  };

  const onEscape = (e: KeyboardEvent) => {
    const run = store.run(store.selected.run);
    if (e.key !== "Escape" || !run || run.info.parent === null) return;
    closeBranch(run);
    e.stopPropagation();
  };
  root.addEventListener("keydown", onEscape, { signal });
  return { element: card.element, draw };
};
