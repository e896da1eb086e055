import { expect, test } from "vitest";
import { cellAt, poolGrid, ringsOf, spotOf, stretchesOf, stripGrid, wiresOf } from "../src/blocks_map_layout";
import { GONE, Pool } from "../src/engine_pool";

const SIZES = [1, 24, 96, 200, 700, 4096, 20_000];

test.each([538, 918])("every block of any pool has a place of its own inside %d pixels", (width) => {
  for (const count of SIZES) {
    const grid = poolGrid(width, 100, count);
    const last = spotOf(grid, count - 1);
    expect(grid.w).toBeGreaterThan(1);
    expect(last.y + grid.h).toBeLessThanOrEqual(grid.bottom + 0.01);
    for (const index of [0, count >> 1, count - 1]) {
      const { x, y } = spotOf(grid, index);
      expect(x).toBeGreaterThanOrEqual(0);
      expect(x + grid.w).toBeLessThanOrEqual(width + 0.01);
      expect(cellAt(grid, count, x + grid.w / 2, y + grid.h / 2)).toBe(index);
    }
    expect(cellAt(grid, count, last.x, grid.bottom + 40)).toBeUndefined();
  }
  expect(poolGrid(width, 0, 4096).bottom).toBeLessThanOrEqual(420);
});

test("a request's own order is one line of large cells, or lines of small ones", () => {
  const like = poolGrid(918, 0, 96);
  expect(stripGrid(918, 20, 10, like)).toMatchObject({ size: "large", rows: 1 });
  for (const count of [120, 512]) {
    const strip = stripGrid(918, 20, count, like);
    expect(strip.size).toBe("small");
    expect(strip.bottom - strip.top).toBeLessThan(80);
    expect(spotOf(strip, count - 1).x + strip.w).toBeLessThanOrEqual(912.01);
  }
});

test("what fell out of a window belongs to no stretch", () => {
  expect(stretchesOf([GONE, GONE, 4, 5, 9])).toEqual([
    { from: 2, to: 4 },
    { from: 4, to: 5 },
  ]);
  expect(stretchesOf([GONE])).toEqual([]);
});

test("neighbouring blocks are one stretch, upwards or downwards", () => {
  expect(stretchesOf([0, 1, 2, 7, 6, 5, 25, 31])).toEqual([
    { from: 0, to: 3 },
    { from: 3, to: 6 },
    { from: 6, to: 7 },
    { from: 7, to: 8 },
  ]);
  expect(stretchesOf([])).toEqual([]);
  expect(stretchesOf([4, 5, 4])).toEqual([
    { from: 0, to: 2 },
    { from: 2, to: 3 },
  ]);
});

test("a ring goes round blocks side by side, and ends with the row", () => {
  const grid = poolGrid(918, 0, 96);
  expect(ringsOf(grid, [22, 23, 24, 40, 22])).toHaveLength(3);
  expect(ringsOf(grid, [0, 1, 2])[0].w).toBeCloseTo(3 * grid.w + 2 * grid.gapX);
});

test("wires whose ways overlap have lanes of their own", () => {
  const grid = poolGrid(918, 120, 96);
  const wires = wiresOf(
    [
      { from: 20, block: 30 },
      { from: 60, block: 20 },
      { from: 200, block: 2 },
      { from: 240, block: 60 },
    ],
    grid,
  );
  const ends = wires.map((w) => [Math.min(w.from, w.to.x), Math.max(w.from, w.to.x)]);
  for (let i = 0; i < wires.length; i++)
    for (let j = 0; j < i; j++)
      if (ends[i][0] < ends[j][1] && ends[j][0] < ends[i][1]) expect(wires[i].lane).not.toBe(wires[j].lane);
});

test("a block has the tokens of its place in the text, also behind places that fell out of a window", () => {
  const pool = new Pool(0, 8, 4, [{ request: 0, row: 0, tokens: 14, table: [GONE, GONE, 3, 5] }]);
  expect([pool.used, pool.filled[3], pool.filled[5]]).toEqual([2, 4, 2]);
});
