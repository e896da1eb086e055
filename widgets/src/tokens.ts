/**
 * Tokens and runs as words: how a token looks in a line of text, and what a run is called.
 */
import { h } from "./dom";
import { count, oneLine, percent, shown, time, visible } from "./format";
import { candidateWords, type Piece, pendingOf, piecesAround, pieceWords, rawBefore } from "./parts";
import type { Run, Store } from "./store";
import type { RunInfo, Selection, Settings } from "./types";

const ENDS = /end|eos|eot|<\/s>/i;

/** Id of the token at a place of a run's rows; places before 0 are the parent's. */
function idAt(store: Store, run: Run, i: number): number | undefined {
  if (i >= 0) return run.rows[i] === undefined ? undefined : store.tokens.get("token", run.rows[i]);
  const { parent, fork } = run.info;
  const from = parent === null || store.firstIndex(run) > 0 ? undefined : store.run(parent);
  return from && idAt(store, from, (fork ?? 0) + i - store.firstIndex(from));
}

/** The bytes of the token at a place of a run's rows, if it is not whole characters. */
const rawIn =
  (store: Store, run: Run) =>
  (i: number): Uint8Array | null => {
    const id = idAt(store, run, i);
    return id === undefined ? null : store.raw(id);
  };

/** The pieces of a token that is not whole characters, as its neighbours complete them; null for any other. */
export const piecesAt = (store: Store, run: Run, i: number): Piece[] | null => piecesAround(rawIn(store, run), i);

/** The token at a place as one word; a part of a character says of which: "⟨part 2 of 4 of 😀⟩". */
export function nameAt(store: Store, at: Selection): string {
  const run = store.run(at.run);
  const pieces = run && piecesAt(store, run, at.token);
  if (pieces) return pieces.map((p) => (p.kind === "text" ? visible(p.text) : shown(pieceWords(p)))).join("");
  const row = store.rowAt(at);
  return row === undefined ? "" : word(store, store.tokens.get("token", row));
}

/** The token at a place where there is little room: "😀 2/4". */
export function shortAt(store: Store, at: Selection): string {
  const run = store.run(at.run);
  const pieces = run && piecesAt(store, run, at.token);
  if (!pieces) return nameAt(store, at);
  const short = ({ text, part, of, kind }: Piece) =>
    kind === "text" ? visible(text) : `${text ? shown(text) : "◌"} ${part}/${kind === "part" ? of : "?"}`;
  return pieces.map(short).join("");
}

/** A token that could stand at a place, as one word. */
export function candidateName(store: Store, at: Selection, id: number): string {
  const raw = store.raw(id);
  const run = store.run(at.run);
  if (!raw || !run) return word(store, id);
  return shown(candidateWords(raw, pendingOf(rawBefore(rawIn(store, run), at.token)), visible));
}

/** A token as one word for a list, a label or a sentence. */
export function word(store: Store, id: number): string {
  const raw = store.raw(id);
  if (raw) return shown(candidateWords(raw, new Uint8Array(0), visible));
  const text = store.text(id);
  return store.special(id) && ENDS.test(text) ? "end of answer" : visible(text) || "(empty)";
}

/** A token inside the answer: leading spaces as dots, line ends as arrows, everything else as it is. A character of
 * several tokens stands in the first of them, the others say which part they are. */
export function tokenSpan(store: Store, run: Run, i: number): HTMLElement {
  const span = h("span", { class: "gl-tk" });
  fillToken(span, store, run, i);
  return span;
}

/** Writes a token into its span; again when the tokens after it have completed its character. */
export function fillToken(span: HTMLElement, store: Store, run: Run, i: number): void {
  const id = store.tokens.get("token", run.rows[i]);
  const special = store.special(id);
  span.classList.toggle("gl-special", special);
  const pieces = piecesAt(store, run, i);
  if (special) span.textContent = ` ${word(store, id)} `;
  else if (pieces) {
    span.title = nameAt(store, { run: run.info.run, token: i });
    span.replaceChildren(...pieces.flatMap(pieceNodes));
  } else span.replaceChildren(...textNodes(store.text(id)));
}

function textNodes(text: string): (Node | string)[] {
  const [, spaces, middle, ends] = /^( *)([\s\S]*?)(\n*)$/.exec(text) ?? ["", "", text, ""];
  const mark = (name: string, sign: string, n: number) => (n ? [h("span", { class: name }, sign.repeat(n))] : []);
  return [...mark("gl-ws gl-sp", "·", spaces.length), shown(middle), ...mark("gl-ws", "↵", ends.length)];
}

function pieceNodes({ text, part, of, kind }: Piece): (Node | string)[] {
  if (kind === "text") return textNodes(text);
  const mark = h("small", { class: "gl-part" }, kind === "part" ? `${part}/${of}` : `${part}/?`);
  return part > 1 ? [mark] : [kind === "part" ? shown(text) : "◌", mark];
}

/** The prompt of its parent answered once more, and not a branch of the answer. */
export const isAgain = ({ info }: Run): boolean => info.parent !== null && info.fork === 0 && info.forced === null;

const sortOf = (run: Run): string => (run.info.parent === null ? "answer" : isAgain(run) ? "again" : "branch");

