import { expect, test } from "vitest";
import { evaluate, GUIDANCE, PENALTY, type Processor, type Stage, type Step } from "../src/sampling";
import type { Knobs } from "../src/types";

const V = 49_152;
const K = 64;
const BINS = 128;
const EDGES = [1000];

/** A seeded stream, apart from the code under test. */
function* uniform(seed: number): Generator<number, never> {
  let x = seed;
  for (;;) {
    x = (x * 48271) % 2147483647;
    yield x / 2147483647;
  }
}

/** Logits like a language model's: a bell of unlikely tokens, some likely ones above it. */
function logitsOf(seed: number, likely: number): Float64Array {
  const random = uniform(seed);
  const next = () => random.next().value;
  const bell = () => Math.sqrt(-2 * Math.log(next())) * Math.cos(2 * Math.PI * next());
  return Float64Array.from({ length: V }, (_, i) => (i < likely ? 6 + 9 * next() : -2 + 2.4 * bell()));
}

interface Case {
  logits: Float64Array;
  seen: Set<number>;
  order: number[];
  step: Step;
}

/** What a recorder keeps of a full row: the best exactly (in steps of 1/1024), the others in bins. */
function record(logits: Float64Array, seen: Set<number>): Case {
  const order = Array.from(logits.keys()).sort((a, b) => logits[b] - logits[a]);
  const top = logits[order[0]];
  const deltas = order.slice(0, K).map((id) => Math.round((top - logits[id]) * 1024) / 1024);
  const lo = top - logits[order[K]];
  const hi = top - logits[order[V - 1]];
  const count = new Uint32Array(BINS);
  const seenCount = new Uint16Array(BINS);
  for (const id of order.slice(K)) {
    const bin = Math.min(BINS - 1, Math.floor(((top - logits[id] - lo) / (hi - lo)) * BINS));
    count[bin]++;
    if (seen.has(id)) seenCount[bin]++;
  }
  const logZ = Math.log(logits.reduce((sum, l) => sum + Math.exp(l - top), 0));
  const slots = new Set(Array.from({ length: K }, (_, i) => i).filter((i) => seen.has(order[i])));
  const tail = { lo, hi, count, seen: seenCount };
  return { logits, seen, order, step: { deltas, seen: slots, topLogit: top, logZ, tail } };
}

/** The same thing the plain way, over the whole vocabulary: shares by id after every stage, and how many are left. */
function plainly(logits: Float64Array, seen: Set<number>, knobs: Knobs): { shares: Float64Array; left: number }[] {
  const p = knobs.repetition_penalty;
  const changed = logits.map((l, i) => (seen.has(i) ? (l > 0 ? l / p : l * p) : l));
  const soft = (l: Float64Array, t: number, keep: (i: number) => boolean) => {
    const top = Math.max(...l);
    const w = l.map((x, i) => (keep(i) ? Math.exp((x - top) / t) : 0));
    const z = w.reduce((a, b) => a + b, 0);
    return w.map((x) => x / z);
  };
  const t = knobs.temperature;
  const sorted = Array.from(changed.keys()).sort((a, b) => changed[b] - changed[a] || a - b);
  const stages = [soft(logits, 1, () => true), soft(changed, 1, () => true), soft(changed, t, () => true)];
  let kept = sorted.slice(0, knobs.top_k || V);
  const again = () => {
    const set = new Set(kept);
    stages.push(soft(changed, t, (i) => set.has(i)));
    return stages[stages.length - 1];
  };
  let shares = again();
  if (knobs.top_p > 0 && knobs.top_p < 1) {
    let sum = 0;
    let n = 0;
    while (n < kept.length && sum < knobs.top_p) sum += shares[kept[n++]];
    kept = kept.slice(0, n);
  }
  shares = again();
  if (knobs.min_p > 0) kept = kept.filter((i) => shares[i] >= knobs.min_p * shares[kept[0]]);
  again();
  return stages.map((s) => ({ shares: s, left: s.reduce((n, x) => n + (x > 0 ? 1 : 0), 0) }));
}

const knobs = (more: Partial<Knobs> = {}): Knobs => ({
  mode: "sample",
  temperature: 1,
  top_k: 0,
  top_p: 0,
  min_p: 0,
  repetition_penalty: 1,
  ...more,
});
const penalty: Processor = { name: PENALTY, moved: new Map() };

/** Largest difference in shares, over candidates and over the bands of ranks. */
function apart(stage: Stage, truth: { shares: Float64Array }, { order }: Case): number {
  const band = (from: number, to: number) => order.slice(from, to).reduce((sum, id) => sum + truth.shares[id], 0);
  const items = Array.from(stage.prob, (p, slot) => Math.abs(p - truth.shares[order[slot]]));
  const bands = [band(K, 1000), band(1000, V)].map((p, b) => Math.abs(p - stage.bands[b].prob));
  return Math.max(...items, ...bands);
}

