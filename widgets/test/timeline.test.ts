import { expect, test } from "vitest";
import {
  HEIGHT,
  LEFT,
  labelBox,
  layOut,
  type Phases,
  type Range,
  shorten,
  tickStep,
  visibleTokens,
} from "../src/timeline_layout";
import { choosing, type RunTimes, type StageTime, shareOf, type TokenTime } from "../src/times";

const measure = (text: string, strong: boolean) => text.length * (strong ? 6.4 : 6);
const phases: Phases = {
  first: ["prefill: reads all 94 prompt tokens at once", "prefill"],
  later: ["decode: one token at a time", "decode"],
  flag: "first token after",
};
const words = { text: (t: TokenTime) => ["·lighthouse", "·a", ",", "·keeper"][t.index % 4], tint: () => 0.5 };

const stage = (name: string, kind: StageTime["kind"], from: number, to: number): StageTime => ({
  name,
  kind,
  from,
  to,
});

function token(index: number, from: number, ms: number): TokenTime {
  const at = (share: number) => from + share * ms;
  const stages = [
    stage("prepare_inputs", "prep", at(0), at(0.01)),
    stage(index ? "run_decode" : "run_prefill", "run", at(0.01), at(0.9)),
    stage("read_logits", "choose", at(0.9), at(0.92)),
    stage("repetition_penalty", "choose", at(0.92), at(0.95)),
    stage("select", "choose", at(0.95), at(0.98)),
    stage("kv_append", "out", at(0.98), at(1)),
    stage("recorder", "recorder", at(1) + 0.01, at(1) + 0.1),
  ];
  return { index, row: index, from, to: from + ms, stages };
}

/** A prompt of 180 ms, then `n` tokens of about 20 ms. */
function timesOf(n: number): RunTimes {
  const tokens = [token(0, 4, 176)];
  for (let i = 1; i <= n; i++) tokens.push(token(i, tokens[i - 1].to + 0.2, 18 + (i % 5)));
  const before = [stage("chat_template", "prep", 0, 2), stage("tokenize", "prep", 2, 4)];
  return { from: 0, to: tokens[n].to + 0.2, tokens, before, typical: 20, prompt: 0 };
}

const overlap = (a: ReturnType<typeof labelBox>, b: ReturnType<typeof labelBox>) =>
  a.x < b.x + b.w && b.x < a.x + a.w && a.y < b.y + b.h && b.y < a.y + a.h;

const times = timesOf(71);
const whole: Range = { from: times.from, to: times.to };
const around = (i: number, margin: number): Range => ({
  from: times.tokens[i].from - margin,
  to: times.tokens[i].to + margin,
});
const choose = times.tokens[56].stages[2].from;
const views: [string, Range][] = [
  ["the whole run", whole],
  ["the first token", { from: 0, to: 200 }],
  ["ten tokens", { from: 400, to: 600 }],
  ["one token", around(56, 0.4)],
  ["the choosing of one token", { from: choose - 0.1, to: times.tokens[56].to + 0.1 }],
  ["a twentieth of a millisecond", { from: choose, to: choose + 0.05 }],
];

test.each(views.flatMap(([name, view]) => [960, 600, 360].map((width) => [name, width, view] as const)))(
  "no label overlaps another or leaves the picture: %s at %i px",
  (_, width, view) => {
    const { labels } = layOut(times, view, 56, width - 42, measure, words, phases);
    const rects = labels.map(labelBox);
    expect(labels.length).toBeGreaterThan(6);
    for (const r of rects) {
      expect(r.x).toBeGreaterThanOrEqual(0);
      expect(r.x + r.w).toBeLessThanOrEqual(width - 42);
      expect(r.y + r.h).toBeLessThanOrEqual(HEIGHT);
    }
    rects.forEach((a, i) => {
      rects.slice(i + 1).forEach((b, j) => {
        if (overlap(a, b)) throw new Error(`"${labels[i].text}" overlaps "${labels[i + 1 + j].text}"`);
      });
    });
  },
);

test("labels of boxes stay inside their boxes", () => {
  const { labels, boxes } = layOut(times, { from: 400, to: 520 }, 12, 900, measure, words, phases);
  const tokenLabels = labels.filter((l) => l.strong && l.y > 52 && l.y < 76);
  expect(tokenLabels.length).toBeGreaterThan(3);
  for (const l of tokenLabels) {
    const home = boxes.find((b) => b.lane === "token" && l.x >= b.x && l.x + l.w <= b.x + b.w);
    expect(home).toBeDefined();
  }
});

