/**
 * The token ribbon: the answer and its branches as text, tinted by how sure, how doubtful or how slow each token was.
 *
 * Appends what is new and touches nothing else while text streams in. Every branch stands in a box of its own, in the order
 * of the tree, and can be branched again.
 */
import { endsBlock, share } from "./blocks";
import { choice, makeCard } from "./card";
import { flag, h, refill, say } from "./dom";
import { candidates, count, median, oneLine, percent, quantile, time } from "./format";
import { makePin } from "./pin";
import type { Run, Store } from "./store";
import {
  branchTitle,
  brief,
  originWords,
  placeInAnswer,
  runName,
  settingsWords,
  textBefore,
  tokenSpan,
  tookMs,
  word,
} from "./tokens";
import type { Selection } from "./types";
import type { MakeView } from "./view";

type Tint = "probability" | "entropy" | "latency";

const TINTS = [
  ["probability", "Probability"],
  ["entropy", "Entropy"],
  ["latency", "Latency"],
] as const;

const HEADS: Record<Tint, [string, string]> = {
  probability: [
    "How sure was the model of each token?",
    "A model writes in tokens, pieces of words. The bluer a token, the more likely the model found it.",
  ],
  entropy: [
    "How much did the model hesitate at each token?",
    "The bluer a token, the more candidates were close to each other before one was chosen.",
  ],
  latency: [
    "How long did each token take?",
    "The bluer a token, the longer it took to make, compared with the others of this trace.",
  ],
};

/** One run on the page. */
interface Box {
  run: Run;
  element: HTMLElement;
  title: HTMLElement;
  list: HTMLElement;
  end: HTMLElement;
  spans: HTMLElement[];
  block: HTMLElement | null;
  blockSize: number;
}

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

