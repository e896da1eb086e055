/**
 * Blocks in words: whose one is, what it holds, and why it is as it is.
 *
 * Reads the store; every sentence names the numbers it rests on.
 */
import type { Block } from "./engine_pool";
import { letters } from "./engine_words";
import { count, ordinal, shown } from "./format";
import { type Piece, piecesAround, pieceWords } from "./parts";
import type { Store } from "./store";
import type { Selection } from "./types";

const LONGEST = 96;
const LISTED = 6;

export const plural = (n: number, one: string): string => `${count(n)} ${one}${n === 1 ? "" : "s"}`;

/** "request B", "requests A and B", "6 requests at once (A, B, …)". */
export function requestWords(requests: readonly number[]): string {
  if (requests.length === 1) return `request ${letters(requests[0])}`;
  const named = requests.slice(0, LISTED).map(letters).join(", ");
  return `${count(requests.length)} requests at once (${named}${requests.length > LISTED ? ", …" : ""})`;
}

/** The engine's own number of a step. */
const stepName = (store: Store, i: number): string => count(store.engine.stepAt(i).step);

const tokenRange = (start: number, length: number): string => `tokens ${count(start + 1)} to ${count(start + length)}`;

/** What to write for a token's piece: a character stands where it begins, if that is `here`. */
const partText = (piece: Piece, here: boolean): string =>
  piece.kind !== "part" || !here ? pieceWords(piece) : piece.part === 1 ? piece.text : "";

/** The tokens at positions [from, to) of a request's text as far as they were recorded, and the first answer token. */
export function textAt(
  store: Store,
  request: number,
  step: number,
  from: number,
  to: number,
): { text: string; token: Selection | null } {
  const { engine } = store;
  const turn = engine.turnAt(request, step);
  const run = turn?.run;
  if (run === null || run === undefined) return { text: "", token: null };
  const prompt = engine.promptOf(run);
  const answer = store.run(run);
  const before = answer?.info.prompt_tokens ?? prompt.length;
  // the recorder may have dropped the beginning of the answer
  const start = before + (answer ? store.firstIndex(answer) : 0);
  const idAt = (p: number): number | undefined => {
    const row = p < before ? undefined : answer?.rows[p - start];
    return p < before ? prompt[p] : row === undefined ? undefined : store.tokens.get("token", row);
  };
  let text = "";
  let token: Selection | null = null;
  for (let p = from; p < to; p++) {
    const id = idAt(p);
    if (id === undefined) continue;
    if (p >= before) token ??= { run, token: p - start };
    const pieces = piecesAround((i) => store.raw(idAt(i) ?? -1), p);
    if (pieces) text += pieces.map((piece) => partText(piece, p - piece.part + 1 >= from)).join("");
    else text += store.special(id) ? ` ⟦${store.text(id).replace(/^<\|?|\|?>$/g, "")}⟧ ` : store.text(id);
  }
  return { text: shown(text.replace(/\s+/g, " ").trim()), token };
}

const short = (text: string): string => (text.length > LONGEST ? `${text.slice(0, LONGEST - 1)}…` : text);

export interface BlockWords {
  title: string;
  /** Its place and fill. */
  what: string;
  why: string;
  /** The text in it, when known. */
  holds: string;
  /** The first token of an answer in it. */
  token: Selection | null;
}

/** Everything to say of a block after a step, seen from one request if that holds it. */
export function blockWords(store: Store, step: number, id: number, seenBy: number): BlockWords {
  const block = store.engine.block(step, id);
  const title = `Block ${count(id)}`;
  if (block.state === "used") return { title, ...usedWords(store, step, block, seenBy) };
  const why = block.state === "cached" ? keptWords(store, step, block) : freeWords(store, block);
  const what = block.state === "cached" ? "free, but its content is kept" : "free and empty";
  const source = block.state === "cached" && block.last ? block.last : null;
  const holds = source ? textAt(store, source.owner, step, source.start, source.start + block.filled).text : "";
  return { title, what, why, holds: short(holds), token: null };
}

