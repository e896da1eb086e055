import { expect, test } from "vitest";
import { firstWhere, Lanes, sumOf } from "../src/batching_lanes";
import { type Box, clampView, frameOf, hitTest, type Layout, layOut, TOP, xOf, yOf } from "../src/batching_layout";
import { eight, engineOf, many } from "./batching_made";

const lanesOf = (engine = eight()): Lanes => {
  const lanes = new Lanes();
  lanes.update(engine);
  return lanes;
};

const layoutOf = (engine = eight(), width = 918, view = { from: 0, to: engine.steps }, scroll = 0): [Layout, Lanes] => {
  const lanes = lanesOf(engine);
  return [layOut(lanes, frameOf(width, lanes, view, scroll), (i) => engine.stepAt(i)), lanes];
};

const inside = (b: Box): [number, number] => [b.x + b.w / 2, b.y + 8];

test("every decision of every step is in exactly one stretch of its request", () => {
  const engine = eight();
  const lanes = lanesOf(engine);
  for (let step = 0; step < engine.steps; step++)
    for (const { request, verdict } of engine.decisions(step))
      expect(lanes.at({ step, lane: lanes.index(request) as number })?.kind).toBe(verdict);
  const decided = lanes.list.flatMap((l) => l.stretches).reduce((n, s) => n + s.to - s.from, 0);
  expect(decided).toBe(
    Array.from({ length: engine.steps }, (_, i) => engine.decisions(i).length).reduce((a, b) => a + b),
  );
});

test("a request without a decision has no stretch in that step", () => {
  const lanes = lanesOf();
  expect(lanes.at({ lane: 7, step: 0 })).toBeUndefined();
  expect(lanes.at({ lane: 0, step: lanes.steps - 1 })).toBeUndefined();
});

test("waits and answers are joined, every prompt chunk stays on its own", () => {
  const { stretches } = lanesOf().list[4];
  const kinds = stretches.map((s) => s.kind);
  expect(kinds.filter((k) => k === "prefill").length).toBeGreaterThan(2);
  expect(kinds.filter((k) => k === "decode")).toHaveLength(1);
  expect(stretches.filter((s) => s.kind === "prefill").every((s) => s.to - s.from === 1)).toBe(true);
});

test("what arrives later is added, and gives what would have come at once", () => {
  const engine = eight();
  const lanes = new Lanes();
  for (let steps = 1; steps <= engine.steps; steps += 7) lanes.update({ ...engine, steps });
  lanes.update(engine);
  lanes.update(engine);
  expect(lanes).toEqual(lanesOf(engine));
});

test("parts of a step add up to its tokens, answers first", () => {
  const engine = eight();
  const lanes = lanesOf(engine);
  lanes.parts.forEach((parts, i) => {
    expect(sumOf(parts)).toBe(engine.decisions(i).reduce((n, d) => n + d.tokens, 0));
    expect(parts.map((p) => p.answer)).toEqual([...parts.map((p) => p.answer)].sort((a, b) => Number(b) - Number(a)));
  });
  expect(lanes.answers).toBe(4);
  expect(lanes.budget).toBe(48);
});

test("hits and ends stand at the steps of admissions and last tokens", () => {
  const engine = eight();
  const { list } = lanesOf(engine);
  expect(list[0].hits).toEqual([]);
  const again = list[3].hits.map((hit) => hit.from);
  expect(again).toHaveLength(2); // admitted, preempted, admitted again
  for (const { stretches, ends } of list) {
    expect(ends).toHaveLength(1);
    expect(ends[0].from).toBe((stretches.at(-1)?.to as number) - 1);
  }
});

test("a turn that has not ended has no end", () => {
  const engine = engineOf([{ prompt: 5, answer: 3 }]);
  engine.requests[0].turns[0].finishedMs = Number.NaN;
  expect(lanesOf(engine).list[0].ends).toEqual([]);
});

test("jumping goes through all events of a kind in order, round, and back the same way", () => {
  const lanes = lanesOf();
  for (const kind of ["wait", "prefill", "hit", "decode", "preempt", "finish"] as const) {
    const all = lanes.events(kind);
    expect(all.length).toBeGreaterThan(0);
    let at = all[0];
    const seen = all.map(() => {
      at = lanes.next(kind, at, false) as typeof at;
      return at;
    });
    expect(seen).toEqual([...all.slice(1), all[0]]);
    for (let i = all.length - 1; i >= 0; i--) expect(lanes.next(kind, all[(i + 1) % all.length], true)).toEqual(all[i]);
  }
  expect(lanes.next("reject", { step: 0, lane: 0 }, false)).toBeUndefined();
});

