import { expect, test, vi } from "vitest";
import { encodeChunk } from "../dev/encode";
import { textAt } from "../src/blocks_map_words";
import { count, oneLine, ordinal, percent, quantile, shown, time, visible } from "../src/format";
import { candidateWords, characterFirst, pendingOf, piecesOf, pieceWords } from "../src/parts";
import { alternatives } from "../src/pin";
import { createStore, type Store } from "../src/store";
import { timesOf } from "../src/times";
import {
  askedWords,
  branchTitle,
  candidateName,
  firstTokenMs,
  lostWords,
  nameAt,
  placeInAnswer,
  runName,
  settingsChange,
  settingsWords,
  shortAt,
  textBefore,
  word,
} from "../src/tokens";
import { FakeModel, headerOf, rowsOf, runOf } from "./made";

test("shares show no more digits than were measured", () => {
  expect([1, 0.9996, 0.35, 0.0711, 0.0028, 0.0004, 0, Number.NaN].map(percent)).toEqual([
    "100 %",
    "100 %",
    "35 %",
    "7.1 %",
    "0.28 %",
    "< 0.1 %",
    "0",
    "–",
  ]);
});

test("times from microseconds to seconds", () => {
  expect([0.079, 0.71, 19.24, 186.2, 12_400, Number.NaN].map(time)).toEqual([
    "79 µs",
    "0.71 ms",
    "19.2 ms",
    "186 ms",
    "12.4 s",
    "–",
  ]);
});

test("counts and ordinals", () => {
  expect([1, 2, 3, 4, 11, 12, 13, 21, 112].map(ordinal)).toEqual([
    "1st",
    "2nd",
    "3rd",
    "4th",
    "11th",
    "12th",
    "13th",
    "21st",
    "112th",
  ]);
  expect(count(49152)).toBe("49\u202f152");
  expect(count(1234567)).toBe("1\u202f234\u202f567");
  expect(quantile([1, 2, 3, 4], 0.5)).toBe(2.5);
});

test("nothing invisible and nothing that turns the line around gets through", () => {
  expect(visible(" a\n")).toBe("·a↵");
  expect(shown("a\u202eb\u0000\u200b\t")).toBe("a�b␀�⇥");
  expect(shown("👩\u200d🚀")).toBe("👩\u200d🚀");
  expect(oneLine("one  two\nthree four", 12)).toBe("one two thr…");
  expect(oneLine("one two three four", 11, "front")).toBe("…three four");
});

test("of a continued conversation the end is shown, which the answer goes on from", () => {
  const before = "'I advise you to leave off this minute!' She generally gave herself very good advice. ".repeat(2);
  const text = `${before}The Queen said`;
  const cut = askedWords(runOf(0, { question: `…${text.slice(-159)}`, prompt_text: text }));
  expect(cut).toMatch(/^….*The Queen said$/);
  expect(cut).toHaveLength(150);
  expect(askedWords(runOf(0, { question: text, prompt_text: `${text}\n` }))).toBe(cut); // however short it was sent
  expect(askedWords(runOf(0, { question: "", prompt_text: text }))).toBe(cut);
  const chat = { question: `Translate this: ${text}`, prompt_text: `<user>Translate this: ${text}<assistant>` };
  expect(askedWords(runOf(0, chat))).toMatch(/^Translate this: .*…$/); // a known question begins with what is wanted
  expect(askedWords(runOf(0, { question: "Why?", prompt_text: "Why?" }))).toBe("Why?");
});

/** An answer "Hi you <end>" and a branch at its second token that goes on with "all". */
async function story(): Promise<Store> {
  const settings = { mode: "sample", temperature: 1, top_k: 0, top_p: 0, min_p: 0, repetition_penalty: 1 } as const;
  const greedy = { ...settings, mode: "greedy" } as const;
  const runs = [
    runOf(0, { settings }),
    runOf(1, { parent: 0, fork: 1, forced: 3, settings }),
    runOf(2, { parent: 0, fork: 0, settings: greedy }),
  ];
  const texts: [number, string, number][] = [
    [1, "Hi", 0],
    [2, " you", 0],
    [3, " all", 0],
    [4, "!", 0],
    [9, "<|im_end|>", 1],
  ];
  const bytes = await encodeChunk(headerOf({ runs, texts }), {
    "tokens.run": { data: Uint16Array.of(0, 0, 0, 1, 1) },
    "tokens.token": { data: Uint32Array.of(1, 2, 9, 3, 4) },
    "tokens.prob": { data: Float32Array.of(0.5, 0.5, 0.9, 0.25, 0.01) },
    "tokens.rank": { data: Uint32Array.of(1, 1, 1, 2, 40) },
    "tokens.top_ids": { data: Uint32Array.of(1, 2, 2, 3, 9, 1, 2, 3, 1, 2), width: 2 },
    "tokens.top_delta": { data: Uint16Array.of(0, 1024, 0, 710, 0, 9999, 0, 710, 0, 9), width: 2 },
    "tokens.log_z": { data: Float32Array.of(Math.LN2, Math.LN2, 0.1, Math.LN2, Math.LN2) },
  });
  const model = new FakeModel({ chunk: new DataView(bytes.buffer as ArrayBuffer) });
  const store = createStore(model.asModel());
  await vi.waitFor(() => expect(store.ready).toBe(true));
  return store;
}

