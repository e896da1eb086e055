/**
 * The sampling pipeline: what each setting does to the list of candidates, from the model's own numbers to the draw.
 *
 * Sliders compute in the browser from what was recorded; only the buttons that write with these settings need a kernel.
 */
import { knobsOf, type Line, linesOf, processorsOf, stepOf, TAIL_EDGES } from "./candidates";
import { makeCard, refuse, refused } from "./card";
import { flag, h, refill, say } from "./dom";
import { drawMany, expectedRange } from "./draws";
import { count, percent } from "./format";
import { evaluate, PENALTY, type Processor, type Stage } from "./sampling";
import { brief, originWords, placeInAnswer, settingsWords, textBefore, word } from "./tokens";
import type { Knobs } from "./types";
import type { MakeView } from "./view";

const DRAWS = 1000;

interface Knob {
  key: "repetition_penalty" | "temperature" | "top_k" | "top_p" | "min_p";
  min: number;
  max: number;
  step: number;
  /** Slider position to value and back; top-k walks over stops of growing distance. */
  read(position: number): number;
  place(value: number): number;
  show(value: number): string;
}

const K_STOPS = [
  ...Array.from({ length: 64 }, (_, i) => i + 1),
  80,
  100,
  150,
  200,
  300,
  500,
  1000,
  2000,
  5000,
  10000,
  0,
];
const same = (v: number) => v;
const off = (text: string, isOff: boolean) => (isOff ? "off" : text);

const KNOBS: Record<string, Knob> = {
  [PENALTY]: {
    key: "repetition_penalty",
    min: 1,
    max: 2,
    step: 0.05,
    read: same,
    place: same,
    show: (v) => off(`÷ ${v.toFixed(2)}`, v === 1),
  },
  temperature: {
    key: "temperature",
    min: 0,
    max: 2,
    step: 0.05,
    read: same,
    place: same,
    show: (v) => (v === 0 ? "best only" : v.toFixed(2)),
  },
  top_k: {
    key: "top_k",
    min: 0,
    max: K_STOPS.length - 1,
    step: 1,
    read: (at) => K_STOPS[at],
    place: (v) => (v === 0 ? K_STOPS.length - 1 : K_STOPS.findIndex((k) => k === 0 || k >= v)),
    show: (v) => off(count(v), v === 0),
  },
  top_p: {
    key: "top_p",
    min: 0.05,
    max: 1,
    step: 0.01,
    read: (v) => (v >= 1 ? 0 : v),
    place: (v) => (v === 0 ? 1 : v),
    show: (v) => off(v.toFixed(2), v <= 0 || v >= 1),
  },
  min_p: {
    key: "min_p",
    min: 0,
    max: 0.5,
    step: 0.01,
    read: same,
    place: same,
    show: (v) => off(v.toFixed(2), v === 0),
  },
};

/** Column heads: name, what it does. */
const HEADS: Record<string, [string, string]> = {
  raw: ["raw", "what the model gave"],
  min_length: ["min length", "no end before this length"],
  [PENALTY]: ["penalty", "words used before lose"],
  no_repeat_ngram: ["no repeats", "no word group twice"],
  temperature: ["temperature", "below 1 steeper, above flatter"],
  top_k: ["top-k", "keep only the k best"],
  top_p: ["top-p", "keep best until this share"],
  min_p: ["min-p", "drop below part of the best"],
  drawn: ["drawn", "one of what is left"],
};
const headOf = (name: string): [string, string] => HEADS[name] ?? [name.replace(/_/g, " "), "a step of your own"];

interface Column {
  name: string;
  set: HTMLElement;
  slider: HTMLInputElement | null;
  cells: Cell[];
}

interface Cell {
  element: HTMLElement;
  value: HTMLElement;
  bar: HTMLElement;
  marks: HTMLElement;
}

/** Share, number of tokens and reason of a line at a stage. */
function lineAt(line: Line, stage: Stage): { prob: number; left: number; cut: string | null } {
  if (line.kind === "one") {
    const prob = stage.prob[line.slot];
    return { prob, left: prob > 0 ? 1 : 0, cut: stage.cut[line.slot] };
  }
  if (line.kind === "band") return stage.bands[line.band];
  const prob = line.slots.reduce((sum, s) => sum + stage.prob[s], 0);
  const left = line.slots.filter((s) => stage.prob[s] > 0).length;
  const cut = left ? null : (line.slots.map((s) => stage.cut[s]).find((why) => why !== null) ?? null);
  return { prob, left, cut: cut?.replace(/^rank /, "from rank ") ?? null };
}

