import { expect, test, vi } from "vitest";
import { encodeChunk } from "../dev/encode";
import { requestWords } from "../src/blocks_map_words";
import { decodeChunk } from "../src/chunk";
import { onlyChosen } from "../src/engine_bench";
import { EngineData } from "../src/engine_data";
import { fill, letters } from "../src/engine_words";
import { createStore, type Store } from "../src/store";
import { BLOCKS, engineChunk, type MadeStep, turnOf } from "./engine_made";
import { FakeModel, headerOf, rowsOf, runOf } from "./made";

const RUN: MadeStep[] = [
  {
    tables: { 0: { blocks: [0, 1], tokens: 5 } },
    decisions: [
      {
        request: 0,
        verdict: "prefill",
        tokens: 5,
        template: "{num_tokens} of {budget}",
        operands: [
          ["num_tokens", 5],
          ["budget", 16],
        ],
      },
    ],
    admissions: [{ request: 0, cached: 0 }],
  },
  {
    tables: { 0: { blocks: [0, 1], tokens: 6 }, 3: { blocks: [0, 2], tokens: 7 } },
    decisions: [
      { request: 0, verdict: "decode", tokens: 1 },
      { request: 3, verdict: "prefill", tokens: 3, template: "behind {head}", operands: [["head", 1]] },
    ],
    admissions: [
      {
        request: 3,
        cached: 4,
        template: "block {n1} (from token {token2})",
        operands: [
          ["n1", 1],
          ["token2", 4],
        ],
      },
    ],
  },
  { tables: { 3: { blocks: [0, 2], tokens: 8 } }, pool: [{ block: 1, event: "kept", request: 0, start: 4 }] },
  {
    tables: { 3: { blocks: [0, 2, 1], tokens: 9 } },
    pool: [{ block: 1, event: "evicted", request: 3, owner: 0, start: 4, policy: "the least recently used" }],
  },
  {
    tables: {},
    pool: [
      { block: 2, event: "emptied", request: 3 },
      { block: 0, event: "kept", request: 3 },
      { block: 1, event: "emptied", request: 3 },
    ],
  },
];

async function dataOf(...chunks: Promise<Uint8Array>[]): Promise<EngineData> {
  const data = new EngineData(() => "why?");
  for (const chunk of chunks) data.add(await decodeChunk(await chunk));
  return data;
}

test("any step can be asked for its tables, forth and back", async () => {
  const data = await dataOf(engineChunk(RUN));
  const tables = () => RUN.map((_, i) => [data.table(0, i), data.table(3, i), data.numTokens(3, i)]);
  const expected = [
    [[0, 1], [], 0],
    [[0, 1], [0, 2], 7],
    [[], [0, 2], 8],
    [[], [0, 2, 1], 9],
    [[], [], 0],
  ];
  expect(tables()).toEqual(expected);
  expect(tables().reverse()).toEqual(expected.reverse());
  expect(data.stepAt(1)).toMatchObject({ step: 6, scheduled: 4, budget: 16, blocksUsed: 3 });
});

test("a block is used, shared, kept or free, and knows what happened to it", async () => {
  const data = await dataOf(engineChunk(RUN));
  expect(data.block(1, 0)).toMatchObject({ state: "used", holders: [0, 3], filled: 4, hits: 1 });
  expect(data.block(0, 1)).toMatchObject({ state: "used", holders: [0], filled: 1, last: null });
  expect(data.block(2, 1)).toMatchObject({ state: "cached", holders: [], filled: 4, evicted: false });
  expect(data.block(2, 1).last).toMatchObject({ event: "kept", request: 0, step: 2 });
  expect(data.block(3, 1)).toMatchObject({ state: "used", holders: [3], evicted: true });
  expect(data.block(4, 1)).toMatchObject({ state: "free", evicted: false });
  expect(data.block(4, 0)).toMatchObject({ state: "cached", hits: 1 });
  expect(data.block(4, 7)).toMatchObject({ state: "free", last: null });
  expect(data.pool(1)).toMatchObject({ size: BLOCKS, used: 3, shared: 1, saved: 1 });
});

test("decisions come with their sentence, numbers filled in and requests by their letter", async () => {
  const data = await dataOf(engineChunk(RUN));
  expect(data.decision(0, 0)?.why).toBe("5 of 16");
  expect(data.decisions(1).map((d) => [d.request, d.verdict, d.tokens, d.why])).toEqual([
    [0, "decode", 1, ""],
    [3, "prefill", 3, "behind B"],
  ]);
  expect(data.decision(3, 0)).toBeNull();
  expect(data.admission(3, 3)).toMatchObject({ step: 1, cachedTokens: 4, why: "block 1 (from token 5)" });
  expect(data.admission(3, 4)).toBeNull();
  const need = "{n} blocks of {m} tokens, {k} are free";
  expect(
    fill(need, [
      ["n", 1],
      ["m", 2],
      ["k", 1],
    ]),
  ).toBe("1 block of 2 tokens, 1 is free");
  expect(fill("{{{name}}} {other}", [["name", 1234]])).toBe("{1\u202f234} {other}");
  const missed: [string, number][] = [
    ["token1", 3],
    ["id2", 7],
    ["id3", 8],
  ];
  const words = "differs at token {token1}: cached is token id {id2}, here it is {id3}";
  expect(fill(words, missed, (id) => ` w${id}`)).toBe("differs at token 4: cached is “·w7”, here it is “·w8”");
  expect([0, 25, 26, 701, 702].map(letters)).toEqual(["A", "Z", "AA", "ZZ", "AAA"]);
  expect(requestWords([1])).toBe("request B");
});

