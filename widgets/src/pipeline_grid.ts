/**
 * The table of the sampling pipeline on the page: a column for each stage, a line for each candidate or group of them.
 *
 * Shows what it is given and keeps its elements; moving a slider is told to the owner, who computes.
 */
import { type Line, lineAt, ranksOf } from "./candidates";
import { flag, h, refill, say } from "./dom";
import { expectedRange } from "./draws";
import { count, percent } from "./format";
import { headOf, KNOBS, type Knob } from "./knobs";
import { characterFirst } from "./parts";
import type { Processor, Stage } from "./sampling";
import type { Store } from "./store";
import { candidateName } from "./tokens";
import type { Knobs, Selection } from "./types";

export const DRAWS = 1000;

export interface Scene {
  at: Selection;
  /** One more than there are stages: the last column is what is drawn. */
  stages: Stage[];
  lines: Line[];
  ids: ArrayLike<number>;
  /** Slot of the token that was taken; -1 when it is not among the candidates. */
  chosen: number;
  rank: number;
  knobs: Knobs;
  processors: Processor[];
  /** How often each line came up. */
  counts: number[] | null;
}

interface Cell {
  element: HTMLElement;
  value: HTMLElement;
  bar: HTMLElement;
  marks: HTMLElement;
}

interface Column {
  name: string;
  set: HTMLElement;
  slider: HTMLInputElement | null;
  cells: Cell[];
}

function makeCell(group: boolean): Cell {
  const value = h("span", { class: "gl-val" });
  const bar = h("i");
  const marks = h("span", { class: "gl-marks" });
  const track = h("span", { class: "gl-track" }, bar);
  return { element: h("div", { class: group ? "gl-c gl-tail" : "gl-c" }, value, track, marks), value, bar, marks };
}

/** What theory expects of a count: an upright mark, and a thin pair that holds 95 of 100 such counts. */
function markTheory({ element, marks }: Cell, p: number, n: number): void {
  if (p <= 0) return;
  const [low, high] = expectedRange(DRAWS, p);
  const expected = Math.round(p * DRAWS);
  element.title = `${n} of ${DRAWS} draws; theory expects ${expected}, 95 of 100 times between ${low} and ${high}`;
  const range = h("span", { class: "gl-sd" });
  range.style.left = `${(low / DRAWS) * 100}%`;
  range.style.width = `${((high - low) / DRAWS) * 100}%`;
  const mark = h("span", { class: "gl-th" });
  mark.style.left = `${p * 100}%`;
  marks.append(range, mark);
}

/** Fills one cell; returns whether the line ends here. */
function fillCell(
  cell: Cell,
  name: string,
  at: ReturnType<typeof lineAt>,
  gone: boolean,
  drawn: number | null,
): boolean {
  const { element, value, bar, marks } = cell;
  const { prob, left } = at;
  const cut = name === "drawn" ? null : at.cut;
  const dead = gone && !cut;
  element.classList.toggle("gl-cut", cut !== null);
  element.classList.toggle("gl-gone", dead);
  element.classList.toggle("gl-zero", prob === 0);
  if (marks.firstChild) marks.replaceChildren();
  element.title = cut ? `cut by ${headOf(name)[0]}: ${cut}` : `${count(left)} ${left === 1 ? "token" : "tokens"} left`;
  if (cut) {
    if (value.textContent !== `✕${cut}`) refill(value, h("b", {}, "✕"), cut);
  } else say(value, dead ? "" : drawn === null ? percent(prob) : String(drawn));
  const share = drawn === null ? prob : drawn / DRAWS;
  bar.style.width = `${cut || dead ? 0 : share * 100}%`;
  if (drawn !== null && !dead) markTheory(cell, prob, drawn);
  return gone || cut !== null || left < 0.5;
}

const groupWords = (line: { to: number }): string =>
  line.to === 0
    ? "less likely candidates that the guidance allowed or a processor lifted"
    : "the candidates of these ranks that are not listed above";

export class Grid {
  readonly element = h("div", { class: "gl-pipe", role: "group", "aria-label": "Sampling stages" });
  private columns: Column[] = [];
  private names: HTMLElement[] = [];
  private shape = "";

  constructor(
    private store: Store,
    private turned: (key: Knob["key"], value: number) => void,
  ) {}

