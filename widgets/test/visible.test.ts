import { expect, test } from "vitest";
import type { RunTimes, TokenTime } from "../src/times";
import { Visible } from "../src/visible";

const token = (index: number, from: number, to: number): TokenTime => ({
  index,
  row: index,
  from,
  to,
  stages: [{ name: "select", kind: "choose", from: to - 1, to: to - 0.5 }],
});
const tokens = Array.from({ length: 50 }, (_, i) => token(i, i * 20, i * 20 + 20));
const times: RunTimes = { from: 0, to: 1000, tokens, before: [], typical: 20, prompt: 0 };

const at = (pick: number): Visible => {
  const v = new Visible();
  v.update(times, pick);
  return v;
};

test("it begins with the whole run, and grows with it", () => {
  const v = at(3);
  expect(v.range).toEqual({ from: 0, to: 1000 });
  v.update({ ...times, to: 1200 }, 3);
  expect(v.range.to).toBe(1200);
});

test("a preset follows the picked token", () => {
  const v = at(3);
  v.follow("token");
  v.update(times, 10);
  expect(v.range.from).toBeCloseTo(199.6, 9);
  expect(v.range.to).toBeCloseTo(220.4, 9);
  v.follow("choose");
  expect(v.range.from).toBeCloseTo(219 - 0.08, 9);
});

test("zooming keeps the point under the pointer in its place", () => {
  const v = at(0);
  v.zoom(0.5, 250);
  expect(v.range).toEqual({ from: 125, to: 625 });
  expect(v.preset).toBeNull();
});

test("neither zoom nor pan leaves the run, or goes below a twentieth of a millisecond", () => {
  const v = at(0);
  v.zoom(9);
  expect(v.range).toEqual({ from: 0, to: 1000 });
  v.zoom(1e-9, 500);
  expect(v.range.to - v.range.from).toBeCloseTo(0.05, 9);
  v.show(900, 1000);
  v.pan(5);
  expect(v.range).toEqual({ from: 900, to: 1000 });
});

test("a range set by hand stays, until a token outside it is picked", () => {
  const v = at(0);
  v.show(100, 200);
  v.update(times, 7);
  expect(v.range).toEqual({ from: 100, to: 200 });
  v.update(times, 40);
  expect(v.range).toEqual({ from: 770, to: 870 });
});