test("batches in any overlap are the whole, and a hole is seen", async () => {
  const whole = await dataOf(engineChunk(RUN));
  const parts = await dataOf(engineChunk(RUN, 0, 2), engineChunk(RUN, 1, 4), engineChunk(RUN, 4));
  for (let i = 0; i < RUN.length; i++) {
    expect(parts.holders(i)).toEqual(whole.holders(i));
    for (let b = 0; b < BLOCKS; b++) expect(parts.block(i, b)).toEqual(whole.block(i, b));
  }
  expect(whole.gap(await decodeChunk(await engineChunk(RUN, 2)))).toBe(false);
  expect((await dataOf(engineChunk(RUN, 0, 1))).gap(await decodeChunk(await engineChunk(RUN, 2)))).toBe(true);
});

test("a table of hundreds of changes is right at every step", async () => {
  const blocks: number[] = [];
  const steps = Array.from({ length: 300 }, (_, i): MadeStep => {
    if (i % 90 === 89) blocks.length = 10;
    blocks.push((i * 7) % 1000);
    return { tables: { 0: { blocks: [...blocks], tokens: 4 * blocks.length } } };
  });
  const data = await dataOf(engineChunk(steps));
  for (const i of [299, 0, 64, 63, 65, 128, 88, 89, 90, 179, 180, 250])
    expect(data.table(0, i)).toEqual(steps[i].tables[0].blocks);
});

test("rows of steps that are not there, and blocks outside the pool, do no harm", async () => {
  const chunk = headerOf({ words: ["evicted"] });
  const columns = {
    "pool.step": { data: Uint32Array.of(9) },
    "pool.block": { data: Uint32Array.of(4_000_000_000) },
    "holders.step": { data: Uint32Array.of(7) },
    "holders.request": { data: Uint32Array.of(0) },
  };
  const data = await dataOf(
    encodeChunk(chunk, columns),
    engineChunk([{ tables: { 0: { blocks: [9_000_000], tokens: 4 } } }]),
  );
  expect(data.holders(7)).toEqual([]);
  expect(data.pool(0).used).toBe(0);
  expect(data.poolSize).toBe(BLOCKS);
});

async function storeOf(): Promise<[Store, FakeModel]> {
  const model = new FakeModel({ at: { step: -1, request: -1, block: null }, selected: { run: 0, token: -1 } });
  const store = createStore(model.asModel());
  const answer = { ...rowsOf(0, 0, 3), "tokens.end_ms": { data: Float64Array.of(8, 18, 28) } };
  model.chunk(await encodeChunk(headerOf({ runs: [runOf(0)], first: { tokens: 0, stages: 0 } }), answer));
  model.chunk(await engineChunk(RUN, 0, RUN.length, { turns: [turnOf(3, { run: 0 }), turnOf(0)], seq: 1 }));
  await vi.waitFor(() => expect(store.engine.steps).toBe(RUN.length));
  return [store, model];
}

test("a step and a token are one place: picking one picks the other, in one message", async () => {
  const [store, model] = await storeOf();
  const heard: string[] = [];
  store.subscribe((change) => heard.push(change), new AbortController().signal);
  expect(store.at).toEqual({ step: 1, request: 0, block: null }); // the first of the fullest steps
  store.pick({ step: 1, request: 3 });
  expect([store.at.step, store.selected]).toEqual([1, { run: 0, token: 1 }]);
  expect([heard, model.saved]).toEqual([["select"], 1]);
  store.select(0, 2);
  expect(store.at).toEqual({ step: 2, request: 3, block: null });
  store.pick({ block: 2 });
  expect(model.get("at")).toEqual({ step: 2, request: 3, block: 2 });
  store.pick({ step: 99, request: 0 });
  expect(store.at).toEqual({ step: 4, request: 0, block: 2 });
  expect(store.selected).toEqual({ run: 0, token: 2 });
});

test("an answer opens at the token of the playhead, and never shows one that is not there yet", async () => {
  const [store, model] = await storeOf();
  const text = onlyChosen(store);
  expect(text.selected).toEqual({ run: -1, token: -1 }); // the playhead stands at request 0, which has no answer
  model.set("at", { step: 1, request: 3, block: null });
  expect([store.picked, store.selected, text.selected]).toEqual([null, { run: 0, token: 1 }, { run: 0, token: 1 }]);
  model.set("selected", { run: 0, token: 2 });
  expect(text.selected).toEqual({ run: 0, token: 1 });
  store.pick({ step: 2 });
  expect(text.selected).toEqual({ run: 0, token: 2 });
  store.pick({ step: -1 });
  expect([store.picked, store.pickedAt]).toEqual([null, null]);
});

test("a place that another recording left behind is no place", async () => {
  const [store, model] = await storeOf();
  model.set("at", { step: 400, request: 3, block: 1 });
  expect(store.at.step).toBe(1);
  store.pick({ step: 0 });
  store.pick({ step: -1 });
  expect(store.pickedAt).toBeNull();
});