  show(scene: Scene): void {
    this.build([...scene.stages.map((s) => s.name), "drawn"], scene.lines);
    this.nameLines(scene);
    this.fill(scene);
    this.showSettings(scene);
  }

  private build(stageNames: string[], lines: readonly Line[]): void {
    const key = `${stageNames} ${lines.map((l) => l.kind)}`;
    if (key === this.shape) return;
    this.shape = key;
    this.element.replaceChildren(h("div", { class: "gl-h" }, h("small", {}, "candidates, most likely first")));
    this.element.style.setProperty("--cols", String(stageNames.length));
    this.columns = stageNames.map((name) => this.head(name));
    this.names = lines.map((line) => {
      const name = h("div", { class: "gl-name" });
      this.element.append(name);
      for (const column of this.columns) {
        const cell = makeCell(line.kind !== "one");
        this.element.append(cell.element);
        column.cells.push(cell);
      }
      return name;
    });
  }

  private head(name: string): Column {
    const [title, help] = headOf(name);
    const knob = KNOBS[name];
    const set = h("div", { class: knob ? "gl-set" : "gl-set gl-fixed" });
    const slider = knob ? this.slider(knob, title) : null;
    const short = name === "temperature" ? "temp." : title;
    const label = h("b", {}, h("span", { class: "gl-long" }, title), h("span", { class: "gl-short" }, short));
    const foot = slider ?? h("div", { class: "gl-noslider" });
    this.element.append(h("div", { class: "gl-h" }, label, h("small", {}, help), set, foot));
    return { name, set, slider, cells: [] };
  }

  private slider({ key, min, max, step, read }: Knob, title: string): HTMLInputElement {
    const slider = h("input", { type: "range", class: "gl-rng", min, max, step, "aria-label": title });
    slider.addEventListener("input", () => this.turned(key, read(Number(slider.value))));
    return slider;
  }

  private nameLines({ at, lines, ids, chosen, rank }: Scene): void {
    lines.forEach((line, i) => {
      const element = this.names[i];
      const hidden = chosen < 0 && line.kind === "band" && rank >= line.from && rank <= line.to;
      element.classList.toggle("gl-pick", line.kind === "one" ? line.slot === chosen : hidden);
      if (line.kind === "one") {
        const id = ids[line.slot];
        const name = candidateName(this.store, at, id);
        const special = this.store.special(id) ? "gl-special" : null;
        refill(
          element,
          h("em", {}, line.rank ? count(line.rank) : "·"),
          h("span", { class: special }, characterFirst(name)),
        );
        element.title = name;
      } else {
        const ranks = ranksOf(line, i === lines.length - 1);
        const word = line.to === 0 ? null : h("span", { class: "gl-long" }, "rank ");
        refill(element, h("span", { class: "gl-ranks" }, word, ranks));
        element.title = line.kind === "some" ? groupWords(line) : "";
      }
    });
  }

  private fill({ lines, stages, chosen, counts }: Scene): void {
    const last = this.columns.length - 1;
    lines.forEach((line, i) => {
      let gone = false;
      this.columns.forEach((column, c) => {
        const cell = column.cells[i];
        const drawn = c === last && counts ? counts[i] : null;
        gone = fillCell(cell, column.name, lineAt(line, stages[Math.min(c, last - 1)]), gone, drawn);
        cell.element.classList.toggle("gl-got", c === last && line.kind === "one" && line.slot === chosen);
      });
      this.names[i].classList.toggle("gl-out", gone);
    });
  }

  private showSettings({ knobs, processors }: Scene): void {
    for (const { name, set, slider } of this.columns) {
      const knob = KNOBS[name];
      const processor = processors.find((p) => p.name === name);
      if (!knob || !slider) {
        say(set, processor ? (processor.note ?? `${processor.moved.size} changed`) : "");
        continue;
      }
      const value = knobs[knob.key];
      const at = knob.place(value);
      if (Number(slider.value) !== at) slider.value = String(at);
      slider.style.setProperty("--f", `${((at - knob.min) / (knob.max - knob.min)) * 100}%`);
      flag(slider, "aria-valuetext", knob.show(value));
      say(set, knob.show(value));
    }
  }
}
