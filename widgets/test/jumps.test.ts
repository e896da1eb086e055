import { expect, test } from "vitest";
import { decodeChunk } from "../src/chunk";
import { EngineData } from "../src/engine_data";
import { Jumps } from "../src/jumps";
import { engineChunk, type MadeStep, turnOf } from "./engine_made";

const waits = (...requests: number[]): MadeStep => ({
  tables: {},
  decisions: requests.map((request) => ({ request, verdict: "wait" })),
});
const RUN: MadeStep[] = [
  waits(1, 2),
  { tables: {}, decisions: [{ request: 1, verdict: "decode" }], admissions: [{ request: 1, cached: 0 }] },
  waits(2),
  {
    tables: {},
    admissions: [{ request: 2, cached: 4 }],
    pool: [
      { block: 5, event: "kept", request: 1 },
      { block: 3, event: "evicted", request: 2, owner: 1 },
    ],
  },
  waits(1),
];

test("a jump finds the nearest step on either side, and only of its kind", async () => {
  const data = new EngineData(() => "");
  const jumps = new Jumps(data);
  expect(jumps.next("wait", 0, 1)).toBeUndefined(); // nothing has come yet
  data.add(await decodeChunk(await engineChunk(RUN)));
  const found = (kind: string, step: number) => [jumps.next(kind, step, -1), jumps.next(kind, step, 1)];
  expect(found("wait", 0)).toEqual([undefined, 2]);
  expect(found("wait", 2)).toEqual([0, 4]);
  expect(found("wait", 3)).toEqual([2, 4]);
  expect(found("wait", 4)).toEqual([2, undefined]);
  expect(found("admit", 0)).toEqual([undefined, 1]);
  expect(found("hit", 0)).toEqual([undefined, 3]);
  expect(found("evict", 4)).toEqual([3, undefined]);
  expect(found("preempt", 2)).toEqual([undefined, undefined]);
});

test("it is about the request that is looked at, if the step is, else about the first; an eviction about its block", async () => {
  const data = new EngineData(() => "");
  data.add(await decodeChunk(await engineChunk(RUN)));
  const jumps = new Jumps(data);
  expect(jumps.whom("wait", 0, 2)).toEqual({ request: 2, block: null });
  expect(jumps.whom("wait", 0, 7)).toEqual({ request: 1, block: null });
  expect(jumps.whom("evict", 3, 1)).toEqual({ request: 2, block: 3 });
  expect(jumps.whom("preempt", 0, 1)).toBeUndefined();
});

test("what comes while the run grows is found, and an end that is told late", async () => {
  const data = new EngineData(() => "");
  const jumps = new Jumps(data);
  data.add(await decodeChunk(await engineChunk(RUN, 0, 2)));
  expect(jumps.next("wait", 0, 1)).toBeUndefined();
  expect(jumps.next("finish", 0, 1)).toBeUndefined();
  const over = turnOf(1, { finished_ms: 12 });
  data.add(await decodeChunk(await engineChunk(RUN, 2, 4, { turns: [over], seq: 1 })));
  expect(jumps.next("wait", 0, 1)).toBe(2);
  expect(jumps.next("finish", 0, 1)).toBe(1);
  expect(jumps.whom("finish", 1, 9)).toEqual({ request: 1, block: null });
});