/** "answer", "answer 2", "branch 1", "again 1". */
export function runName(store: Store, run: Run): string {
  const sort = sortOf(run);
  const same = store.runs.filter((r) => sortOf(r) === sort);
  return sort === "answer" && same.length === 1 ? sort : `${sort} ${same.indexOf(run) + 1}`;
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

/** What a run answers, on one line: of a long question its beginning, of a text that the answer goes on with its end. */
export function askedWords({ question, prompt_text }: RunInfo): string {
  const text = question || prompt_text;
  const goesOn = text.startsWith("…") || prompt_text.trimEnd().endsWith(text.trimEnd());
  return oneLine(text, 150, goesOn ? "front" : "end");
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
  const there = { run: from.info.run, token: fork - store.firstIndex(from) };
  const place = placeInAnswer(store, there) + 1;
  const of = from.info.parent === null ? "" : ` in ${runName(store, from)}`;
  const old = from.rows[there.token];
  if (forced === null)
    return isAgain(run)
      ? `${title}: the same question once more${changed}`
      : `${title}: drawn anew from token ${place}${of} on${changed}`;
  const quote = (id: number, p: number) => `“${oneLine(candidateName(store, there, id), 24)}” (${percent(p)})`;
  const chosen = run.rows.length ? store.tokens.get("prob", run.rows[0]) : Number.NaN;
  const instead =
    old === undefined ? "" : ` in place of ${quote(store.tokens.get("token", old), store.tokens.get("prob", old))}`;
  return `${title} at token ${place}${of}: ${quote(forced, chosen)}${instead}${changed}`;
}

/** Tokens of the text just before a place in a run, branches followed back into their parents. */
export function textBefore(store: Store, at: Selection, tokens: number): string {
  const parts: string[] = [];
  let run = store.run(at.run);
  let end = at.token; // of what was there before, in the run's rows
  let i = end - 1;
  while (run && parts.length < tokens) {
    if (i < 0) {
      const { parent, fork }: Run["info"] = run.info;
      const from: Run | undefined = parent === null || store.firstIndex(run) > 0 ? undefined : store.run(parent);
      end = (fork ?? 0) - (from ? store.firstIndex(from) : 0);
      i = end - 1;
      run = from;
      continue;
    }
    if (run.rows[i] === undefined) break;
    const known = (p: Piece) => p.kind === "text" || (p.kind === "part" && i + p.of - p.part < end);
    const pieces = piecesAt(store, run, i);
    const whole = pieces?.map((p) => (p.part > 1 ? "" : known(p) ? p.text : "◌")).join("");
    parts.unshift(whole ?? store.text(store.tokens.get("token", run.rows[i])));
    i--;
  }
  if (!parts.join("")) return "";
  const earlier = placeInAnswer(store, at) > parts.length;
  return `${earlier ? "… " : ""}${oneLine(parts.join("").trimStart(), 80, "front")}`;
}

/** Place of a token in the whole answer, counted from 0: a branch goes on counting where it left its parent. */
export function placeInAnswer(store: Store, at: Selection): number {
  let place = store.indexAt(at);
  for (let run = store.run(at.run); run && run.info.parent !== null; run = store.run(run.info.parent))
    place += run.info.fork ?? 0;
  return place;
}

/** Whether a token was put there by hand: nothing was computed for it. */
export function byHand(store: Store, row: number): boolean {
  const run = store.run(store.tokens.get("run", row));
  return !!run && run.info.forced !== null && row === run.rows[0] && store.firstIndex(run) === 0;
}

/** The latency of a token in ms, everywhere: from when the model begins to read what is new until the token is chosen and
 * part of the text, `latency_ms` in trace.tokens(). NaN for one put there by hand. */
export const tookMs = (store: Store, row: number): number =>
  byHand(store, row) ? Number.NaN : store.tokens.get("end_ms", row) - store.tokens.get("start_ms", row);

/** That, in words after the token's name. */
export const tookWords = (store: Store, row: number): string =>
  byHand(store, row) ? "was put here by hand" : `took ${time(tookMs(store, row))}`;

/** How speculation made a token, in words: 0 did not, then the column `origin`. */
export const ORIGINS = [
  "",
  "somebody proposed this token ahead of the model, and the model accepted it",
  "the model's own token, in the place of a proposed one that it rejected",
  "the model's own token, behind proposed ones that it all accepted: a bonus",
];

/** That of a token. */
export const originOf = (store: Store, row: number): number => store.tokens.get("origin", row) || 0;

/** Rows of the tokens after the first one that the model wrote: that one waited for the whole prompt. */
export function laterRows(store: Store, run: Run): number[] {
  const skip = Math.max(0, (run.info.forced === null ? 1 : 2) - store.firstIndex(run));
  return run.rows.slice(skip);
}

/** What "latency" means, for a caption. */
export const LATENCY_WORDS =
  "The time of a token runs from when the model begins to read what is new until the token is chosen and part of the text (latency_ms in trace.tokens()).";

/** What the recorder could not keep, in a sentence. */
export function lostWords(store: Store): string {
  const { tokens = 0, stages = 0 } = store.header?.origin.dropped ?? {};
  const lost = (n: number, what: string) =>
    n === 1
      ? ` The first ${what} did not fit into the recorder and is missing.`
      : n
        ? ` The first ${count(n)} ${what}s did not fit into the recorder and are missing.`
        : "";
  return lost(tokens, "token") + lost(stages, "stage time");
}

/** Where the numbers come from, for a caption. */
export function originWords(store: Store): string {
  const { model, origin } = store.header ?? {};
  return `${model?.name ?? "A model"}${origin?.machine ? `, ${origin.machine}` : ""}.${lostWords(store)}`;
}

/** From the question to the end of the first token; NaN when that token is not here. */
export const firstTokenMs = (store: Store, run: Run): number =>
  run.rows.length && store.firstIndex(run) === 0
    ? store.tokens.get("end_ms", run.rows[0]) - run.info.start_ms
    : Number.NaN;
