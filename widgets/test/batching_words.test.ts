import { expect, test } from "vitest";
import type { Decided, Facts } from "../src/batching_lanes";
import { Lanes } from "../src/batching_lanes";
import { answerOf, splitRequests, stepWords } from "../src/batching_words";
import { eight, engineOf } from "./batching_made";

const ask = (engine: Facts, lane: number, step: number) => {
  const lanes = new Lanes();
  lanes.update(engine);
  return answerOf(engine, lanes, { lane, step });
};

test("a wait names the rule and how long it has lasted", () => {
  const { head, text } = ask(eight(), 6, 4);
  expect(head).toMatch(/^Request G in step 4: waits, step 5 of \d+ that it waits$/);
  expect(text).toBe("It waits for a place: all 4 rows are taken (max_batch_size).");
});

test("the engine's own step number is named, also after older steps were dropped", () => {
  expect(ask(engineOf([{ prompt: 4, answer: 2 }], { first: 500 }), 0, 1).head).toContain("step 501");
});

test("numbers that were compared come first, in plain words", () => {
  const [name, value] = ask(eight(), 6, 4).facts[0];
  expect(name).toBe("tokens left of the budget");
  expect(Number(value)).toBeGreaterThan(0);
});

test("an operand of a person's own policy keeps its name, one that is a request gets its letter", () => {
  const engine = engineOf([{ prompt: 4, answer: 2 }]);
  const decision = {
    request: 0,
    verdict: "wait",
    reason: "behind",
    tokens: 0,
    why: "so",
    operands: [
      ["my_score", 7],
      ["head", 2],
      ["leader", 1],
    ] as [string, number][],
  };
  const { facts } = ask({ ...engine, decisions: () => [decision], decision: () => decision }, 0, 0);
  expect(facts.slice(0, 3)).toEqual([
    ["my score", "7"],
    ["first in line", "C"],
    ["who reads it for both", "B"],
  ]);
});

test("a hit says how much need not be read, the last step why it is the last", () => {
  const engine = eight();
  const lanes = new Lanes();
  lanes.update(engine);
  const { hits, ends } = lanes.list[5];
  expect(ask(engine, 5, hits[0].from).text).toContain("32 tokens of its beginning were in the cache already");
  expect(ask(engine, 5, ends[0].from).text).toContain("This is its last step: it said that its answer ends.");
});

test("why no more was found in the cache is a sentence of its own", () => {
  const engine = eight();
  const lanes = new Lanes();
  lanes.update(engine);
  const step = lanes.list[5].hits[0].from;
  const why = "the last 4 tokens do not fill a block, and only full blocks are kept";
  const admissions = (i: number) => engine.admissions(i).map((a) => ({ ...a, why: i === step ? why : a.why }));
  expect(ask({ ...engine, admissions }, 5, step).text).toContain(
    "are not read again. The last 4 tokens do not fill a block, and only full blocks are kept.",
  );
});

test("a step without a decision says where the request is", () => {
  const engine = eight();
  const early = ask(engine, 7, 0);
  expect(early.head).toBe("Request H in step 0: not here yet");
  expect(early.text).toBe("It comes in at step 50.");
  const late = ask(engine, 0, engine.steps - 1);
  expect(late.head).toContain("finished");
  expect(late.text).toMatch(/^Its turn ended in step \d+: it said that its answer ends\.$/);
});

test("a step in one line: who is served, who waits, how long it took", () => {
  const engine = eight();
  const lanes = new Lanes();
  lanes.update(engine);
  expect(stepWords(engine, lanes, 0)).toBe(
    "48 tokens read for 2 requests, 3 requests wait; 9.00 ms, of which 8.00 ms in the model",
  );
  expect(stepWords(engine, lanes, engine.steps - 1)).toBe(
    "1 answer gets a token; 9.00 ms, of which 8.00 ms in the model",
  );
});

test("requests in a sentence are cut out when they are known", () => {
  const number = (name: string) => (name === "C" ? 2 : undefined);
  const parts = splitRequests("It waits behind request C, not request Z.", number);
  expect(parts.slice(0, 2)).toEqual(["It waits behind ", 2]);
  expect(parts.slice(2).join("")).toBe(", not request Z.");
  expect(splitRequests("Nothing here.", number)).toEqual(["Nothing here."]);
});

test("who waits behind another learns at once why that one waits", () => {
  const engine = engineOf([{ prompt: 4, answer: 2 }]);
  const behind = {
    request: 0,
    verdict: "wait",
    reason: "behind",
    tokens: 0,
    why: "It waits behind request C.",
    operands: [["head", 2]] as [string, number][],
  };
  const first = {
    request: 2,
    verdict: "wait",
    reason: "no_blocks",
    tokens: 0,
    why: "It waits for memory.",
    operands: [],
  };
  const decision = (request: number) => [behind, first].find((d) => d.request === request) ?? null;
  const { text } = ask({ ...engine, decisions: () => [behind], decision }, 0, 0);
  expect(text).toBe("It waits behind request C. As for request C: It waits for memory.");
});

test("who reads again what it had lost makes no token, also one by one", () => {
  const engine = engineOf([{ prompt: 4, answer: 3 }]);
  const step =
    Array.from({ length: engine.steps }, (_, i) => i).find((i) => engine.decision(0, i)?.verdict === "decode") ?? 0;
  const again = { ...(engine.decision(0, step) as Decided), reason: "reads_again" };
  const lanes = new Lanes();
  const told = { ...engine, decisions: () => [again], decision: () => again };
  lanes.update(told);
  expect(answerOf(told, lanes, { lane: 0, step }).head).toContain("reads again what it had lost");
  expect(stepWords(told, lanes, step)).toMatch(/^1 token read for 1 request;/);
});
