/**
 * Tokens that are only part of a character: an emoji has four bytes and may be spread over as many tokens.
 *
 * Receives bytes; returns which characters they make up, and which part of which character each token is. Pure.
 */

interface Span {
  from: number;
  to: number;
  /** null: these bytes are no character. */
  character: string | null;
  /** They could still become one. */
  unfinished: boolean;
}

/** A piece of one token: text of its own, or a part of a character that others hold too. */
export interface Piece {
  text: string;
  part: number;
  of: number;
  kind: "text" | "part" | "unfinished" | "none";
}

const decoder = new TextDecoder();

/** Bytes that a character beginning with `first` has; 0 when none begins so. */
const needed = (first: number): number =>
  first < 0x80 ? 1 : first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;

function follows(data: Uint8Array, from: number, i: number): boolean {
  const [first, byte] = [data[from], data[i]];
  if ((byte & 0xc0) !== 0x80) return false;
  if (i > from + 1) return true;
  return !(
    (first === 0xe0 && byte < 0xa0) ||
    (first === 0xed && byte > 0x9f) ||
    (first === 0xf0 && byte < 0x90) ||
    (first === 0xf4 && byte > 0x8f)
  );
}

export function spans(data: Uint8Array): Span[] {
  const out: Span[] = [];
  for (let from = 0; from < data.length; ) {
    const need = needed(data[from]);
    let to = from + 1;
    while (to < data.length && to < from + need && follows(data, from, to)) to++;
    const whole = to - from === need;
    const character = whole ? decoder.decode(data.subarray(from, to)) : null;
    out.push({ from, to, character, unfinished: !whole && need > 0 && to === data.length });
    from = to;
  }
  return out;
}

const joined = (data: readonly Uint8Array[]): Uint8Array => Uint8Array.from(data.flatMap((d) => [...d]));

/** The pieces of each of several tokens that follow each other. */
export function piecesOf(data: readonly Uint8Array[]): Piece[][] {
  const ends: number[] = [];
  for (const d of data) ends.push((ends.at(-1) ?? 0) + d.length);
  const out: Piece[][] = data.map(() => []);
  for (const { from, to, character, unfinished } of spans(joined(data))) {
    const holders = ends.flatMap((end, i) => (end - data[i].length < to && end > from ? [i] : []));
    holders.forEach((i, n) => {
      const kind = character === null ? (unfinished ? "unfinished" : "none") : holders.length > 1 ? "part" : "text";
      const last = out[i].at(-1);
      if (kind === "text" && last?.kind === "text") last.text += character;
      else out[i].push({ text: character ?? "", part: n + 1, of: holders.length, kind });
    });
  }
  return out;
}

/** Tokens before and after one that may hold parts of the same character. */
const REACH = 3;

type RawAt = (i: number) => Uint8Array | null;

function walk(rawAt: RawAt, i: number, step: number): Uint8Array[] {
  const out: Uint8Array[] = [];
  for (let n = 1; n <= REACH; n++) {
    const raw = rawAt(i + n * step);
    if (!raw) break;
    out.push(raw);
  }
  return out;
}

/** Bytes of the tokens just before a place that are not whole characters either. */
export const rawBefore = (rawAt: RawAt, i: number): Uint8Array[] => walk(rawAt, i, -1).reverse();

/** The pieces of the token at a place, as its neighbours complete them; null when it is whole characters. */
export function piecesAround(rawAt: RawAt, i: number): Piece[] | null {
  const raw = rawAt(i);
  if (!raw) return null;
  const before = rawBefore(rawAt, i);
  return piecesOf([...before, raw, ...walk(rawAt, i, 1)])[before.length];
}

const hex = (data: Uint8Array): string =>
  Array.from(data, (b) => b.toString(16).padStart(2, "0"))
    .join(" ")
    .toUpperCase();

/** A piece in words. */
export function pieceWords({ text, part, of, kind }: Piece): string {
  if (kind === "text") return text;
  if (kind === "part") return `⟨part ${part} of ${of} of ${text}⟩`;
  return kind === "none" ? "⟨part of no character⟩" : `⟨part ${part} of a character that was not finished⟩`;
}

/** "⟨last part of 😀⟩" as "😀 ⟨last part⟩", so that what tells one from another is not cut off where room is short. */
export const characterFirst = (name: string): string => name.replace(/⟨([^⟩]*?)(?: of |: )([^⟩]+)⟩/, "$2 ⟨$1⟩");

/** Bytes at the end that have begun a character. */
export function pendingOf(data: readonly Uint8Array[]): Uint8Array {
  const all = joined(data);
  const last = spans(all).at(-1);
  return last?.unfinished ? all.subarray(last.from) : new Uint8Array(0);
}

/** A token that might come after `pending`, in words; `show` makes whole characters visible. */
export function candidateWords(data: Uint8Array, pending: Uint8Array, show = (text: string) => text): string {
  const whole = joined([pending, data]);
  const begun = pending.length;
  return spans(whole)
    .filter(({ to }) => to > begun)
    .map(({ from, to, character, unfinished }) => {
      const mine = hex(whole.subarray(Math.max(from, begun), to));
      if (character !== null) return from < begun ? `⟨last part of ${character}⟩` : show(character);
      if (unfinished) return `⟨${from < begun ? "goes on with" : "begins"} a character: ${mine}⟩`;
      return `⟨part of a character: ${mine}⟩`;
    })
    .join("");
}