test("runs have names, and a branch says where it leaves and what was put there", async () => {
  const store = await story();
  expect(store.runs.map((r) => runName(store, r))).toEqual(["answer", "branch 1", "again 1"]);
  expect(branchTitle(store, store.run(1)!)).toBe("Branch 1 at token 2: “·all” (25 %) in place of “·you” (50 %)");
  expect(branchTitle(store, store.run(2)!)).toBe(
    "Again 1: the same question once more, with always the most likely token",
  );
});

test("a branch's text goes back into its parent, and its tokens count on from there", async () => {
  const store = await story();
  expect(textBefore(store, { run: 1, token: 1 }, 5)).toBe("Hi all");
  expect(textBefore(store, { run: 1, token: 1 }, 1)).toBe("… all");
  expect(textBefore(store, { run: 0, token: 0 }, 5)).toBe("");
  expect(placeInAnswer(store, { run: 1, token: 1 })).toBe(2);
  expect(word(store, 9)).toBe("end of answer");
  expect(word(store, 777)).toBe("#777");
});

test("the chosen token is always among the alternatives, with its rank", async () => {
  const store = await story();
  expect(alternatives(store, 1)).toMatchObject([
    { rank: 1, id: 2, chosen: true },
    { rank: 2, id: 3, chosen: false },
  ]);
  expect(alternatives(store, 1)[0].prob).toBeCloseTo(0.5, 6);
  expect(alternatives(store, 4, 2)).toMatchObject([
    { rank: 1, id: 1, chosen: false },
    { rank: 40, id: 4, chosen: true },
  ]);
});

test("candidates that a grammar forbids say so, the chosen one never does", async () => {
  const model = new FakeModel();
  const store = createStore(model.asModel());
  model.chunk(
    await encodeChunk(headerOf({ runs: [runOf(0)], texts: [] }), {
      ...rowsOf(0, 0, 1),
      "tokens.top_ids": { data: Uint32Array.of(7, 8, 0), width: 3 },
      "tokens.top_delta": { data: Uint16Array.of(0, 100, 200), width: 3 },
      "changed.row": { data: Uint32Array.of(0) },
      "changed.id": { data: Uint32Array.of(7) },
      "changed.by": { data: Uint8Array.of(0) },
      "changed.delta": { data: Float32Array.of(Number.POSITIVE_INFINITY) },
    }),
  );
  await vi.waitFor(() => expect(store.tokens.rows).toBe(1));
  expect(alternatives(store, 0).map((a) => a.forbidden)).toEqual([true, false, false]);
});

test("a branch that exists already is found by its choice", async () => {
  const store = await story();
  expect(store.branchAt({ run: 0, token: 1 }, 3)?.info.run).toBe(1);
  expect(store.branchAt({ run: 0, token: 1 }, 4)).toBeUndefined();
});

test("settings in words leave out what is off", () => {
  const s = { mode: "sample", temperature: 0.8, top_k: 40, top_p: 0.9, min_p: 0, repetition_penalty: 1 } as const;
  expect(settingsWords(s)).toBe("sampling with temperature 0.80, top‑k 40, top‑p 0.90");
  expect(settingsChange(s, { ...s, temperature: 1.2, top_p: 0 })).toBe("temperature 1.20, top‑p off");
  expect(settingsChange(s, s)).toBe("");
});

test("a branch of a branch goes back to the answer it began from", async () => {
  const store = await story();
  expect([0, 1, 2].map((id) => store.rootOf(id))).toEqual([0, 0, 0]);
});