const sharp = record(logitsOf(11, 40), new Set([0, 3, 7, 20, 500, 9000]));
const flat = record(logitsOf(5, 900), new Set(Array.from({ length: 300 }, (_, i) => i * 5)));
const cases: [string, Case][] = [
  ["a sure step", sharp],
  ["a doubtful step", flat],
];
const settings: [string, Partial<Knobs>][] = [
  ["nothing on", {}],
  ["temperature below 1", { temperature: 0.6 }],
  ["temperature above 1", { temperature: 1.5 }],
  ["penalty", { repetition_penalty: 1.3 }],
  ["top-k inside the exact part", { top_k: 40, temperature: 0.8 }],
  ["top-k in the tail", { top_k: 400 }],
  ["top-p", { top_p: 0.9, temperature: 0.8 }],
  ["min-p", { min_p: 0.05 }],
  ["everything", { repetition_penalty: 1.1, temperature: 0.8, top_k: 40, top_p: 0.9, min_p: 0.02 }],
  ["everything, wide", { repetition_penalty: 1.2, temperature: 1.3, top_k: 5000, top_p: 0.95, min_p: 0.001 }],
];

test.each(cases.flatMap(([a, c]) => settings.map(([b, s]) => [`${a}, ${b}`, c, s] as const)))(
  "shares after every stage agree with the whole vocabulary: %s",
  (_, made, more) => {
    const truth = plainly(made.logits, made.seen, knobs(more));
    const stages = evaluate(made.step, knobs(more), [penalty], EDGES);
    expect(stages.map((s) => s.name)).toEqual(["raw", PENALTY, "temperature", "top_k", "top_p", "min_p"]);
    stages.forEach((stage, i) => {
      expect(apart(stage, truth[i], made)).toBeLessThan(0.002);
    });
  },
);

test.each([0.1, 0.5, 0.8, 0.9, 0.95, 0.99])("the nucleus for p = %f has as many tokens", (p) => {
  for (const [, made] of cases) {
    const truth = plainly(made.logits, made.seen, knobs({ top_p: p }))[4].left;
    const { left } = evaluate(made.step, knobs({ top_p: p }), [penalty], EDGES)[4];
    if (truth <= K) expect(Math.round(left)).toBe(truth);
    else expect(Math.abs(left / truth - 1)).toBeLessThan(0.03);
  }
});

test("inside the exact part top-k keeps exactly k, outside it k within rounding", () => {
  for (const k of [1, 2, 40, 64, 65, 300, 2000, 40_000]) {
    const { left } = evaluate(flat.step, knobs({ top_k: k }), [penalty], EDGES)[3];
    expect(Math.abs(left - k)).toBeLessThan(k <= K ? 1e-9 : 1.001);
  }
});

test("equal logits: top-k keeps k of them, the earlier ones first", () => {
  const step: Step = { ...sharp.step, deltas: new Array(K).fill(0), seen: new Set() };
  const stage = evaluate(step, knobs({ top_k: 10 }), [], EDGES)[2];
  expect(Array.from(stage.prob, (p) => p > 0).lastIndexOf(true)).toBe(9);
  expect(stage.left).toBe(10);
});

test("the bands hold every token once, and their shares add up to one with the candidates", () => {
  const raw = evaluate(flat.step, knobs(), [penalty], EDGES)[0];
  expect(raw.bands[0].left).toBeCloseTo(1000 - K, 6);
  expect(raw.bands[1].left).toBeCloseTo(V - 1000, 6);
  const sum = raw.prob.reduce((a, b) => a + b, 0) + raw.bands.reduce((a, b) => a + b.prob, 0);
  expect(sum).toBeCloseTo(1, 12);
  expect(raw.left).toBeCloseTo(V, 6);
});

test("a cut says why, once, and what is gone stays gone", () => {
  const s = evaluate(sharp.step, knobs({ top_k: 5, top_p: 0.5, min_p: 0.3 }), [penalty], EDGES);
  expect(s[3].cut[5]).toBe("rank 6");
  expect(s[3].bands[0].cut).toBe("rank > 5");
  for (let slot = 0; slot < K; slot++) {
    const reasons = s.filter((stage) => stage.cut[slot] !== null);
    expect(reasons.length).toBe(s[5].prob[slot] > 0 ? 0 : 1);
  }
  expect(s[4].cut).toContain("past 50 %");
});

