/**
 * The pinned token: what else could have been said there, and its facts in numbers.
 *
 * Shows any row it is given (the picked one, or the one under the pointer); asks the store to continue with another choice.
 */
import { refuse, refused } from "./card";
import { h, refill, say } from "./dom";
import { candidates, count, oneLine, ordinal, percent, time } from "./format";
import type { Store } from "./store";
import { byHand, candidateName, firstTokenMs, ORIGINS, originOf, placeInAnswer, runName, tookMs } from "./tokens";
import type { Selection } from "./types";

const SHOWN = 8;

export interface Alternative {
  rank: number;
  id: number;
  prob: number;
  chosen: boolean;
  /** A grammar or a processor did not let it through. */
  forbidden: boolean;
}

/** The most likely tokens at a row; the chosen one is always among them. */
export function alternatives(store: Store, row: number, shown = SHOWN): Alternative[] {
  const ids = store.top("top_ids", row);
  const last = new Map(store.changes(row).map(({ id, delta }) => [id, delta]));
  const deltas = store.top("top_delta", row);
  const logZ = store.tokens.get("log_z", row);
  const token = store.tokens.get("token", row);
  const out = Array.from(ids.subarray(0, shown), (id, i) => ({
    rank: i + 1,
    id,
    prob: Math.exp(-deltas[i] / 1024 - logZ),
    chosen: id === token,
    forbidden: id !== token && (last.get(id) ?? 0) > 1e30,
  }));
  if (!out.some((a) => a.chosen))
    out.splice(Math.min(out.length, shown - 1), 1, {
      rank: store.tokens.get("rank", row),
      id: token,
      prob: store.tokens.get("prob", row),
      chosen: true,
      forbidden: false,
    });
  return out;
}

/** What greedy search takes. */
function bestWords(rank: number, allowed: number): string {
  if (rank === 1) return "the most likely token";
  return `the most likely token that the ${allowed > 0 ? "grammar allows" : "processors left"}`;
}

/** The panel grows to its highest content and stays so, lest the page jump under the pointer; a new width begins anew. */
function keepHeight(element: HTMLElement): void {
  const width = String(element.clientWidth);
  if (element.dataset.width !== width) element.style.minHeight = "";
  element.dataset.width = width;
  const high = element.offsetHeight;
  if (high > (Number.parseFloat(element.style.minHeight) || 0)) element.style.minHeight = `${high}px`;
}

export interface Pin {
  element: HTMLElement;
  show(at: Selection, preview: boolean): void;
  focus(): void;
}