test("zoomed out, marks narrower than a pixel are merged: a long run needs no more boxes than pixels", () => {
  const long = timesOf(5000);
  const { boxes } = layOut(long, { from: long.from, to: long.to }, 10, 800, measure, words, phases);
  for (const lane of ["token", "stage", "choosing", "recorder", "bars"])
    expect(boxes.filter((b) => b.lane === lane).length).toBeLessThan(4 * 800);
  expect(boxes.length).toBeLessThan(6000);
});

test("only what is in view is laid out", () => {
  const { boxes } = layOut(times, around(30, 1), 30, 800, measure, words, phases);
  expect(new Set(boxes.filter((b) => b.lane === "token").map((b) => b.token))).toEqual(new Set([29, 30, 31]));
  expect(visibleTokens(times.tokens, { from: -10, to: -5 })).toHaveLength(0);
});

test("the first token's flag, the playhead and the picked token stand at their times", () => {
  const l = layOut(times, whole, 5, 800, measure, words, phases);
  const x = (ms: number) => LEFT + ((ms - whole.from) / (whole.to - whole.from)) * (800 - LEFT - 1);
  expect(l.firstToken).toBeCloseTo(x(180), 6);
  expect(l.playhead).toBeCloseTo(x(times.tokens[5].to), 6);
  expect(l.picked?.x).toBeCloseTo(x(times.tokens[5].from), 6);
  expect(layOut(times, around(40, 1), 5, 800, measure, words, phases)).toMatchObject({ playhead: null, picked: null });
});

test("a whole run begins at 0, however short it is; near a token, times count from it", () => {
  const short = timesOf(2);
  const ticksOf = (view: Range) => {
    const { labels } = layOut(short, view, 2, 900, measure, words, { ...phases, flag: null });
    return labels.filter((l) => l.y === HEIGHT - 4).map((l) => l.text);
  };
  short.typical = 100; // so that the run is no longer than six of them
  expect(ticksOf({ from: 0, to: short.to })[0]).toBe("0 ms");
  expect(ticksOf({ from: 0, to: short.to }).join()).not.toMatch(/[−+]/);
  expect(ticksOf({ from: 170, to: short.to }).join()).toMatch(/−.*\b0 ms.*\+/);
});

test.each([whole, { from: 400, to: 520 }, around(56, 0.4)])("a bar stands under its token, as wide as it", (view) => {
  const { boxes } = layOut(times, view, 56, 900, measure, words, phases);
  const bars = boxes.filter((b) => b.lane === "bars");
  expect(bars.length).toBeGreaterThan(0);
  for (const bar of bars) {
    const home = boxes.find((b) => b.lane === "token" && b.token === bar.token);
    expect([bar.x, bar.w]).toEqual([home?.x, home?.w]);
  }
});

test("bars start at zero: twice the time is twice the height", () => {
  const two = timesOf(2);
  two.tokens[1].to = two.tokens[1].from + 10;
  two.tokens[2].from = two.tokens[1].to;
  two.tokens[2].to = two.tokens[2].from + 20;
  const { boxes } = layOut(two, { from: 0, to: two.to }, 0, 800, measure, words, phases);
  const [a, b] = boxes.filter((box) => box.lane === "bars");
  expect(b.h / a.h).toBeCloseTo(2, 6);
});

test.each([0.05, 1, 7, 33, 200, 1500, 60_000, 3_600_000])("ticks over %f ms are round and far enough apart", (span) => {
  const step = tickStep(span, 700, 60);
  expect((step / span) * 700).toBeGreaterThanOrEqual(74 - 1e-9);
  expect([1, 2, 5, 10]).toContain(Math.round(step / 10 ** Math.floor(Math.log10(step) + 1e-9)));
});

test("a text that cannot be cut to two letters is dropped", () => {
  expect(shorten("lighthouse", 30, (t) => t.length * 6)).toBe("ligh…");
  expect(shorten("lighthouse", 12, (t) => t.length * 6)).toBe("");
});

test("stages of choosing are one stretch, unless something else lies between", () => {
  const [a, b] = [stage("x", "choose", 0, 1), stage("y", "choose", 1, 2)];
  expect(choosing([a, stage("recorder", "recorder", 1, 1), b])).toEqual([[0, 2]]);
  expect(choosing([a, stage("kv_append", "out", 1, 1), b])).toEqual([
    [0, 1],
    [1, 2],
  ]);
});

test("the latency of a token is one interval, whatever else was recorded in it", () => {
  const t: TokenTime = {
    index: 1,
    row: 1,
    from: 0,
    to: 20,
    stages: [
      stage("run_decode", "run", 0, 15),
      stage("recorder", "recorder", 15, 17),
      stage("select", "choose", 17, 19),
      stage("recorder", "recorder", 20, 21),
    ],
  };
  expect(shareOf(t)).toEqual({ total: 20, model: 15, choose: 2, rest: 3, recorder: 3 });
});
