/**
 * An engine's sentences: numbers put into a template, and how requests are called.
 *
 * Plain text in, plain text out. Knows nothing about where the sentences come from.
 */
import { count, visible } from "./format";

/** A sentence's numbers by name; those that name a request can be written otherwise. */
export type Operands = readonly (readonly [string, number])[];
const REQUESTS = /^(head|winner|leader|request\d*)$/;
/** Places in a text, which people count from 1. */
const PLACES = /^token\d*$/;
const IDS = /^id\d*$/;

/** Whether an operand is a request's number, which every picture writes as its letter. */
export const namesRequest = (key: string): boolean => REQUESTS.test(key);

/** Put numbers into a sentence by plain replacement: a text from elsewhere is never a format. */
export function fill(template: string, operands: Operands, textOf?: (id: number) => string): string {
  let text = template;
  for (const [key, value] of operands) {
    let words = count(PLACES.test(key) ? value + 1 : value);
    if (value === 1 && !PLACES.test(key)) text = singular(text, key);
    if (namesRequest(key)) words = letters(value);
    else if (textOf && IDS.test(key)) words = `“${visible(textOf(value))}”`;
    text = text.replace(textOf && IDS.test(key) ? `token id {${key}}` : `{${key}}`, () => words);
    text = text.split(`{${key}}`).join(words);
  }
  return text.replaceAll("{{", "{").replaceAll("}}", "}");
}

/** "{key} blocks are" where the number is 1: "{key} block is". */
const singular = (text: string, key: string): string =>
  text.replace(/\{(\w+)\}(?:( (?:token|block|row))s)?( are\b)?/g, (all, name, noun = "", verb = "") =>
    name === key ? `{${key}}${noun}${verb && " is"}` : all,
  );

/** Words that stand behind a sentence as one of their own: a capital, and a full stop. */
export const sentence = (words: string): string =>
  words && `${words[0].toUpperCase()}${words.slice(1)}${/[.!?]$/.test(words) ? "" : "."}`;

/** "A" to "Z", then "AA": how a request is called in every picture. */
export function letters(request: number): string {
  let n = Math.max(0, Math.floor(request));
  let text = "";
  do {
    text = String.fromCharCode(65 + (n % 26)) + text;
    n = Math.floor(n / 26) - 1;
  } while (n >= 0);
  return text;
}
