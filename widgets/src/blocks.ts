/**
 * Where a long answer is cut into blocks of its own layout.
 *
 * A browser lays out one flat paragraph again from the start whenever a token is added; separate blocks keep adding cheap.
 * A block ends a line on screen, so it prefers places where the text does that anyway.
 */
const AT_LINE_END = 128;
const AT_SENTENCE_END = 256;
const AT_ANY = 512;
const SENTENCE = /[.!?…]["'”’)\]]*$/;

/** Whether a block that holds `size` tokens ends after the token `text`. */
export function endsBlock(size: number, text: string): boolean {
  if (size >= AT_LINE_END && text.endsWith("\n")) return true;
  if (size >= AT_SENTENCE_END && SENTENCE.test(text)) return true;
  return size >= AT_ANY;
}

/** How strongly a value is tinted, 0 to 1, on a scale that a few outliers cannot flatten. */
export function share(value: number, low: number, high: number): number {
  if (!(high > low)) return value > high ? 1 : 0;
  return Math.max(0, Math.min(1, (value - low) / (high - low)));
}
