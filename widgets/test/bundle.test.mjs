import { readFile } from "node:fs/promises";
import { expect, test } from "vitest";
import { bundle, here } from "../bundle.mjs";

const outputs = [
  ["src/runtime.ts", "genai_lab.js"],
  ["src/standalone.ts", "standalone.js"],
];
const committed = (name) => readFile(here(`../genai_lab/widgets/static/${name}`));

test.each(outputs)("%s builds to exactly the committed bytes", async (entry, name) => {
  expect(Buffer.from(await bundle(entry)).equals(await committed(name))).toBe(true);
});

test("both files together stay below 160 KB, and fetch nothing", async () => {
  const files = await Promise.all(outputs.map(([, name]) => committed(name)));
  expect(files.reduce((n, f) => n + f.length, 0)).toBeLessThan(160_000);
  for (const f of files) expect(f.toString()).not.toMatch(/https?:\/\/|fetch\(|innerHTML|XMLHttpRequest|WebSocket/);
});