test.each([960, 600, 320])("every decision has a mark, inside the picture: %i px", (width) => {
  const engine = eight();
  const [l, lanes] = layoutOf(engine, width - 42);
  for (let lane = 0; lane < 8; lane++)
    for (const { kind, from } of lanes.list[lane].stretches)
      expect(l.boxes.some((b) => b.lane === lane && b.kind === kind && b.step === from)).toBe(true);
  for (const b of l.boxes) {
    expect(b.x).toBeGreaterThanOrEqual(l.left - 9);
    expect(b.x + b.w).toBeLessThanOrEqual(l.width);
  }
  for (const p of l.pieces) expect(p.x + p.w).toBeLessThanOrEqual(l.width);
});

test("a click on a mark asks about the step and the request that it shows", () => {
  const [l, lanes] = layoutOf();
  for (const box of l.boxes.filter((b) => b.kind !== "finish" && b.kind !== "hit")) {
    const { step, lane } = hitTest(l, lanes, box.x + 0.5, box.y + 8);
    expect(lane).toBe(box.lane);
    const kind = lanes.at({ step: step as number, lane: box.lane })?.kind;
    const over = l.boxes.findLast((b) => b.lane === box.lane && box.x + 0.5 >= b.x && box.x + 0.5 < b.x + b.w);
    if (over === box) expect(kind).toBe(box.kind);
  }
  for (const box of l.boxes.filter((b) => b.kind === "finish" || b.kind === "hit" || b.kind === "preempt"))
    expect(hitTest(l, lanes, ...inside(box))).toEqual({ step: box.step, lane: box.lane });
});

test("a click on a name picks the request only, one below the lines the step only, one beside nothing", () => {
  const [l, lanes] = layoutOf();
  expect(hitTest(l, lanes, 10, yOf(l, 5) + 3)).toEqual({ step: undefined, lane: 5 });
  expect(hitTest(l, lanes, xOf(l, 9.5), l.work.y + 4)).toEqual({ step: 9, lane: undefined });
  expect(hitTest(l, lanes, l.width - 1, yOf(l, 5) + 3)).toEqual({ step: undefined, lane: 5 });
  expect(hitTest(l, lanes, 10, 2)).toEqual({ step: undefined, lane: undefined });
});

test("zoomed out, steps of one pixel are merged: 64 requests over 2000 steps need no more than a few marks a pixel", () => {
  const engine = many();
  expect(engine.steps).toBeGreaterThan(1500);
  const [l] = layoutOf(engine, 918);
  const plain = l.boxes.filter((b) => !b.single || b.w === 1);
  expect(plain.length).toBeLessThan(26 * 900);
  expect(l.boxes.every((b) => b.w >= 1)).toBe(true);
  expect(l.pieces.length).toBeLessThan(8 * 900); // columns that are alike are one
});

test("zoomed out, what is wider than a pixel keeps its own mark and its width", () => {
  const [l, lanes] = layoutOf(many());
  for (let lane = 0; lane < 20; lane++)
    for (const { kind, from, to } of lanes.list[lane].stretches)
      if (kind !== "preempt" && (to - from) * l.step >= 1) {
        const box = l.boxes.find((b) => b.lane === lane && b.kind === kind && b.step === from);
        expect(box?.w).toBeCloseTo((to - from) * l.step, 6);
      }
});

test("of several steps in one pixel the rarest mark is shown, and stands for its own step", () => {
  const engine = engineOf(
    [
      { prompt: 4, answer: 3000 },
      { prompt: 3000, answer: 1 },
    ],
    { budget: 3, chunk: 2, places: 2 },
  );
  const [l, lanes] = layoutOf(engine, 700);
  const small = l.boxes.filter((b) => b.w === 1);
  expect(small.length).toBeGreaterThan(100);
  for (const b of small) {
    expect(lanes.at({ lane: b.lane, step: b.step })?.kind).toBe(b.kind);
    const over = l.boxes.findLast((o) => o.lane === b.lane && o.x <= b.x + 0.5 && o.x + o.w > b.x + 0.5);
    expect(hitTest(l, lanes, ...inside(b)).step).toBe(over?.step); // itself, or a sign that lies over it
  }
});