function usedWords(store: Store, step: number, block: Block, seenBy: number): Omit<BlockWords, "title"> {
  const { engine } = store;
  const request = block.holders.includes(seenBy) ? seenBy : block.holders[0];
  const place = engine.table(request, step).indexOf(block.block);
  const { blockSize } = engine;
  const what = `${ordinal(place + 1)} block of ${requestWords(block.holders)}, ${block.filled} of ${blockSize} slots filled`;
  const { text, token } = textAt(store, request, step, place * blockSize, place * blockSize + block.filled);
  return { what, why: originOf(store, step, block, request, place), holds: short(text), token };
}

/** How a request came to a block that it holds. */
function originOf(store: Store, step: number, block: Block, request: number, place: number): string {
  const { engine } = store;
  const name = letters(request);
  const since = engine.since(request, step, place) ?? step;
  const admission = engine.admission(request, step);
  const found = admission && admission.step === since && (place + 1) * engine.blockSize <= admission.cachedTokens;
  const tokens = tokenRange(place * engine.blockSize, engine.blockSize);
  const twin = found ? undefined : block.holders.find((r) => r !== request && heldBefore(store, r, step, place, since));
  const first = found
    ? `Found in the cache when ${name} was admitted in step ${stepName(store, since)}: ${tokens} were taken over, not computed again.`
    : twin === undefined
      ? `Taken by ${name} in step ${stepName(store, since)} for ${tokens} of its text.`
      : `${name} and ${letters(twin)} computed the same ${tokens} side by side; since step ${stepName(store, since)} both use this one.`;
  const lost = engine.events(since).find((e) => e.block === block.block && e.event === "evicted");
  const before = !found && twin === undefined && lost ? ` ${lostWords(store, lost.owner, lost.start, lost)}` : "";
  const hits = block.hits > 0 && !found ? ` Since then ${plural(block.hits, "request")} took it over.` : "";
  return first + before + hits;
}

/** Whether another holder got the same place not later, so that this one joined it. */
const heldBefore = (store: Store, request: number, step: number, place: number, since: number): boolean =>
  (store.engine.since(request, step, place) ?? step) <= since;

/** Why earlier content had to go. */
function lostWords(
  store: Store,
  owner: number,
  start: number,
  event: { policy: string; candidates: number; request: number },
): string {
  const what = `${tokenRange(start, store.engine.blockSize)} of request ${letters(owner)}`;
  return `For that its earlier content, ${what}, was evicted: it was ${event.policy} of ${plural(event.candidates, "kept block")}.`;
}

function keptWords(store: Store, step: number, block: Block): string {
  const last = block.last;
  if (!last) return "";
  const what = `${tokenRange(last.start, block.filled)} of request ${letters(last.owner)}`;
  const when = last.step === step ? "in this step" : `in step ${stepName(store, last.step)}`;
  const hits = block.hits > 0 ? ` It was taken over ${plural(block.hits, "time")} so far.` : "";
  return (
    `Kept for its content, ${what}; last used by request ${letters(last.request)} ${when}. Whoever begins with the same ` +
    `text takes it over; when room is needed, it can be given up.${hits}`
  );
}

function freeWords(store: Store, block: Block): string {
  const last = block.last;
  if (!last) return "Nobody used it so far.";
  const when = `in step ${stepName(store, last.step)}`;
  if (last.event === "emptied")
    return `Request ${letters(last.request)} let it go ${when} without content that could be found again: only full blocks can.`;
  return `Its content, ${tokenRange(last.start, store.engine.blockSize)} of request ${letters(last.owner)}, was evicted ${when} because request ${letters(last.request)} needed room.`;
}

/** What became of the prefix when a request was admitted. */
export function admissionWords(store: Store, request: number, step: number): string {
  const { engine } = store;
  const found = engine.admission(request, step);
  if (!found) return "";
  const blocks = Math.floor(found.cachedTokens / (engine.blockSize || 1));
  const what = blocks
    ? `${plural(blocks, "block")} found in the cache, ${plural(found.cachedTokens, "token")} not computed again`
    : "nothing found in the cache";
  const why = found.why ? `. Why ${blocks ? "not more" : "not"}: ${found.why}` : "";
  return `${letters(request)} was admitted in step ${stepName(store, found.step)}: ${what}${why}.`;
}
