/** Small made-up headers, chunks and a model without a kernel, for the tests. */
import type { AnyModel } from "@anywidget/types";
import { type Columns, encodeChunk } from "../dev/encode";
import type { TraceState } from "../src/store";
import type { Header, RunInfo } from "../src/types";

export const headerOf = (more: Partial<Header> = {}): Omit<Header, "columns"> => ({
  format: "genai_lab.chunk",
  version: 1,
  seq: 0,
  first: {},
  model: { name: "tiny", vocab_size: 100 },
  origin: {},
  runs: [],
  texts: [],
  stage_names: ["run_prefill", "run_decode", "select", "recorder"],
  processor_names: ["repetition_penalty"],
  ...more,
});

export const runOf = (run: number, more: Partial<RunInfo> = {}): RunInfo => ({
  run,
  parent: null,
  fork: null,
  forced: null,
  status: "done",
  finish: "length",
  error: null,
  prompt_tokens: 3,
  cached_tokens: 0,
  question: "why?",
  prompt_text: "why?",
  settings: { mode: "sample", temperature: 1, top_k: 0, top_p: 0, min_p: 0, repetition_penalty: 1 },
  start_ms: 0,
  ...more,
});

/** Rows [from, to) of an answer in which token i has id i and entropy i. */
export function rowsOf(run: number, from: number, to: number): Columns {
  const each = Array.from({ length: to - from }, (_, i) => from + i);
  return {
    "tokens.run": { data: Uint16Array.from(each, () => run) },
    "tokens.token": { data: Uint32Array.from(each) },
    "tokens.entropy": { data: Float32Array.from(each) },
    "stages.run": { data: Uint16Array.from(each, () => run) },
    "stages.token": { data: Int32Array.from(each) },
  };
}

/** A whole chunk of `rowsOf`, whose first row is number `first` of its tables. */
export const chunkOf = (more: Partial<Header>, run: number, from: number, to: number, first = from) =>
  encodeChunk(headerOf({ first: { tokens: first, stages: first }, ...more }), rowsOf(run, from, to));

type Listener = (...args: unknown[]) => void;

export class FakeModel {
  sent: { type: string }[] = [];
  saved = 0;
  private listeners = new Map<string, Set<Listener>>();

  constructor(
    private state: Record<string, unknown> = {},
    private kernel = true,
  ) {}

  get = (name: string) => this.state[name];

  set = (name: string, value: unknown) => {
    this.state[name] = value;
    this.fire(`change:${name}`);
  };

  on = (name: string, listener: Listener) =>
    void this.listeners.set(name, (this.listeners.get(name) ?? new Set()).add(listener));

  off = (name: string, listener: Listener) => void this.listeners.get(name)?.delete(listener);

  save_changes = () => void this.saved++;

  send = (message: { type: string }) => {
    if (!this.kernel) throw new Error("no kernel");
    this.sent.push(message);
  };

  fire(name: string, ...args: unknown[]): void {
    for (const listener of this.listeners.get(name) ?? []) listener(...args);
  }

  chunk(bytes: Uint8Array): void {
    this.fire("msg:custom", { type: "chunk" }, [new DataView(bytes.buffer as ArrayBuffer)]);
  }

  get listening(): number {
    return [...this.listeners.values()].reduce((n, l) => n + l.size, 0);
  }

  asModel(): AnyModel<TraceState> {
    return this as unknown as AnyModel<TraceState>;
  }
}