test("a column of several steps shows the fullest of them, as tall as its tokens", () => {
  const engine = many();
  const [l, lanes] = layoutOf(engine, 918);
  const top = Math.min(...l.pieces.filter((p) => p.y >= l.work.y && p.y < l.work.y + l.work.h).map((p) => p.y));
  const fullest = Math.max(...lanes.parts.map(sumOf));
  expect(l.work.y + l.work.h - top).toBeCloseTo((fullest / lanes.budget) * l.work.h, 6);
});

test("pieces cover the same tokens, whether columns that are alike are joined or not", () => {
  const engine = engineOf([{ prompt: 40, answer: 300 }]);
  const area = (l: Layout) => l.pieces.reduce((sum, p) => sum + (p.w / l.step) * p.h, 0);
  const joined = layoutOf(engine, 918)[0];
  const [lanes, view] = [lanesOf(engine), { from: 0, to: engine.steps }];
  const apart = layOut(lanes, frameOf(9000, lanes, view, 0), (i) => engine.stepAt(i));
  expect(joined.pieces.length).toBeLessThan(12);
  expect(apart.pieces.length).toBeGreaterThan(500);
  expect(area(joined) / area(apart)).toBeCloseTo(1, 1);
});

test("answers have a scale of their own from zero, when the budget dwarfs them", () => {
  const [l] = layoutOf();
  expect(l.answers?.most).toBe(4);
  const one = l.pieces.filter((p) => l.answers && p.y >= l.answers.y);
  for (const p of one) expect(p.h).toBeCloseTo((l.answers?.h ?? 0) / 4, 6);
  const tight = layoutOf(engineOf([{ prompt: 4, answer: 9 }], { budget: 2, chunk: 2 }))[0];
  expect(tight.answers).toBeNull();
});

test("only what is visible is laid out: steps of the range, requests that are scrolled to", () => {
  const engine = many();
  const [l, lanes] = layoutOf(engine, 918, { from: 600, to: 640 }, 16 * 20);
  const rows = new Set(l.boxes.map((b) => b.lane));
  expect(Math.min(...rows)).toBeGreaterThanOrEqual(20);
  expect(Math.max(...rows)).toBeLessThan(20 + 26);
  for (const b of l.boxes) {
    expect(b.x).toBeGreaterThanOrEqual(l.left - 9);
    expect(b.y).toBeGreaterThan(TOP - l.row);
  }
  expect(l.pieces.every((p) => p.x >= l.left)).toBe(true);
  expect(lanes.list).toHaveLength(64);
});

test("the visible range stays inside the recording and holds at least eight steps", () => {
  expect(clampView(-5, 20, 100)).toEqual({ from: 0, to: 25 });
  expect(clampView(90, 130, 100)).toEqual({ from: 60, to: 100 });
  expect(clampView(50, 51, 100)).toEqual({ from: 50, to: 58 });
  expect(clampView(0, 3, 3)).toEqual({ from: 0, to: 3 });
  expect(clampView(0, 0, 0)).toEqual({ from: 0, to: 1 });
});

test("ticks carry the engine's own numbers and keep apart", () => {
  const [l] = layoutOf(engineOf([{ prompt: 4, answer: 90 }], { first: 7000 }));
  expect(l.ticks.length).toBeGreaterThan(2);
  expect(l.ticks.every(({ text }) => Number(text.slice(5)) >= 7000)).toBe(true);
  for (let i = 1; i < l.ticks.length; i++) expect(l.ticks[i].x - l.ticks[i - 1].x).toBeGreaterThan(70);
});

test("the budget is a line at the height of each step's budget", () => {
  const [l] = layoutOf();
  expect(new Set(l.budget.map(([, y]) => y))).toEqual(new Set([Math.round(l.work.y) + 0.5]));
});

test("firstWhere finds the first place of a sorted list, also at its ends", () => {
  expect(firstWhere([1, 3, 5], (n) => n > 3)).toBe(2);
  expect(firstWhere([1, 3, 5], (n) => n > 0)).toBe(0);
  expect(firstWhere([1, 3, 5], (n) => n > 9)).toBe(3);
});
