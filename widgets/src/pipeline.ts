/**
 * The sampling pipeline: what each setting does to the list of candidates, from the model's own numbers to the draw.
 *
 * Sliders compute in the browser from what was recorded; only the buttons that write with these settings need a kernel.
 */
import {
  candidatesOf,
  knobsOf,
  type Line,
  liftedOf,
  lineAt,
  linesOf,
  processorsOf,
  ranksOf,
  stepOf,
  TAIL_EDGES,
} from "./candidates";
import { makeCard, refuse, refused } from "./card";
import { h, refill, say } from "./dom";
import { drawMany, expectedRange } from "./draws";
import { count, oneLine, percent } from "./format";
import { headOf } from "./knobs";
import { DRAWS, Grid } from "./pipeline_grid";
import { evaluate, type Stage } from "./sampling";
import { byHand, candidateName, nameAt, originWords, placeInAnswer, settingsWords, textBefore } from "./tokens";
import type { Knobs } from "./types";
import type { MakeView } from "./view";

const seedWords = (seed: number | null | undefined): string =>
  seed === null || seed === undefined
    ? ""
    : ` random_seed ${seed} is where its random numbers began: the same seed draws the same tokens.`;

export const makePipeline: MakeView = ({ store, root }) => {
  let knobs: Knobs | null = null;
  let knobsRun = -1;
  let row: number | undefined;
  let seed = 0;
  let counts: number[] | null = null;
  let stages: Stage[] = [];
  let lines: Line[] = [];

  const card = makeCard(() => ({
    head: ["candidate", ...stages.map((s) => headOf(s.name)[0]), "drawn"],
    numeric: [false, ...stages.map(() => true), true],
    rows: row === undefined ? [] : tableRows(row),
  }));
  card.title(
    "How was this token picked?",
    "From left to right, each setting reshapes or cuts the list of candidates. Move a slider: everything to its right is computed again.",
  );
  const context = h("span", { class: "gl-ink2" });
  const drawButton = h("button", { class: "gl-btn", type: "button", "data-action": "draw" }, "Draw 1000 times");
  const resetButton = h("button", { class: "gl-btn", type: "button", "data-action": "reset" }, "As recorded");
  const grid = new Grid(store, (key, value) => {
    if (!knobs) return;
    knobs = { ...knobs, [key]: value };
    knobs.mode = knobs.temperature === 0 ? "greedy" : "sample";
    counts = null;
    draw();
  });
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
  const term = (name: string, meaning: string): (Node | string)[] => [h("b", {}, name), `: ${meaning} `];
  const words = h(
    "div",
    { class: "gl-words" },
    ...term("raw", "the model's own probabilities, before any setting."),
    ...term("rank", "place in the list, 1 is the most likely."),
    ...term("penalty", "scores of tokens that occurred before are divided (÷)."),
    h("span", { class: "gl-swatch", "aria-hidden": true }),
    ...term(" hatched", "many candidates together."),
    ...term("✕", "cut here, and why."),
    "· is a space, ↵ a line end.",
  );
  const empty = h("div", { class: "gl-empty" });
  card.body.append(tools, grid.element, note, words, write, empty);

  // ---------------------------------------------------------------- words

  const asRecorded = (): boolean => {
    const run = store.run(knobsRun);
    return !!run && JSON.stringify(knobs) === JSON.stringify(knobsOf(run.info.settings));
  };

  /** How many of the lines that can be drawn came up as often as theory expects. */
  const drawWords = (counts: readonly number[]): string => {
    const last = stages[stages.length - 1];
    const open = lines.map((line, i) => ({ p: lineAt(line, last).prob, n: counts[i] })).filter(({ p }) => p > 0);
    const inside = open.filter(({ p, n }) => {
      const [low, high] = expectedRange(DRAWS, p);
      return n >= low && n <= high;
    });
    return `Last column: counts in 1000 draws (random seed ${seed}: where the random numbers begin; the same seed draws the same). The upright mark is what theory expects, the thin pair holds 95 of 100 such counts; ${inside.length} of ${open.length} lines lie inside.`;
  };

  /** What happened at this token in the recorded run. */
  const recordedWords = (at: number): string => {
    const token = `“${oneLine(nameAt(store, store.selected), 32)}”`;
    const drawn = store.tokens.get("final_prob", at);
    if (store.tokens.get("forced", at) === 1)
      return `The guidance left no choice but ${token} (marked): the model was not asked, so there are no other candidates.`;
    if (byHand(store, at)) return `In this branch ${token} was put here by hand (marked).`;
    const sampler = store.run(knobsRun)?.info.settings.sampler;
    if (sampler)
      return `In the recorded run ${token} was taken by a sampler of the person's own, “${oneLine(sampler, 40)}” (marked). The columns show what it chose from.`;
    if (!asRecorded()) return `With other settings than recorded. In the recorded run ${token} was taken (marked).`;
    if (knobs?.mode === "greedy")
      return `In the recorded run ${token} was taken because it is the most likely one left (marked).`;
    return `In the recorded run ${token} was drawn (marked); measured there, it had ${percent(drawn)} of what was left.`;
  };

  const explain = (at: number, chosen: number): void => {
    const where = ` It was number ${count(store.tokens.get("rank", at))} in the model's list (its rank).`;
    say(note, counts ? drawWords(counts) : `${recordedWords(at)}${chosen < 0 ? where : ""}`);
  };

  const buttons = (): void => {
    const reason = store.refusal;
    refuse(onButton, reason);
    refuse(againButton, reason);
    say(why, reason ?? "");
  };

  const tableRows = (at: number): (string | number)[][] => {
    const ids = store.top("top_ids", at).subarray(0, candidatesOf(store, at));
    const all = [...stages, stages[stages.length - 1]];
    const exact = Array.from(ids, (id, slot): [string, Line] => [
      candidateName(store, store.selected, id),
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
    withRow((at, k) => store.branch(at.run, store.indexAt(at), null, k)),
  );
  againButton.addEventListener(
    "click",
    withRow((at, k) => store.again(store.rootOf(at.run), k)),
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
    for (const part of [tools, grid.element, note, words, write]) part.hidden = !has;
    empty.hidden = has;
    card.element.classList.toggle("gl-blank", !has);
    card.caption(
      "measured",
      `${originWords(store)} The 64 highest scores of each step, and how many of all other tokens have which score.${run ? ` The recorded settings: ${settingsWords(run.info.settings)}.${seedWords(run.info.settings.random_seed)}` : ""}`,
    );
    card.caption(
      "modelled",
      "What the sliders show, computed on this page from those numbers. Lines such as 13–20 are groups of ranks; beyond 64 they are counted from a histogram (how many tokens have about which score), within about 0.2 percentage points.",
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
    const ids = store.top("top_ids", row).subarray(0, candidatesOf(store, row));
    const chosen = Array.from(ids).indexOf(store.tokens.get("token", row));
    const processors = processorsOf(store, row);
    const step = stepOf(store, row);
    const rank = store.tokens.get("rank", row);
    stages = evaluate(step, knobs, processors, TAIL_EDGES);
    const vocabulary = ids.length === 1 ? 1 : store.vocabulary;
    lines = linesOf(ids.length, vocabulary, chosen, step.exact, liftedOf(step, processors), rank);
    grid.show({ at, stages, lines, ids, chosen, rank, knobs, processors, counts });
    headline();
    const before = textBefore(store, at, 5);
    refill(
      context,
      "after ",
      h("b", {}, before ? `“${before}”` : "the question"),
      `, token ${placeInAnswer(store, at) + 1} (index ${store.indexAt(at)} in trace.tokens())`,
    );
    explain(row, chosen);
    buttons();
    card.refreshTable();
  };

  return { element: card.element, draw };
};
