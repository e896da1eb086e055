import { readFile } from "node:fs/promises";
import { expect, test } from "vitest";
import { bundle, here, outputs } from "../bundle.mjs";

const committed = (name) => readFile(here(`../genai_lab/widgets/static/${name}`));

test.each(Object.entries(outputs))("%s builds to exactly the committed bytes", async (entry, name) => {
  expect(Buffer.from(await bundle(entry)).equals(await committed(name))).toBe(true);
});

test("each bundle with the page's host stays below 120 KB, and fetches nothing", async () => {
  const [answers, engine, host] = await Promise.all(Object.values(outputs).map(committed));
  expect(answers.length + host.length).toBeLessThan(120_000);
  expect(engine.length + host.length).toBeLessThan(120_000);
  for (const f of [answers, engine, host])
    expect(f.toString()).not.toMatch(/https?:\/\/|fetch\(|innerHTML|XMLHttpRequest|WebSocket/);
});