test("a part of a character says of which, whole characters around it stay text", () => {
  const bytes = (...b: number[]) => Uint8Array.from(b);
  const words = (...data: Uint8Array[]) => piecesOf(data).map((pieces) => pieces.map(pieceWords).join(""));
  expect(words(bytes(0x20, 0xf0, 0x9f), bytes(0x98), bytes(0x80, 0xc3), bytes(0xa9))).toEqual([
    " ⟨part 1 of 3 of 😀⟩",
    "⟨part 2 of 3 of 😀⟩",
    "⟨part 3 of 3 of 😀⟩⟨part 1 of 2 of é⟩",
    "⟨part 2 of 2 of é⟩",
  ]);
  expect(words(bytes(0xf0, 0x9f))).toEqual(["⟨part 1 of a character that was not finished⟩"]);
  expect(words(bytes(0x80), bytes(0xff, 0x41))).toEqual(["⟨part of no character⟩", "⟨part of no character⟩A"]);
  const begun = pendingOf([bytes(0x41, 0xf0, 0x9f), bytes(0x98)]);
  expect([...begun]).toEqual([0xf0, 0x9f, 0x98]);
  expect(candidateWords(bytes(0x80), begun)).toBe("⟨last part of 😀⟩");
  expect(candidateWords(bytes(0x98), bytes(0xf0, 0x9f))).toBe("⟨goes on with a character: 98⟩");
  expect(candidateWords(bytes(0xd7), bytes())).toBe("⟨begins a character: D7⟩");
  expect(["⟨last part of 😀⟩", "⟨begins a character: D7⟩", "·word"].map(characterFirst)).toEqual([
    "😀 ⟨last part⟩",
    "D7 ⟨begins a character⟩",
    "·word",
  ]);
});

test.each(["😀é日 a", "שלום", "👨‍👩‍👧", "\u{10ffff}\ud7ff\ue000"])("characters of %s are found at any cut", (text) => {
  const data = new TextEncoder().encode(text);
  for (let cut = 0; cut <= data.length; cut++) {
    const pieces = piecesOf([data.subarray(0, cut), data.subarray(cut)]).flat();
    expect(
      pieces
        .filter((p) => p.part === 1)
        .map((p) => p.text)
        .join(""),
    ).toBe(text);
  }
});

test("a recording that lost its first tokens keeps their places", async () => {
  const model = new FakeModel();
  const store = createStore(model.asModel());
  const rows = {
    ...rowsOf(0, 0, 2),
    "tokens.index": { data: Uint32Array.from([5, 6]) },
    "stages.token": { data: Int32Array.from([4, 6]) },
  };
  model.chunk(await encodeChunk(headerOf({ runs: [runOf(0)], origin: { dropped: { tokens: 5, stages: 1 } } }), rows));
  await vi.waitFor(() => expect(store.tokens.rows).toBe(2));
  expect(placeInAnswer(store, { run: 0, token: 1 })).toBe(6);
  expect(store.indexAt({ run: 0, token: 0 })).toBe(5);
  expect(firstTokenMs(store, store.run(0)!)).toBeNaN();
  expect(lostWords(store)).toBe(
    " The first 5 tokens did not fit into the recorder and are missing. The first stage time did not fit into the recorder and is missing.",
  );
  const times = timesOf(store, store.run(0)!);
  expect(times.prompt).toBe(-1);
  expect(times.tokens.map((t) => t.stages.length)).toEqual([0, 1]);
});

test("what stood before a part of a character is not yet that character", async () => {
  const model = new FakeModel();
  const store = createStore(model.asModel());
  const texts: [number, string, number, string?][] = [
    [0, "a", 0],
    [1, "<0xF0><0x9F>", 0, "f09f"],
    [2, "<0x98><0x80>", 0, "9880"],
    [3, "b", 0],
  ];
  model.chunk(await encodeChunk(headerOf({ runs: [runOf(0)], texts }), rowsOf(0, 0, 4)));
  await vi.waitFor(() => expect(store.tokens.rows).toBe(4));
  expect(textBefore(store, { run: 0, token: 2 }, 5)).toBe("a◌");
  expect(textBefore(store, { run: 0, token: 3 }, 5)).toBe("a😀");
  expect(nameAt(store, { run: 0, token: 2 })).toBe("⟨part 2 of 2 of 😀⟩");
  expect(candidateName(store, { run: 0, token: 2 }, 2)).toBe("⟨last part of 😀⟩");
  expect(shortAt(store, { run: 0, token: 1 })).toBe("😀 1/2");
});

test("a block's text: dropped tokens are left out, its first token is the right one, parts are characters", () => {
  const smile = new TextEncoder().encode("😀");
  const answer = { info: { prompt_tokens: 2 }, rows: [0, 1, 2] }; // its first four tokens were dropped
  const ids = [5, 6, 7];
  const store = {
    engine: { turnAt: () => ({ run: 0 }), promptOf: () => [1, 2] },
    run: () => answer,
    firstIndex: () => 4,
    tokens: { get: (_: string, row: number) => ids[row] },
    raw: (id: number) => (id === 6 ? smile.subarray(0, 2) : id === 7 ? smile.subarray(2) : null),
    special: () => false,
    text: (id: number) => `<${id}>`,
  } as unknown as Store;
  expect(textAt(store, 0, 0, 0, 4)).toEqual({ text: "<1><2>", token: null });
  expect(textAt(store, 0, 0, 4, 9)).toEqual({ text: "<5>😀", token: { run: 0, token: 0 } });
  expect(textAt(store, 0, 0, 8, 9)).toEqual({ text: "⟨part 2 of 2 of 😀⟩", token: { run: 0, token: 2 } });
});
