/** A small made-up engine run as chunk columns: who held which blocks after each step, and what happened to blocks. */
import { type Columns, encodeChunk } from "../dev/encode";
import type { Header, TurnInfo } from "../src/types";
import { headerOf } from "./made";

export interface MadeStep {
  /** Request -> its block table. Four tokens a block; the last one holds `tokens` of them. */
  tables: Record<number, { blocks: number[]; tokens: number }>;
  decisions?: { request: number; verdict: string; tokens?: number; template?: string; operands?: [string, number][] }[];
  admissions?: { request: number; cached: number; template?: string; operands?: [string, number][] }[];
  pool?: { block: number; event: string; request?: number; owner?: number; start?: number; policy?: string }[];
}

export const BLOCKS = 8;

export const turnOf = (request: number, more: Partial<TurnInfo> = {}): TurnInfo => ({
  request,
  turn: 1,
  run: null,
  status: "running",
  finish: "",
  prompt_tokens: 4,
  generated_tokens: 0,
  cached_prompt_tokens: 0,
  preemptions: 0,
  recomputed_tokens: 0,
  arrived_ms: 0,
  scheduled_ms: 0,
  first_token_ms: null,
  finished_ms: null,
  ...more,
});

/** Steps [from, to) of a run as one chunk, rows numbered as if the earlier ones had been sent. */
export function engineChunk(
  steps: MadeStep[],
  from = 0,
  to = steps.length,
  more: Partial<Header> = {},
): Promise<Uint8Array> {
  const words: string[] = [];
  const word = (text: string) => {
    if (!words.includes(text)) words.push(text);
    return words.indexOf(text);
  };
  const rows: Record<string, number[]> = {};
  const first: Record<string, number> = {};
  const put = (table: string, values: Record<string, number>, sent: boolean) => {
    if (!sent) first[table] = (first[table] ?? 0) + 1;
    else
      for (const [name, value] of Object.entries(values)) {
        rows[`${table}.${name}`] ??= [];
        rows[`${table}.${name}`].push(value);
      }
  };
  const count: Record<string, number> = { decisions: 0, admissions: 0 };
  let before: MadeStep["tables"] = {};
  steps.slice(0, to).forEach((made, step) => {
    const sent = step >= from;
    const used = new Set(Object.values(made.tables).flatMap((t) => t.blocks)).size;
    const times = { start_ms: 10 * step, dur_ms: 9, run_ms: 8 };
    const pool = { blocks_used: used, blocks_cached: 0, blocks_free: BLOCKS - used, block_size: 4 };
    put("steps", { step: step + 5, ...times, budget: 16, num_waiting: 0, ...pool }, sent);
    const owned = (kind: "decisions" | "admissions", operands: [string, number][] = []) => {
      const [table, name] = kind === "decisions" ? ["operands", "decision"] : ["admission_operands", "admission"];
      for (const [key, value] of operands) put(table, { [name]: count[kind], name: word(key), value }, sent);
      count[kind]++;
    };
    for (const d of made.decisions ?? []) {
      const named = { verdict: word(d.verdict), reason: word("fits"), template: word(d.template ?? "") };
      put("decisions", { step, request: d.request, ...named, num_tokens: d.tokens ?? 0 }, sent);
      owned("decisions", d.operands);
    }
    for (const [request, { blocks, tokens }] of Object.entries(made.tables)) {
      const known = before[Number(request)]?.blocks ?? [];
      put("holders", { step, request: Number(request), row: 0, num_tokens: tokens, num_blocks: blocks.length }, sent);
      blocks.forEach((block, index) => {
        if (known[index] !== block) put("tables", { step, request: Number(request), index, block }, sent);
      });
    }
    for (const a of made.admissions ?? []) {
      put("admissions", { step, request: a.request, cached_tokens: a.cached, template: word(a.template ?? "") }, sent);
      owned("admissions", a.operands);
    }
    for (const e of made.pool ?? []) {
      const who = { request: e.request ?? 0, owner: e.owner ?? 0, start: e.start ?? 0, candidates: 1 };
      put("pool", { step, block: e.block, event: word(e.event), ...who, policy: word(e.policy ?? "") }, sent);
    }
    before = made.tables;
  });
  const columns: Columns = {};
  for (const [name, values] of Object.entries(rows))
    columns[name] = { data: /_ms$|value$/.test(name) ? Float64Array.from(values) : Uint32Array.from(values) };
  return encodeChunk(headerOf({ first, words, ...more }), columns);
}
