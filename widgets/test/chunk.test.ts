import { expect, test } from "vitest";
import { deflate, encodeChunk, layOut } from "../dev/encode";
import { ChunkError, decodeChunk, inflate } from "../src/chunk";
import { headerOf } from "./made";

const columns = () => ({
  "tokens.run": { data: Uint16Array.of(0, 0, 1) },
  "tokens.prob": { data: Float32Array.of(0.5, 0.25, 1) },
  "tokens.start_ms": { data: Float64Array.of(1.5, 2.5, -3) },
  "tokens.top_ids": { data: Uint32Array.of(1, 2, 3, 4, 5, 6), width: 2 },
  "stages.token": { data: Int32Array.of(-1, 0, 7, 9) },
  "seen.slot": { data: Uint8Array.of(63) },
});

test("every column type comes back as it went in", async () => {
  const { header, columns: back } = await decodeChunk(await encodeChunk(headerOf(), columns()));
  expect(header.model.vocab_size).toBe(100);
  for (const [name, { data }] of Object.entries(columns())) expect([...back.get(name)!.data]).toEqual([...data]);
  expect(back.get("tokens.top_ids")).toMatchObject({ rows: 3, width: 2 });
});

test("columns start at multiples of 8, whatever the header's length", async () => {
  for (let pad = 0; pad < 9; pad++) {
    const header = headerOf({ model: { name: "m".repeat(pad), vocab_size: 100 } });
    const back = await decodeChunk(await encodeChunk(header, columns()));
    expect(back.columns.get("tokens.start_ms")!.data[1]).toBe(2.5);
  }
});

test("bytes at an odd place inside a bigger message are read", async () => {
  const bytes = await encodeChunk(headerOf(), columns());
  const message = new Uint8Array(bytes.length + 13);
  message.set(bytes, 13);
  const back = await decodeChunk(message.subarray(13));
  expect([...back.columns.get("tokens.run")!.data]).toEqual([0, 0, 1]);
});

test.each([
  ["cut in the columns", (raw: Uint8Array) => raw.slice(0, raw.length - 8), "cut off"],
  ["cut in the header", (raw: Uint8Array) => raw.slice(0, 40), "cut off inside its header"],
  ["almost empty", () => new Uint8Array(2), "cut off before its header"],
])("a recording that is %s says so", async (_, cut, words) => {
  const broken = await deflate(cut(layOut(headerOf(), columns())));
  await expect(decodeChunk(broken)).rejects.toThrow(words);
});

test("other formats and newer versions are refused with the version's number", async () => {
  await expect(decodeChunk(await encodeChunk(headerOf({ version: 2 }), {}))).rejects.toThrow("version 2");
  await expect(decodeChunk(await encodeChunk(headerOf({ format: "x" }), {}))).rejects.toThrow(ChunkError);
});

test("a small message that unpacks to a huge one is stopped", async () => {
  const bomb = await deflate(new Uint8Array(1 << 20));
  expect(bomb.length).toBeLessThan(3000);
  await expect(inflate(bomb, 1 << 16)).rejects.toThrow("larger than 65536 bytes");
});

test("a column with a negative size or an unknown type is refused", async () => {
  const raw = layOut(headerOf(), { "tokens.run": { data: Uint16Array.of(1) } });
  const spoil = (from: string, to: string) => {
    const text = new TextDecoder("latin1").decode(raw);
    expect(text).toContain(from);
    return deflate(Uint8Array.from(text.replace(from, to), (c) => c.charCodeAt(0)));
  };
  await expect(decodeChunk(await spoil('"u2"', '"z2"'))).rejects.toThrow("unknown layout");
  await expect(decodeChunk(await spoil("[1]", "[-]"))).rejects.toThrow();
});
