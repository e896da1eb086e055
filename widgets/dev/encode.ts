/** Header and columns in, the bytes of a chunk out: the writing half of the codec, for tests and for the pages of this folder. */
import type { Numbers } from "../src/chunk";
import type { ColumnInfo, Header } from "../src/types";

export type Columns = Record<string, { data: Numbers; width?: number }>;

const DTYPE = new Map<unknown, ColumnInfo["dtype"]>([
  [Uint8Array, "u1"],
  [Uint16Array, "u2"],
  [Uint32Array, "u4"],
  [Int32Array, "i4"],
  [Float32Array, "f4"],
  [Float64Array, "f8"],
]);
const up = (n: number) => Math.ceil(n / 8) * 8;

export async function deflate(raw: Uint8Array): Promise<Uint8Array> {
  const stream = new Blob([raw as Uint8Array<ArrayBuffer>]).stream().pipeThrough(new CompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

export function layOut(header: Omit<Header, "columns">, columns: Columns): Uint8Array {
  let offset = 0;
  const infos = Object.entries(columns).map(([name, { data, width }]): ColumnInfo => {
    const at = offset;
    offset = up(offset + data.byteLength);
    const rows = data.length / (width ?? 1);
    return {
      name,
      dtype: DTYPE.get(data.constructor)!,
      shape: width === undefined ? [rows] : [rows, width],
      offset: at,
    };
  });
  const text = new TextEncoder().encode(JSON.stringify({ ...header, columns: infos }));
  const base = up(4 + text.length);
  const raw = new Uint8Array(base + offset);
  new DataView(raw.buffer).setUint32(0, text.length, true);
  raw.set(text, 4);
  for (const [i, { data }] of Object.values(columns).entries())
    raw.set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength), base + infos[i].offset);
  return raw;
}

export const encodeChunk = (header: Omit<Header, "columns">, columns: Columns): Promise<Uint8Array> =>
  deflate(layOut(header, columns));
