import { expect, test } from "vitest";
import { endsBlock, share } from "../src/blocks";
import { linesOf } from "../src/candidates";
import { emptyWords, treeOrder } from "../src/ribbon";
import type { Run, Store } from "../src/store";
import { ORIGINS, originOf } from "../src/tokens";
import { runOf } from "./made";

/** Sizes of the blocks that a text of `n` tokens is cut into. */
function blocksOf(n: number, textAt: (i: number) => string): number[] {
  const out: number[] = [];
  let size = 0;
  for (let i = 0; i < n; i++) {
    size++;
    if (!endsBlock(size, textAt(i)) && i < n - 1) continue;
    out.push(size);
    size = 0;
  }
  return out;
}

test("an empty recording says why: it is read, it waits, or no answer was recorded", () => {
  const said = (kernel: string, stop: boolean, ready = true) =>
    emptyWords({ ready, kernel, can: { branch: false, stop } } as Store);
  expect(said("unknown", false, false)).toMatch(/^Reading/);
  expect(said("present", true)).toMatch(/^Waiting to begin/);
  expect(said("absent", true)).toMatch(/^No answer has been recorded/);
  expect(said("present", false)).toMatch(/^No answer has been recorded \(beam search keeps none\)/);
});

test("every token is in one block, and no block grows beyond 512", () => {
  for (const text of [" word", ".\n", "。", "\n\n"]) {
    const sizes = blocksOf(5000, () => text);
    expect(sizes.reduce((a, b) => a + b)).toBe(5000);
    expect(Math.max(...sizes)).toBeLessThanOrEqual(512);
  }
});

test("a block ends where the text ends a line or a sentence", () => {
  expect(blocksOf(400, (i) => (i % 30 === 29 ? ".\n" : " a"))[0]).toBe(150);
  expect(blocksOf(400, (i) => (i % 30 === 29 ? "." : " a"))[0]).toBe(270);
});

test("one slow token does not flatten the others: values are clamped to the scale", () => {
  expect([10, 15, 20, 900].map((v) => share(v, 10, 20))).toEqual([0, 0.5, 1, 1]);
  expect([share(5, 7, 7), share(8, 7, 7)]).toEqual([0, 1]);
});

const run = (id: number, parent: number | null): Run => ({
  info: runOf(id, { parent, fork: parent === null ? null : 0 }),
  rows: [],
  stages: [],
  seq: 0,
});

test("branches stand under what they branch from, and closing one hides what hangs on it", () => {
  const runs = [run(0, null), run(1, 0), run(2, 0), run(3, 1), run(4, null), run(5, 3)];
  const told = (closed: number[]) => treeOrder({ runs }, new Set(closed)).map((x) => `${x.run.info.run}:${x.depth}`);
  expect(told([])).toEqual(["0:0", "1:1", "3:2", "5:3", "2:1", "4:0"]);
  expect(told([1])).toEqual(["0:0", "2:1", "4:0"]);
});

test("the pipeline's lines cover every rank of the vocabulary exactly once", () => {
  for (const [k, vocabulary, chosen] of [
    [64, 49152, 0],
    [64, 49152, 40],
    [64, 49152, -1],
    [64, 64, 3],
    [64, 500, 3],
    [10, 10, 9],
  ]) {
    const ranks: number[] = [];
    for (const line of linesOf(k, vocabulary, chosen))
      if (line.kind === "one") ranks.push(line.rank);
      else if (line.kind === "some") ranks.push(...line.slots.map((s) => s + 1));
      else for (let r = line.from; r <= line.to; r++) ranks.push(r);
    expect(ranks.sort((a, b) => a - b)).toEqual(Array.from({ length: vocabulary }, (_, i) => i + 1));
  }
});

test("the chosen candidate has a line of its own, wherever it stands", () => {
  for (const chosen of [0, 11, 12, 63])
    expect(linesOf(64, 49152, chosen).some((l) => l.kind === "one" && l.slot === chosen)).toBe(true);
});

test("what was let through has lines of its own, the rest of it one together, and unknown ranks are not made up", () => {
  const lines = linesOf(64, 49152, 60, 50, [30, 52, 53, 54, 55, 60, 61], 4711);
  const ones = lines.filter((l) => l.kind === "one");
  expect(ones.length).toBe(12);
  expect(ones.slice(-5)).toEqual([
    { kind: "one", slot: 30, rank: 31 },
    { kind: "one", slot: 52, rank: 0 },
    { kind: "one", slot: 53, rank: 0 },
    { kind: "one", slot: 54, rank: 0 },
    { kind: "one", slot: 60, rank: 4711 },
  ]);
  const together = lines.find((l) => l.kind === "some" && l.to === 0);
  expect(together?.kind === "some" && together.slots).toEqual([50, 51, 55, 56, 57, 58, 59, 61, 62, 63]);
  const first = lines.find((l) => l.kind === "band");
  expect(first?.kind === "band" && first.from).toBe(51);
});

test("what speculation made of a token has a word each, and none for a token that it did not make", () => {
  const told = (origin: number) => originOf({ tokens: { get: () => origin } } as unknown as Store, 0);
  expect([0, 1, 2, 3].map((origin) => ORIGINS[told(origin)].split(",")[0])).toEqual([
    "",
    "somebody proposed this token ahead of the model",
    "the model's own token",
    "the model's own token",
  ]);
  expect(told(Number.NaN)).toBe(0);
  expect(new Set(ORIGINS).size).toBe(4);
});