export const makeRibbon: MakeView = ({ store, root, signal }) => {
  let tint: Tint = "probability";
  let spaces = true;
  let hovered: Selection | null = null;
  let scale: [number, number] = [0, 1];
  let layout = "";
  const closed = new Set<number>();
  const boxes = new Map<number, Box>();

  const card = makeCard(() => {
    const run = store.run(store.selected.run);
    const get = (c: string, row: number) => store.tokens.get(c, row);
    return {
      head: ["token", "text", "probability", "rank", "entropy", "time"],
      numeric: [true, false, true, true, true, true],
      rows: (run?.rows ?? []).map((row, i) => [
        i + 1,
        word(store, get("token", row)),
        percent(get("prob", row)),
        count(get("rank", row)),
        `${get("entropy", row).toFixed(2)} bits`,
        time(tookMs(store, row)),
      ]),
    };
  });
  const [tints, showTint] = choice("Tint by", TINTS, (value) => {
    tint = value;
    draw();
  });
  const legend = h("span", { class: "gl-legend" });
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
  card.body.append(tools, text, closedNote, empty, pin.element, live);

  // ---------------------------------------------------------------- runs on the page

  const makeBox = (run: Run): Box => {
    const branch = run.info.parent !== null;
    const title = h("span");
    const close = h("button", { class: "gl-btn", type: "button", onclick: () => closeBranch(run) }, "Close");
    const list = h("div", { class: "gl-rib", role: "listbox", "aria-orientation": "horizontal" });
    const end = h("div", { class: "gl-end" });
    const head = branch
      ? h("div", { class: "gl-h" }, title, close)
      : h("div", { class: "gl-ask" }, h("span", {}, "Asked:"), title);
    const element = h("div", { class: branch ? "gl-branch" : "gl-run", "data-run": run.info.run }, head, list, end);
    const box = { run, element, title, list, end, spans: [], block: null, blockSize: 0 };
    boxes.set(run.info.run, box);
    return box;
  };

  const newBlock = (box: Box): HTMLElement => {
    box.block = h("div", { class: "gl-block", role: "presentation" });
    box.blockSize = 0;
    box.list.append(box.block);
    if (!box.spans.length && box.run.info.parent !== null) {
      const before = textBefore(store, { run: box.run.info.run, token: 0 }, 7);
      const cached = box.run.info.cached_tokens;
      box.block.append(
        h(
          "span",
          { class: "gl-dim", "aria-hidden": true, title: cached ? `${cached} tokens came from the cache` : "" },
          before,
        ),
      );
    }
    return box.block;
  };

  const append = (box: Box): void => {
    const { run, spans } = box;
    for (let i = spans.length; i < run.rows.length; i++) {
      const id = store.tokens.get("token", run.rows[i]);
      const raw = store.text(id);
      const block = box.block ?? newBlock(box);
      const span = tokenSpan(store, id);
      flag(span, "role", "option");
      flag(span, "aria-selected", false);
      span.tabIndex = -1;
      span.dataset.i = String(i);
      if (i === 0 && run.info.forced !== null) span.classList.add("gl-forced");
      if (/^ /.test(raw) || store.special(id)) block.append(h("wbr"));
      block.append(span);
      spans.push(span);
      paint(span, run.rows[i], run);
      if (endsBlock(++box.blockSize, raw)) box.block = null;
      else if (raw.includes("\n")) block.append(h("br"));
    }
  };

  const describe = (box: Box): void => {
    const { info, rows } = box.run;
    const branch = info.parent !== null;
    say(box.title, branch ? branchTitle(store, box.run) : oneLine(info.question || info.prompt_text, 150));
    flag(box.list, "aria-label", `${runName(store, box.run)}, token by token`);
    const running = info.status === "running";
    box.element.classList.toggle("gl-running", running);
    const last = rows.at(-1);
    const told = last !== undefined && store.special(store.tokens.get("token", last));
    const tokens = `${count(rows.length)} ${rows.length === 1 ? "token" : "tokens"}`;
    say(
      box.end,
      info.status === "failed"
        ? `Failed: ${info.error ?? "no reason was given"}`
        : running
          ? rows.length
            ? `writing, ${tokens} so far`
            : "reading the prompt …"
          : info.status === "stopped"
            ? `stopped by hand after ${tokens}`
            : info.finish === "length"
              ? `cut off at its length limit, after ${tokens}`
              : info.finish === "eos" && !told
                ? "the model ended its answer here"
                : "",
    );
  };

  const arrange = (): void => {
    const order = treeOrder(store, closed);
    const key = order.map(({ run, depth }) => `${run.info.run}/${depth}`).join();
    for (const { run } of order) {
      const box = boxes.get(run.info.run) ?? makeBox(run);
      append(box);
      describe(box);
    }
    if (key === layout) return;
    layout = key;
    const focus = document.activeElement;
    refill(
      text,
      ...order.map(({ run, depth }) => {
        const { element } = boxes.get(run.info.run)!;
        element.style.setProperty("--depth", String(Math.min(3, Math.max(0, depth - 1))));
        return element;
      }),
    );
    if (focus instanceof HTMLElement && text.contains(focus)) focus.focus();
    const n = closed.size;
    refill(
      closedNote,
      n > 0 && `${n} closed ${n === 1 ? "branch" : "branches"} `,
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
    store.select(run.info.parent ?? run.info.run, run.info.fork ?? 0);
    draw();
    focusToken(store.selected);
  };

  /** A pick inside a closed branch, made in another picture, opens it again. */
  const openSelected = (at: Selection): void => {
    for (let run = store.run(at.run); run; run = run.info.parent === null ? undefined : store.run(run.info.parent))
      closed.delete(run.info.run);
  };

  // ---------------------------------------------------------------- tint

  const tinted = (row: number): number => {
    if (tint === "probability") return store.tokens.get("prob", row);
    if (tint === "entropy") return share(store.tokens.get("entropy", row), 0, 8);
    return share(tookMs(store, row), ...scale);
  };

  const paint = (span: HTMLElement, row: number, run: Run): void => {
    const first = tint === "latency" && run.rows[0] === row && run.info.parent === null;
    span.style.setProperty("--w", `${(first ? 1 : tinted(row)) * 100}%`);
  };

  const times = (runs: readonly Run[]): Float64Array =>
    Float64Array.from(runs.flatMap((r) => r.rows.slice(1)).map((row) => tookMs(store, row))).sort();

  let painted = "";
  const repaint = (): void => {
    if (tint === "latency") {
      const sorted = times(store.runs);
      const next: [number, number] = sorted.length ? [quantile(sorted, 0.05), quantile(sorted, 0.95)] : [0, 1];
      const moved = Math.abs(next[0] - scale[0]) + Math.abs(next[1] - scale[1]);
      if (moved > 0.05 * (scale[1] - scale[0]) || !store.running) scale = next;
    }
    const key = tint === "latency" ? `${tint} ${scale}` : tint;
    if (key === painted) return;
    painted = key;
    for (const { spans, run } of boxes.values()) for (const [i, span] of spans.entries()) paint(span, run.rows[i], run);
    const [low, high] = {
      probability: ["0 %", "100 %"],
      entropy: ["sure", "8 bits or more"],
      latency: [time(scale[0]), time(scale[1])],
    }[tint];
    refill(legend, h("span", {}, low), h("i"), h("span", {}, high));
    legend.title = tint === "latency" ? "9 of 10 tokens took between these two times" : "";
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
    const name = brief(store, store.tokens.get("token", row));
    flag(
      span,
      "aria-label",
      `token ${placeInAnswer(store, at) + 1}, ${name}, ${percent(store.tokens.get("prob", row))}`,
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

  // ---------------------------------------------------------------- numbers and words

  const headline = (at: Selection): [string, string] => {
    const run = store.run(at.run);
    if (!run?.rows.length) return ["–", "no token yet"];
    const n = count(run.rows.length);
    const of = (column: string) => median(run.rows.map((row) => store.tokens.get(column, row)));
    if (tint === "probability") return [percent(of("prob")), `typical probability of a token (median of ${n})`];
    if (tint === "entropy")
      return [candidates(of("entropy")), `equally likely candidates, the typical doubt (median of ${n})`];
    const later = times([run]);
    return [time(quantile(later, 0.5)), `for a typical token after the first (median of ${count(later.length)})`];
  };

  const caption = (at: Selection): void => {
    const run = store.run(at.run);
    const scaleWords =
      tint === "latency"
        ? " The scale runs from the 5th to the 95th percentile, so that one slow token does not make all others look alike."
        : "";
    const how = run ? ` Tokens were picked by ${settingsWords(run.info.settings)}.` : "";
    card.caption("measured", `${originWords(store)}${how} Probabilities are those of the model itself.${scaleWords}`);
  };

  const controls = (): void => {
    showTint(tint);
    flag(spacesButton, "aria-pressed", spaces);
    text.classList.toggle("gl-nows", !spaces);
    stopButton.hidden = !store.running;
    const stopping = store.stopping;
    say(stopButton, stopping ? "Stopping …" : "Stop");
    const gone = store.kernel === "absent";
    stopButton.disabled = stopping || gone;
    stopButton.title = gone ? "No running notebook answers, so there is nothing to stop." : "";
    say(
      live,
      store.running
        ? stopping
          ? "stopping"
          : "the model is writing"
        : store.runs.length
          ? "the answer is complete"
          : "",
    );
  };

  const draw = (): void => {
    const at = store.selected;
    openSelected(at);
    repaint();
    arrange();
    mark(at);
    controls();
    card.title(...HEADS[tint]);
    card.number(...headline(at));
    caption(at);
    empty.hidden = store.runs.length > 0;
    card.element.classList.toggle("gl-blank", !empty.hidden);
    tools.hidden = !store.runs.length;
    if (!empty.hidden) {
      const words = store.ready
        ? "Nothing has been recorded yet. Generate something inside “with genai_lab.record() as trace:” and show the trace again."
        : "Reading the recording …";
      say(empty, store.error ? `This recording cannot be shown: ${store.error}.` : words);
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