test("the penalty divides positive and multiplies negative raw logits", () => {
  const tail = { lo: 0, hi: 0, count: [], seen: [] };
  const step: Step = { deltas: [0, 1, 5], seen: new Set([0, 2]), topLogit: 2, logZ: 0, tail };
  // logits 2, 1, -3 with penalty 2 become 1, 1, -6
  const { prob } = evaluate(step, knobs({ repetition_penalty: 2 }), [penalty], [])[1];
  expect(prob[0]).toBeCloseTo(prob[1], 12);
  expect(prob[2] / prob[0]).toBeCloseTo(Math.exp(-7), 12);
});

test("temperature 0 leaves the best alone, after the penalty", () => {
  const step: Step = {
    deltas: [0, 0.5],
    seen: new Set([0]),
    topLogit: 4,
    logZ: 0,
    tail: { lo: 1, hi: 9, count: [5, 5], seen: [0, 0] },
  };
  const last = evaluate(step, knobs({ mode: "greedy", repetition_penalty: 2 }), [penalty], [1000]).at(-1)!;
  expect([...last.prob]).toEqual([0, 1]);
  expect(last.left).toBe(1);
});

test("a recorded processor moves and forbids candidates", () => {
  const ban: Processor = { name: "no_repeat_ngram", moved: new Map([[0, Number.POSITIVE_INFINITY]]) };
  const push: Processor = { name: "mine", moved: new Map([[2, -3]]) };
  const raw = evaluate(sharp.step, knobs(), [], EDGES)[0];
  const [, , banned, pushed] = evaluate(sharp.step, knobs(), [penalty, ban, push], EDGES);
  expect(banned.prob[0]).toBe(0);
  expect(banned.cut[0]).toBe("forbidden");
  expect(banned.prob[1] / banned.prob[2]).toBeCloseTo(raw.prob[1] / raw.prob[2], 9);
  expect(pushed.prob[2] / pushed.prob[1]).toBeCloseTo((raw.prob[2] / raw.prob[1]) * Math.exp(3), 6);
});

test("a vocabulary smaller than the list of candidates needs no histogram", () => {
  const step: Step = {
    deltas: [0, 1, 2],
    seen: new Set(),
    topLogit: 3,
    logZ: Math.log(1 + Math.exp(-1) + Math.exp(-2)),
    tail: { lo: 0, hi: 0, count: new Uint32Array(BINS), seen: new Uint16Array(BINS) },
  };
  const stages = evaluate(step, knobs({ top_p: 0.7, min_p: 0.1 }), [penalty], []);
  expect(stages.at(-1)!.left).toBe(2);
  expect(stages[0].prob[0]).toBeCloseTo(Math.exp(-step.logZ), 12);
});

/** What is left when a grammar allows `open`, from every logit. */
function guided(made: (typeof cases)[number][1], open: (id: number) => boolean) {
  const order = Array.from(made.logits.keys()).sort((a, b) => made.logits[b] - made.logits[a] || a - b);
  const top = made.logits[order[0]];
  const weights = Array.from(made.logits, (l) => Math.exp(l - top));
  const all = weights.reduce((a, b) => a + b, 0);
  const left = weights.reduce((sum, w, id) => sum + (open(id) ? w : 0), 0);
  const shown = order.slice(0, K);
  const moved = new Map<number, number>();
  shown.forEach((id, slot) => {
    if (!open(id)) moved.set(slot, Number.POSITIVE_INFINITY);
  });
  const allowed = Array.from(made.logits.keys()).filter(open).length;
  const step: Step = { ...made.step, grammar: { allowed, mass: left / all } };
  return {
    step,
    processor: { name: GUIDANCE, moved },
    shares: shown.map((id) => (open(id) ? weights[id] / left : 0)),
    allowed,
  };
}

test.each([
  ["few", (id: number) => id % 997 === 5],
  ["most", (id: number) => id % 7 !== 3],
  ["all", () => true],
])("a grammar that allows %s tokens: shares and counts are those of the whole vocabulary", (_name, open) => {
  for (const [, made] of cases) {
    const { step, processor, shares, allowed } = guided(made, open);
    const stage = evaluate(step, knobs(), [processor, penalty], EDGES)[1];
    shares.forEach((share, slot) => {
      expect(Math.abs(stage.prob[slot] - share)).toBeLessThan(0.002);
    });
    expect(stage.left).toBeCloseTo(allowed, 6);
  }
});

test("a grammar that allows only what is shown forbids every band", () => {
  const best = flat.logits.indexOf(Math.max(...flat.logits));
  const { step, processor } = guided(flat, (id) => id === best);
  const stage = evaluate(step, knobs(), [processor, penalty], EDGES)[1];
  expect(stage.bands.map((b) => [b.left, b.cut])).toEqual([
    [0, "forbidden"],
    [0, "forbidden"],
  ]);
  expect(stage.prob[0]).toBeCloseTo(1, 12);
});
