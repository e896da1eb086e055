import { expect, test } from "vitest";
import { drawMany, expectedRange, seeded } from "../src/draws";

const shares = [0.5, 0.3, 0.15, 0.04, 0.01, 0];

test("the same seed draws the same, another seed draws something else", () => {
  expect(drawMany(shares, 1000, 7)).toEqual(drawMany(shares, 1000, 7));
  expect(drawMany(shares, 1000, 8)).not.toEqual(drawMany(shares, 1000, 7));
});

test("every draw lands somewhere, never on a share of zero, also when the shares do not add up to one", () => {
  const counts = drawMany([0.2, 0, 0.2, 0], 1000, 1);
  expect(counts.reduce((a, b) => a + b)).toBe(1000);
  expect([counts[1], counts[3]]).toEqual([0, 0]);
  expect(drawMany([0, 0], 10, 1)).toEqual([0, 0]);
});

test("about 95 of 100 counts lie in the expected range", () => {
  let inside = 0;
  for (let seed = 0; seed < 400; seed++) {
    const counts = drawMany(shares, 1000, seed);
    shares.slice(0, 5).forEach((p, i) => {
      const [low, high] = expectedRange(1000, p);
      if (counts[i] >= low && counts[i] <= high) inside++;
    });
  }
  expect(inside / 2000).toBeGreaterThan(0.94);
  expect(inside / 2000).toBeLessThan(0.985);
});

test("the range is the binomial's own: known quantiles", () => {
  // summed with exact fractions
  expect(expectedRange(1000, 0.5)).toEqual([469, 531]);
  expect(expectedRange(1000, 0.01)).toEqual([4, 17]);
  expect(expectedRange(1000, 0.79)).toEqual([764, 815]);
  expect(expectedRange(1000, 0)).toEqual([0, 0]);
  expect(expectedRange(1000, 1)).toEqual([1000, 1000]);
});

test("the generator fills the unit interval evenly", () => {
  const random = seeded(3);
  const bins = new Array(10).fill(0);
  for (let i = 0; i < 10_000; i++) bins[Math.floor(random() * 10)]++;
  for (const n of bins) expect(Math.abs(n - 1000)).toBeLessThan(120);
});