export function makePin(store: Store, back: () => void): Pin {
  const heading = h("h3");
  const glance = h("div", { class: "gl-glance" });
  const list = h("ul", { class: "gl-alts" });
  const note = h("p", { class: "gl-note", "aria-live": "polite" });
  const facts = h("dl", { class: "gl-facts" });
  const element = h(
    "div",
    { class: "gl-pin" },
    h("div", {}, heading, glance, list, note),
    h("div", {}, h("h3", {}, "In numbers"), facts),
  );
  let at: Selection = { run: 0, token: -1 };

  const lines = Array.from({ length: SHOWN }, () => {
    const rank = h("span", { class: "gl-r" });
    const name = h("span", { class: "gl-w" });
    const bar = h("i");
    const value = h("span", { class: "gl-v" });
    const go = h("span", { class: "gl-go" });
    const button = h(
      "button",
      { class: "gl-alt", type: "button", tabindex: -1 },
      rank,
      name,
      h("span", { class: "gl-b" }, bar),
      value,
      go,
    );
    const item = h("li", {}, button);
    list.append(item);
    return { item, button, rank, name, bar, value, go, choice: null as Alternative | null };
  });

  const take = (button: Element | null) => {
    const line = lines.find((l) => l.button === button);
    if (!line?.choice || line.choice.chosen) return;
    const made = store.branchAt(at, line.choice.id);
    if (made) store.select(made.info.run, 0);
    else if (!refused(line.button)) store.branch(at.run, store.indexAt(at), line.choice.id, null);
  };
  list.addEventListener("click", (e) => take((e.target as Element).closest("button")));
  list.addEventListener("keydown", (e) => {
    const usable = lines.filter((l) => !l.item.hidden && !l.choice?.chosen).map((l) => l.button);
    const i = usable.indexOf(document.activeElement as HTMLButtonElement);
    if (e.key === "ArrowDown") usable[Math.min(usable.length - 1, i + 1)]?.focus();
    else if (e.key === "ArrowUp" && i > 0) usable[i - 1].focus();
    else if (e.key === "ArrowUp" || e.key === "Escape") back();
    else return;
    e.preventDefault();
    e.stopPropagation();
  });

  const showAlternatives = (row: number) => {
    const rows = alternatives(store, row);
    const reason = store.refusal;
    let stop = true;
    lines.forEach((line, i) => {
      const a = rows[i] ?? null;
      line.choice = a;
      line.item.hidden = !a;
      if (!a) return;
      const made = !a.chosen && store.branchAt(at, a.id);
      say(line.rank, count(a.rank));
      say(line.name, candidateName(store, at, a.id));
      line.name.classList.toggle("gl-special", store.special(a.id));
      line.bar.style.width = `${a.prob * 100}%`;
      say(line.value, percent(a.prob));
      say(
        line.go,
        a.chosen
          ? byHand(store, row)
            ? "put here by hand"
            : "chosen"
          : made
            ? `↳ show ${runName(store, made)}`
            : a.forbidden
              ? "forbidden"
              : "↳ continue from here",
      );
      line.button.classList.toggle("gl-no", a.forbidden);
      line.button.classList.toggle("gl-sel", a.chosen);
      line.button.classList.toggle("gl-made", !!made);
      refuse(line.button, a.chosen ? "this is the token that was taken" : made ? null : reason);
      line.button.tabIndex = !a.chosen && stop ? 0 : -1;
      if (!a.chosen) stop = false;
    });
    const waiting = store.pending;
    say(
      note,
      waiting
        ? store.late
          ? "The notebook has not answered yet; a cell may still be running there."
          : waiting.token === null
            ? "Asked the model to write again …"
            : `Asked the model to continue with “${oneLine(candidateName(store, at, waiting.token), 24)}” …`
        : (reason ?? "Pick another candidate to see how the answer would have gone on."),
    );
  };

  const fact = (value: string, meaning: string) => h("div", {}, h("dt", {}, value), h("dd", {}, meaning));
  const showFacts = (row: number) => {
    const get = (name: string) => store.tokens.get(name, row);
    const run = store.run(at.run);
    const bits = get("entropy");
    const drawn = get("final_prob");
    const origin = originOf(store, row);
    const all = store.vocabulary ? `all ${count(store.vocabulary)} tokens` : "all tokens";
    const first = at.token === 0 && run?.info.parent === null;
    refill(
      facts,
      fact(percent(get("prob")), "probability the model gave to this token, before any setting is applied"),
      fact(
        ordinal(get("rank")),
        `rank: its place among ${all}, sorted by probability${get("rank") === 1 ? "; 1st is the most likely" : ""}`,
      ),
      fact(candidates(bits), `equally likely tokens would leave the same doubt (entropy, ${bits.toFixed(2)} bits)`),
      get("forced") === 1
        ? fact("forced", "the guidance allowed no other token; the model was not asked")
        : byHand(store, row)
          ? fact("by hand", "this token was put here, not drawn; the model continued after it")
          : run?.info.settings.mode === "greedy"
            ? fact("best", `${bestWords(get("rank"), get("allowed"))} was taken, nothing was left to chance`)
            : fact(percent(drawn), "probability it was drawn with, after all settings"),
      origin > 0 && fact(["", "accepted", "corrected", "bonus"][origin], ORIGINS[origin]),
      fact(
        byHand(store, row) ? "none" : time(tookMs(store, row)),
        byHand(store, row)
          ? "latency: nothing was computed to choose this token"
          : first && run
            ? `to make this token, reading the prompt included; ${time(firstTokenMs(store, run))} after the question`
            : "to make this token: its latency, from reading the one before it to choosing it",
      ),
      fact(`index ${count(store.indexAt(at))}`, `in trace.tokens() of run ${at.run}, where counting begins at 0`),
    );
  };

  return {
    element,
    show(now, preview) {
      at = now;
      const row = store.rowAt(now);
      element.hidden = row === undefined;
      if (row === undefined) return;
      const doubt = !preview && !store.picked && !store.running && !store.engine.steps;
      const hint = doubt ? ", where it hesitated most" : "";
      say(heading, `What else could it have said at token ${placeInAnswer(store, now) + 1}${hint}?`);
      const picked = placeInAnswer(store, store.selected) + 1;
      say(
        glance,
        preview
          ? `only a look under the pointer: click to pick it, token ${picked} stays picked`
          : "The pointer only looks; a click picks a token.",
      );
      showAlternatives(row);
      showFacts(row);
      element.classList.toggle("gl-look", preview);
      keepHeight(element);
    },
    focus: () => lines.find((l) => l.button.tabIndex === 0)?.button.focus(),
  };
}