/** Ranks of a group of candidates, without the word "rank". */
const ranksOf = (line: Exclude<Line, { kind: "one" }>, last: boolean): string => {
  if (line.from === line.to) return count(line.from);
  return last ? `${count(line.from)}+` : `${count(line.from)}–${count(line.to)}`;
};

export const makePipeline: MakeView = ({ store, root }) => {
  let knobs: Knobs | null = null;
  let knobsRun = -1;
  let row: number | undefined;
  let seed = 0;
  let counts: number[] | null = null;
  let stages: Stage[] = [];
  let lines: Line[] = [];
  let columns: Column[] = [];
  let names: HTMLElement[] = [];
  let shape = "";

  const card = makeCard(() => ({
    head: ["candidate", ...columns.map((c) => headOf(c.name)[0])],
    numeric: [false, ...columns.map(() => true)],
    rows: row === undefined ? [] : tableRows(row),
  }));
  card.title(
    "How was this token picked?",
    "From left to right, each setting reshapes or cuts the list of candidates. Move a slider: everything to its right is computed again.",
  );
  const context = h("span", { class: "gl-ink2" });
  const drawButton = h("button", { class: "gl-btn", type: "button", "data-action": "draw" }, "Draw 1000 times");
  const resetButton = h("button", { class: "gl-btn", type: "button", "data-action": "reset" }, "As recorded");
  const grid = h("div", { class: "gl-pipe", role: "group", "aria-label": "Sampling stages" });
  const note = h("div", { class: "gl-read gl-two", "aria-live": "polite" });
  const onButton = h(
    "button",
    { class: "gl-btn", type: "button", "data-action": "branch" },
    "Write on from this token",
  );
  const againButton = h(
    "button",
    { class: "gl-btn", type: "button", "data-action": "again" },
    "Answer again from the start",
  );
  const why = h("span", { class: "gl-ink2" });
  const tools = h("div", { class: "gl-tools" }, context, h("div", { class: "gl-right" }, drawButton, resetButton));
  const write = h("div", { class: "gl-write" }, h("span", {}, "With these settings:"), onButton, againButton, why);
  const empty = h("div", { class: "gl-empty" });
  card.body.append(tools, grid, note, write, empty);

  // ---------------------------------------------------------------- the grid

  const head = (name: string): Column => {
    const [title, help] = headOf(name);
    const knob = KNOBS[name];
    const set = h("div", { class: "gl-set" });
    const slider = knob
      ? h("input", {
          type: "range",
          class: "gl-rng",
          min: knob.min,
          max: knob.max,
          step: knob.step,
          "aria-label": title,
        })
      : null;
    slider?.addEventListener("input", () => {
      if (!knobs || !knob) return;
      knobs = { ...knobs, [knob.key]: knob.read(Number(slider.value)) };
      knobs.mode = knobs.temperature === 0 ? "greedy" : "sample";
      counts = null;
      draw();
    });
    const name1 =
      name === "temperature"
        ? h("b", {}, h("span", { class: "gl-long" }, title), h("span", { class: "gl-short" }, "temp."))
        : h("b", {}, title);
    grid.append(
      h("div", { class: "gl-h" }, name1, h("small", {}, help), set, slider ?? h("div", { class: "gl-noslider" })),
    );
    return { name, set, slider, cells: [] };
  };

  const cell = (tail: boolean): Cell => {
    const value = h("span", { class: "gl-val" });
    const bar = h("i");
    const marks = h("span", { class: "gl-marks" });
    const element = h(
      "div",
      { class: tail ? "gl-c gl-tail" : "gl-c" },
      value,
      h("span", { class: "gl-track" }, bar),
      marks,
    );
    return { element, value, bar, marks };
  };

  const build = (stageNames: string[]): void => {
    const key = `${stageNames} ${lines.map((l) => l.kind)}`;
    if (key === shape) return;
    shape = key;
    grid.replaceChildren(h("div", { class: "gl-h" }, h("small", {}, "candidates, most likely first")));
    grid.style.setProperty("--cols", String(stageNames.length));
    columns = stageNames.map(head);
    names = lines.map((line) => {
      const name = h("div", { class: "gl-name" });
      grid.append(name);
      for (const column of columns) {
        const made = cell(line.kind !== "one");
        grid.append(made.element);
        column.cells.push(made);
      }
      return name;
    });
  };

  const nameLines = (ids: ArrayLike<number>, chosen: number, rank: number): void => {
    lines.forEach((line, i) => {
      const element = names[i];
      const hidden = chosen < 0 && line.kind === "band" && rank >= line.from && rank <= line.to;
      const picked = line.kind === "one" ? line.slot === chosen : hidden;
      element.classList.toggle("gl-pick", picked);
      if (line.kind === "one") {
        const id = ids[line.slot];
        const special = store.special(id) ? "gl-special" : null;
        refill(element, h("em", {}, String(line.rank)), h("span", { class: special }, word(store, id)));
        element.title = word(store, id);
      } else {
        const ranks = ranksOf(line, i === lines.length - 1);
        refill(element, h("span", { class: "gl-ranks" }, h("span", { class: "gl-long" }, "rank "), ranks));
        element.title = line.kind === "some" ? "the candidates of these ranks that are not listed above" : "";
      }
    });
  };

  const fillCells = (processors: Processor[], chosen: number): void => {
    const all = [...stages, stages[stages.length - 1]];
    lines.forEach((line, i) => {
      let gone = false;
      columns.forEach((column, c) => {
        const { element, value, bar, marks } = column.cells[i];
        const { prob, left, cut } = lineAt(line, all[c]);
        const last = c === columns.length - 1;
        const shownCut = last ? null : cut;
        const dead = gone && !shownCut;
        element.classList.toggle("gl-cut", !!shownCut);
        element.classList.toggle("gl-gone", dead);
        element.classList.toggle("gl-zero", prob === 0);
        element.classList.toggle("gl-got", last && line.kind === "one" && line.slot === chosen);
        if (shownCut) {
          if (value.textContent !== `✕${shownCut}`) refill(value, h("b", {}, "✕"), shownCut);
          element.title = `cut by ${headOf(column.name)[0]}: ${shownCut}`;
          gone = true;
        } else {
          const n = counts && last ? counts[i] : null;
          say(value, dead ? "" : n === null ? percent(prob) : String(n));
          element.title = line.kind === "one" ? "" : `${count(left)} ${left === 1 ? "token" : "tokens"} left`;
        }
        if (left < 0.5) gone = true;
        const n = counts && last && !dead ? counts[i] : null;
        bar.style.width = `${(shownCut || dead ? 0 : n === null ? prob : n / DRAWS) * 100}%`;
        if (marks.firstChild) marks.replaceChildren();
        if (n !== null) markTheory(marks, element, prob, n);
      });
      names[i].classList.toggle("gl-out", gone);
    });
    columns.forEach(({ name, set, slider }) => {
      const knob = KNOBS[name];
      if (knob && slider && knobs) {
        const v = knobs[knob.key];
        const at = knob.place(v);
        if (Number(slider.value) !== at) slider.value = String(at);
        slider.style.setProperty("--f", `${((at - knob.min) / (knob.max - knob.min)) * 100}%`);
        flag(slider, "aria-valuetext", knob.show(v));
        say(set, knob.show(v));
      } else {
        const moved = processors.find((p) => p.name === name)?.moved;
        set.classList.add("gl-fixed");
        say(set, moved ? `${moved.size} changed` : "");
      }
    });
  };

  const markTheory = (marks: HTMLElement, element: HTMLElement, p: number, n: number): void => {
    if (p <= 0) return;
    const [low, high] = expectedRange(DRAWS, p);
    element.title = `${n} of ${DRAWS} draws; theory expects ${Math.round(p * DRAWS)}, 95 of 100 times between ${low} and ${high}`;
    const range = h("span", { class: "gl-sd" });
    range.style.left = `${low / 10}%`;
    range.style.width = `${(high - low) / 10}%`;
    const mark = h("span", { class: "gl-th" });
    mark.style.left = `${p * 100}%`;
    marks.append(range, mark);
  };

  // ---------------------------------------------------------------- words

  const asRecorded = (): boolean => {
    const run = store.run(knobsRun);
    return !!run && JSON.stringify(knobs) === JSON.stringify(knobsOf(run.info.settings));
  };

  const explain = (at: number, chosen: number): void => {
    const token = `“${brief(store, store.tokens.get("token", at))}”`;
    const drawn = store.tokens.get("final_prob", at);
    const rank = store.tokens.get("rank", at);
    const where = chosen < 0 ? ` It was number ${count(rank)} in the model's list.` : "";
    if (counts) {
      const inside = lines.filter((line, i) => {
        const { prob } = lineAt(line, stages[stages.length - 1]);
        const [low, high] = expectedRange(DRAWS, prob);
        return prob > 0 && counts![i] >= low && counts![i] <= high;
      }).length;
      const open = lines.filter((line) => lineAt(line, stages[stages.length - 1]).prob > 0).length;
      say(
        note,
        `Last column: counts in 1000 draws (seed ${seed}). The upright mark is what theory expects, the thin pair holds 95 of 100 such counts; ${inside} of ${open} lines lie inside.`,
      );
    } else if (Number.isNaN(drawn)) say(note, `In this branch ${token} was put here by hand (marked).${where}`);
    else if (!asRecorded())
      say(note, `With other settings than recorded. In the recorded run ${token} was taken (marked).${where}`);
    else if (knobs?.mode === "greedy")
      say(note, `In the recorded run ${token} was taken because it is the most likely (marked).${where}`);
    else
      say(
        note,
        `In the recorded run ${token} was drawn (marked); measured there, it had ${percent(drawn)} of what was left.${where}`,
      );
  };

  const buttons = (): void => {
    const reason = store.refusal;
    refuse(onButton, reason);
    refuse(againButton, reason);
    say(why, reason ?? "");
  };

  const tableRows = (at: number): (string | number)[][] => {
    const ids = store.top("top_ids", at);
    const all = [...stages, stages[stages.length - 1]];
    const exact = Array.from(ids, (id, slot): [string, Line] => [
      word(store, id),
      { kind: "one", slot, rank: slot + 1 },
    ]);
    const tail = lines.filter((l) => l.kind === "band").map((l): [string, Line] => [`rank ${ranksOf(l, false)}`, l]);
    return [...exact, ...tail].map(([name, line]) => {
      let gone = false;
      return [
        name,
        ...all.map((stage) => {
          const { prob, cut } = lineAt(line, stage);
          if (gone) return "";
          gone = cut !== null;
          return cut ? `cut: ${cut}` : percent(prob);
        }),
      ];
    });
  };

  // ---------------------------------------------------------------- actions

  const withRow = (action: (at: { run: number; token: number }, knobs: Knobs) => void) => (e: Event) => {
    if (knobs && !refused(e.currentTarget as Element)) action(store.selected, knobs);
  };
  onButton.addEventListener(
    "click",
    withRow((at, k) => store.branch(at.run, at.token, null, k)),
  );
  againButton.addEventListener(
    "click",
    withRow((at, k) => store.again(at.run, k)),
  );
  drawButton.addEventListener("click", () => {
    seed++;
    const last = stages[stages.length - 1];
    if (!last) return;
    counts = drawMany(
      lines.map((line) => lineAt(line, last).prob),
      DRAWS,
      seed,
    );
    root.dataset.draws = String(seed);
    draw();
  });
  resetButton.addEventListener("click", () => {
    knobsRun = -1;
    counts = null;
    draw();
  });

  const headline = (): void => {
    const last = stages[stages.length - 1];
    const left = Math.round(last.left);
    const vocabulary = count(store.vocabulary);
    const tail = last.bands.some((b) => b.left > 0);
    const all = left >= store.vocabulary;
    card.number(
      tail && !all ? `≈ ${count(Number(left.toPrecision(3)))}` : count(left),
      all
        ? "tokens can be drawn: nothing is cut"
        : `${left === 1 ? "token" : "tokens"} can still be drawn, of ${vocabulary}`,
    );
  };

  const draw = (): void => {
    const at = store.selected;
    const now = store.rowAt(at);
    if (now !== row) counts = null;
    row = now;
    const run = store.run(at.run);
    const has = row !== undefined && run !== undefined;
    for (const part of [tools, grid, note, write]) part.hidden = !has;
    empty.hidden = has;
    card.element.classList.toggle("gl-blank", !has);
    card.caption(
      "measured",
      `${originWords(store)} The 64 highest scores of each step, and how many of all other tokens have which score.${run ? ` The recorded settings: ${settingsWords(run.info.settings)}.` : ""}`,
    );
    card.caption(
      "modelled",
      "What the sliders show, computed on this page from those numbers. Lines such as 13–20 are groups of ranks; beyond 64 they are counted from the histogram, within about 0.4 percentage points.",
    );
    if (row === undefined || !run) {
      say(
        empty,
        store.ready
          ? "No token has been drawn yet. As soon as there is one, its candidates appear here."
          : "Reading the recording …",
      );
      card.number("–", "tokens can be drawn");
      return;
    }
    if (knobsRun !== at.run || !knobs) {
      knobs = knobsOf(run.info.settings);
      knobsRun = at.run;
    }
    const ids = store.top("top_ids", row);
    const chosen = Array.from(ids).indexOf(store.tokens.get("token", row));
    const processors = processorsOf(store, row);
    stages = evaluate(stepOf(store, row), knobs, processors, TAIL_EDGES);
    lines = linesOf(ids.length, store.vocabulary, chosen);
    build([...stages.map((s) => s.name), "drawn"]);
    nameLines(ids, chosen, store.tokens.get("rank", row));
    fillCells(processors, chosen);
    headline();
    const before = textBefore(store, at, 5);
    refill(
      context,
      "after ",
      h("b", {}, before ? `“${before}”` : "the question"),
      `, token ${placeInAnswer(store, at) + 1}`,
    );
    explain(row, chosen);
    buttons();
    card.refreshTable();
  };

  return { element: card.element, draw };
};
