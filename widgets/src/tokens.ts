/**
 * Tokens and runs as words: how a token looks in a line of text, and what a run is called.
 */
import { h } from "./dom";
import { oneLine, percent, shown, visible } from "./format";
import type { Run, Store } from "./store";
import type { Selection, Settings } from "./types";

const ENDS = /end|eos|eot|<\/s>/i;

/** A token as one word for a list, a label or a sentence. */
export function word(store: Store, id: number): string {
  const text = store.text(id);
  return store.special(id) && ENDS.test(text) ? "end of answer" : visible(text) || "(empty)";
}

/** The same, short enough for a sentence. */
export const brief = (store: Store, id: number): string => oneLine(word(store, id), 24);

/** A token inside the answer: leading spaces as dots, line ends as arrows, everything else as it is. */
export function tokenSpan(store: Store, id: number): HTMLElement {
  const text = store.text(id);
  if (store.special(id)) return h("span", { class: "gl-tk gl-special" }, ` ${word(store, id)} `);
  const [, spaces, middle, ends] = /^( *)([\s\S]*?)(\n*)$/.exec(text) ?? ["", "", text, ""];
  return h(
    "span",
    { class: "gl-tk" },
    spaces && h("span", { class: "gl-ws gl-sp" }, "·".repeat(spaces.length)),
    shown(middle),
    ends && h("span", { class: "gl-ws" }, "↵".repeat(ends.length)),
  );
}

/** "answer", "answer 2", "branch 1". */
export function runName(store: Store, run: Run): string {
  const root = (r: Run) => r.info.parent === null;
  const same = store.runs.filter((r) => root(r) === root(run));
  const n = same.indexOf(run) + 1;
  return root(run) ? (same.length > 1 ? `answer ${n}` : "answer") : `branch ${n}`;
}

const NAMES: [keyof Settings, string, number][] = [
  ["temperature", "temperature", Number.NaN],
  ["repetition_penalty", "penalty", 1],
  ["top_k", "top‑k", 0],
  ["top_p", "top‑p", 0],
  ["min_p", "min‑p", 0],
];

const setting = (s: Settings, key: keyof Settings, off: number): string => {
  const v = Number(s[key]);
  if (v === off || (key === "top_p" && v >= 1)) return "off";
  return key === "top_k" ? String(v) : v.toFixed(2);
};

/** What differs between two runs' settings, in words; empty when nothing does. */
export function settingsChange(before: Settings, after: Settings): string {
  if (after.mode === "greedy") return before.mode === "greedy" ? "" : "always the most likely token";
  const parts = NAMES.filter(([key]) => before.mode !== after.mode || before[key] !== after[key])
    .map(([key, name, off]) => [name, setting(after, key, off)])
    .filter(([, value]) => before.mode === after.mode || value !== "off");
  return parts.map(([name, value]) => `${name} ${value}`).join(", ");
}

/** How the tokens of a run were picked, in words. */
export function settingsWords(s: Settings): string {
  if (s.mode === "greedy") return "always taking the most likely token";
  const parts = NAMES.map(([key, name, off]) => [name, setting(s, key, off)]).filter(([, value]) => value !== "off");
  return `sampling with ${parts.map(([name, value]) => `${name} ${value}`).join(", ")}`;
}

/** What a branch is: where it leaves its parent, and what was put there. */
export function branchTitle(store: Store, run: Run): string {
  const { parent, fork, forced, settings } = run.info;
  const from = parent === null ? undefined : store.run(parent);
  const name = runName(store, run);
  const title = name[0].toUpperCase() + name.slice(1);
  if (!from || fork === null) return title;
  const change = settingsChange(from.info.settings, settings);
  const changed = change ? `, with ${change}` : "";
  const place = placeInAnswer(store, { run: from.info.run, token: fork }) + 1;
  const of = from.info.parent === null ? "" : ` in ${runName(store, from)}`;
  const old = from.rows[fork];
  if (forced === null)
    return fork === 0
      ? `${title}: the same question once more${changed}`
      : `${title}: drawn anew from token ${place}${of} on${changed}`;
  const quote = (id: number, p: number) => `“${brief(store, id)}” (${percent(p)})`;
  const chosen = run.rows.length ? store.tokens.get("prob", run.rows[0]) : Number.NaN;
  const instead =
    old === undefined ? "" : ` in place of ${quote(store.tokens.get("token", old), store.tokens.get("prob", old))}`;
  return `${title} at token ${place}${of}: ${quote(forced, chosen)}${instead}${changed}`;
}

/** Tokens of the text just before a place in a run, branches followed back into their parents. */
export function textBefore(store: Store, at: Selection, tokens: number): string {
  const parts: string[] = [];
  let run = store.run(at.run);
  let i = at.token - 1;
  while (run && parts.length < tokens) {
    if (i < 0) {
      i = (run.info.fork ?? 0) - 1;
      run = run.info.parent === null ? undefined : store.run(run.info.parent);
      continue;
    }
    parts.unshift(store.text(store.tokens.get("token", run.rows[i])));
    i--;
  }
  if (!parts.length) return "";
  const earlier = placeInAnswer(store, at) > parts.length;
  return `${earlier ? "… " : ""}${oneLine(parts.join("").trimStart(), 80, "front")}`;
}

/** Place of a token in the whole answer, counted from 0: a branch goes on counting where it left its parent. */
export function placeInAnswer(store: Store, at: Selection): number {
  let place = at.token;
  for (let run = store.run(at.run); run && run.info.parent !== null; run = store.run(run.info.parent))
    place += run.info.fork ?? 0;
  return place;
}

export const tookMs = (store: Store, row: number): number =>
  store.tokens.get("end_ms", row) - store.tokens.get("start_ms", row);

/** Where the numbers come from, for a caption. */
export function originWords(store: Store): string {
  const { model, origin } = store.header ?? {};
  const lost = origin?.dropped_events ? ` ${origin.dropped_events} events did not fit into the recorder.` : "";
  return `${model?.name ?? "A model"}${origin?.machine ? `, ${origin.machine}` : ""}.${lost}`;
}

export const firstTokenMs = (store: Store, run: Run): number =>
  run.rows.length ? store.tokens.get("end_ms", run.rows[0]) - run.info.start_ms : Number.NaN;
