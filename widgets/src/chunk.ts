/**
 * Bytes of one chunk in, header and typed columns out.
 *
 * Receives what came from a kernel, a saved notebook or a page: untrusted, so every size is checked before it is used.
 * Knows nothing about what the columns mean.
 */
import type { ColumnInfo, Header } from "./types";

export type Numbers = Uint8Array | Uint16Array | Uint32Array | Int32Array | Float32Array | Float64Array;

export interface Column {
  data: Numbers;
  rows: number;
  width: number;
}

export interface Chunk {
  header: Header;
  columns: Map<string, Column>;
}

export class ChunkError extends Error {}

const DTYPES = {
  u1: Uint8Array,
  u2: Uint16Array,
  u4: Uint32Array,
  i4: Int32Array,
  f4: Float32Array,
  f8: Float64Array,
};
const VERSION = 1;
const MAX_BYTES = 1 << 30;

/** Undo zlib, but stop when the result grows beyond `limit` bytes. */
export async function inflate(bytes: Uint8Array, limit = MAX_BYTES): Promise<Uint8Array> {
  const source = new Blob([bytes as Uint8Array<ArrayBuffer>]).stream();
  const reader = source.pipeThrough(new DecompressionStream("deflate")).getReader();
  const parts: Uint8Array[] = [];
  let size = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    size += value.length;
    if (size > limit) {
      await reader.cancel();
      throw new ChunkError(`the recording is larger than ${limit} bytes`);
    }
    parts.push(value);
  }
  const out = new Uint8Array(size);
  let at = 0;
  for (const part of parts) {
    out.set(part, at);
    at += part.length;
  }
  return out;
}

function readHeader(raw: Uint8Array): [Header, number] {
  if (raw.length < 4) throw new ChunkError("the recording is cut off before its header");
  const length = new DataView(raw.buffer, raw.byteOffset).getUint32(0, true);
  if (length > raw.length - 4) throw new ChunkError("the recording is cut off inside its header");
  const header = JSON.parse(new TextDecoder().decode(raw.subarray(4, 4 + length))) as Header;
  if (header?.format !== "genai_lab.chunk") throw new ChunkError("this is not a genai_lab recording");
  if (header.version !== VERSION)
    throw new ChunkError(`the recording has version ${header.version}, this view reads ${VERSION}`);
  return [header, Math.ceil((4 + length) / 8) * 8];
}

function readColumn(raw: Uint8Array, base: number, info: ColumnInfo): Column {
  const type = DTYPES[info.dtype];
  const [rows, width = 1] = info.shape;
  if (!type || !Number.isInteger(rows) || !Number.isInteger(width) || rows < 0 || width < 0)
    throw new ChunkError(`column ${info.name} has an unknown layout`);
  const from = base + info.offset;
  const bytes = rows * width * type.BYTES_PER_ELEMENT;
  if (!(info.offset >= 0) || from + bytes > raw.length) throw new ChunkError(`column ${info.name} is cut off`);
  // a copy: the view may start anywhere inside a bigger message
  const data = new type(raw.slice(from, from + bytes).buffer as ArrayBuffer) as Numbers;
  return { data, rows, width };
}

export async function decodeChunk(bytes: Uint8Array): Promise<Chunk> {
  const raw = await inflate(bytes);
  const [header, base] = readHeader(raw);
  const columns = new Map(header.columns.map((info) => [info.name, readColumn(raw, base, info)]));
  return { header, columns };
}
