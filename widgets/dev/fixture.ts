/**
 * A trace for looking at: the measured tokens of two real answers (answers.json), laid out as a kernel would send them.
 *
 * What was not measured there (candidates beyond the 20th, branches' alternatives, the recorder's own time) is made up;
 * these pages are for judging pictures, not for quoting numbers.
 */
import { knobsOf } from "../src/candidates";
import type { Numbers } from "../src/chunk";
import { evaluate, PENALTY } from "../src/sampling";
import type { Header, RunInfo, Settings } from "../src/types";
import answers from "./answers.json";
import { type Columns, encodeChunk } from "./encode";

const K = 64;
const BINS = 128;
const VOCAB = 49152;
export const STAGES = [
  "chat_template",
  "tokenize",
  "prepare_inputs",
  "run_prefill",
  "run_decode",
  "read_logits",
  "min_length",
  "repetition_penalty",
  "no_repeat_ngram",
  "no_long_words",
  "select",
  "kv_append",
  "detokenize",
  "recorder",
];
export const PROCESSORS = ["min_length", "repetition_penalty", "no_repeat_ngram", "no_long_words"];

type Answer = (typeof answers.answers)["B"];
type Word = [number, string];
const words = answers.texts as unknown as Record<string, Word>;
const realId = (i: number) => words[i][0];

export interface TokenRow {
  run: number;
  index: number;
  position: number;
  token: number;
  prob: number;
  rank: number;
  entropy: number;
  final_prob: number;
  start_ms: number;
  end_ms: number;
  top_logit: number;
  log_z: number;
  ids: number[];
  deltas: number[];
  seen: number[];
  tail_lo: number;
  tail_hi: number;
  tail: number[];
  tailSeen: number[];
  changed: { id: number; by: number; delta: number }[];
}

export interface StageRow {
  run: number;
  token: number;
  stage: number;
  start_ms: number;
  dur_ms: number;
  n: number;
}

export interface Trace {
  runs: RunInfo[];
  tokens: TokenRow[];
  stages: StageRow[];
}

const soft = (x: number[]) => Math.log(x.reduce((s, v) => s + Math.exp(v), 0));

/** Groups of [how many, logit below the best] spread over 128 equal bins. */
function spread(pairs: number[]): Pick<TokenRow, "tail" | "tail_lo" | "tail_hi"> {
  const centres = pairs.filter((_, i) => i % 2).map((x) => -x);
  const width = Math.abs(centres[0] - centres[1]);
  const lo = Math.min(...centres) - width / 2;
  const hi = Math.max(...centres) + width / 2;
  const tail = new Array<number>(BINS).fill(0);
  const per = (hi - lo) / BINS;
  centres.forEach((c, i) => {
    const from = Math.max(0, Math.floor((c - width / 2 - lo) / per));
    const to = Math.min(BINS - 1, Math.floor((c + width / 2 - lo) / per - 1e-9));
    for (let k = 0; k < pairs[2 * i]; k++) tail[from + (k % (to - from + 1))]++;
  });
  return { tail, tail_lo: lo, tail_hi: hi };
}

const penalised = (logit: number, p: number) => (logit > 0 ? logit / p : logit * p);

function distribution(answer: Answer, i: number): Omit<TokenRow, "run" | "index" | "position" | "start_ms" | "end_ms"> {
  const [token, prob, entropy, rank] = answer.out[i];
  const top = answer.top[i];
  const known = top.ids;
  const filler = answers.extra.filter((x) => !known.includes(x));
  const ids = Array.from({ length: K }, (_, j) => realId(known[j] ?? filler[(j * 7 + i) % filler.length]));
  for (let j = 1; j < K; j++) while (ids.indexOf(ids[j]) < j) ids[j] = 40000 + ((ids[j] + 17 * j) % 9000);
  const deltas = top.x.map((x) => -x);
  const { tail, tail_lo, tail_hi } = spread(top.tail);
  const tailMass = tail.map((n, b) => Math.log(n || 1e-30) - (tail_lo + ((b + 0.5) * (tail_hi - tail_lo)) / BINS));
  const p = answer.settings.repetition_penalty;
  const seen = [...top.seen].flatMap((c, j) => (c === "1" ? [j] : []));
  const changed =
    p === 1 ? [] : seen.map((j) => ({ id: ids[j], by: 1, delta: top.max - penalised(top.max - deltas[j], p) }));
  const log_z = soft([...deltas.map((d) => -d), ...tailMass]);
  const tail128 = { lo: tail_lo, hi: tail_hi, count: tail, seen: tail.map(() => 0) };
  const step = { deltas, seen: new Set(seen), topLogit: top.max, logZ: log_z, tail: tail128 };
  const knobs = knobsOf(settings(answer.settings));
  const last = evaluate(step, knobs, [{ name: PENALTY, moved: new Map() }], [1000]).at(-1)!;
  return {
    token: realId(token),
    prob,
    entropy,
    rank: rank || 1,
    final_prob: last.prob[ids.indexOf(realId(token))] ?? 0,
    top_logit: top.max,
    log_z,
    ids,
    deltas,
    seen,
    tail_lo,
    tail_hi,
    tail,
    tailSeen: tail.map((n, b) => (b % 17 === 3 ? Math.min(n, 2) : 0)),
    changed,
  };
}

const stageOf = (name: string, first: boolean): number =>
  STAGES.indexOf(
    { inputs: "prepare_inputs", run: first ? "run_prefill" : "run_decode", penalty: "repetition_penalty" }[name] ??
      (["tokenize", "detokenize"].includes(name) ? name : "select"),
  );

function settings(s: Answer["settings"]): Settings {
  const greedy = s.temperature === 0;
  return {
    mode: greedy ? "greedy" : "sample",
    mode_reason: greedy ? "do_sample is False" : "do_sample is True",
    temperature: greedy ? 1 : s.temperature,
    top_k: greedy ? 50 : s.top_k,
    top_p: greedy ? 0 : s.top_p,
    min_p: s.min_p,
    repetition_penalty: s.repetition_penalty,
    min_length: 0,
    no_repeat_ngram_size: 0,
    random_seed: greedy ? null : 7,
    max_length: 8192,
  };
}

/** One measured answer as run `run`, starting at `at` ms on the trace's clock. */
export function answerRun(name: "A" | "B", run: number, at: number): Trace {
  const answer = answers.answers[name] as Answer;
  const info: RunInfo = {
    run,
    parent: null,
    fork: null,
    forced: null,
    status: "done",
    finish: answer.done === "length" ? "length" : "eos",
    error: null,
    prompt_tokens: answer.prompt_tokens,
    cached_tokens: 0,
    question: answer.question,
    prompt_text: answer.question,
    settings: settings(answer.settings),
    start_ms: at,
  };
  const stages: StageRow[] = [];
  const tokens = answer.out.map((_, i): TokenRow => {
    const s = answer.steps[i];
    const parts = Array.from({ length: s.length / 3 }, (_, j) => ({
      stage: stageOf(answers.stages[s[3 * j]], i === 0),
      start: at + s[3 * j + 1] / 1000,
      dur: s[3 * j + 2] / 1000,
    }));
    let selecting: StageRow | null = null;
    for (const { stage, start, dur } of parts) {
      if (stage === STAGES.indexOf("select") && selecting) {
        selecting.dur_ms = start + dur - selecting.start_ms;
        continue;
      }
      const early = i === 0 && STAGES[stage] === "tokenize";
      const n = i === 0 ? answer.prompt_tokens : 1;
      const one = { run, token: early ? -1 : i, stage, start_ms: start, dur_ms: dur, n };
      if (stage === STAGES.indexOf("select")) selecting = one;
      stages.push(one);
    }
    const first = parts.find((p) => !(i === 0 && STAGES[p.stage] === "tokenize"))!;
    const last = parts.at(-1)!;
    const end = last.start + last.dur;
    stages.push({ run, token: i, stage: STAGES.indexOf("recorder"), start_ms: end + 0.01, dur_ms: 0.16, n: 1 });
    const position = answer.prompt_tokens + i;
    return { run, index: i, position, start_ms: first.start, end_ms: end, ...distribution(answer, i) };
  });
  return { runs: [info], tokens, stages };
}

/** A branch of run 0 (answer B) whose text was measured once; what it does not hold is borrowed from the parent's rows. */
export function branchRun(parent: Trace, from: RunInfo, fork: number, token: number, run: number, at: number): Trace {
  const answer = answers.answers.B;
  const row = parent.tokens.find((t) => t.run === from.run && t.index === fork)!;
  const slot = row.ids.indexOf(token);
  const prob = Math.exp(-(row.deltas[slot] ?? 9) - row.log_z);
  const kept = Object.entries(answer.branches).find(([key]) => {
    const [index, id] = key.split(":").map(Number);
    return from.parent === null && index === fork && realId(id) === token;
  });
  const rest: [number, number, number][] = [];
  if (kept) for (let j = 0; j < kept[1].length; j += 3) rest.push(kept[1].slice(j, j + 3) as [number, number, number]);
  else for (let j = 20; j < 34; j++) rest.push([answer.out[j][0], answer.out[j][1] * 1000, answer.out[j][2] * 10]);
  const info: RunInfo = {
    ...from,
    run,
    parent: from.run,
    fork,
    forced: token,
    status: "done",
    finish: "length",
    cached_tokens: row.position,
    start_ms: at,
  };
  const forced: TokenRow = {
    ...row,
    run,
    index: 0,
    token,
    prob,
    rank: slot + 1 || 99,
    final_prob: Number.NaN,
    start_ms: at,
    end_ms: at + 15.2,
  };
  const tokens = [forced];
  const stages: StageRow[] = [];
  const stage = (token: number, name: string, start: number, dur: number) =>
    stages.push({ run, token, stage: STAGES.indexOf(name), start_ms: start, dur_ms: dur, n: 1 });
  stage(0, "run_decode", at, 15);
  stage(0, "kv_append", at + 15, 0.2);
  rest.forEach(([id, p, bits], j) => {
    const like = distribution(answer as Answer, (fork + j + 1) % answer.out.length);
    const start = at + 15.5 + j * 19;
    const ids = [realId(id), ...like.ids.filter((x) => x !== realId(id))].slice(0, K);
    const prob = p / 1000;
    tokens.push({
      ...like,
      ids,
      log_z: -Math.log(prob),
      run,
      index: j + 1,
      position: row.position + j + 1,
      token: realId(id),
      prob,
      rank: 1,
      entropy: bits / 10,
      final_prob: Math.min(1, prob * 1.4),
      start_ms: start,
      end_ms: start + 18 + (j % 3),
    });
    stage(j + 1, "prepare_inputs", start, 0.1);
    stage(j + 1, "run_decode", start + 0.1, 16.5 + (j % 3));
    stage(j + 1, "select", start + 16.7 + (j % 3), 0.8);
    stage(j + 1, "kv_append", start + 17.5 + (j % 3), 0.2);
    stage(j + 1, "detokenize", start + 17.7 + (j % 3), 0.2);
  });
  return { runs: [info], tokens, stages };
}

export const join = (...traces: Trace[]): Trace => ({
  runs: traces.flatMap((t) => t.runs),
  tokens: traces.flatMap((t) => t.tokens),
  stages: traces.flatMap((t) => t.stages),
});

const HOSTILE: Header["texts"] = [
  [49150, '<img src=x onerror="window.harmed=1"><script>window.harmed=1</script>\u202e', 0],
  [49151, " zyzzyva", 0],
];

const allTexts = (): Header["texts"] => [...HOSTILE, ...vocabularyTexts()];

const vocabularyTexts = (): Header["texts"] =>
  Object.values(words).map(([id, text]): [number, string, number] => [id, text, /^<\|.*\|>$/.test(text) ? 1 : 0]);

const pick = (rows: object[], key: string): number[] => rows.map((r) => (r as Record<string, number>)[key]);
const u4 = (v: number[]) => ({ data: Uint32Array.from(v) as Numbers });
const f4 = (v: number[]) => ({ data: Float32Array.from(v) as Numbers });
const f8 = (v: number[]) => ({ data: Float64Array.from(v) as Numbers });
const u2 = (v: number[]) => ({ data: Uint16Array.from(v) as Numbers });
const u1 = (v: number[]) => ({ data: Uint8Array.from(v) as Numbers });

export interface Span {
  tokens: [number, number];
  stages: [number, number];
  seq: number;
}

/** The rows [first, end) of the trace as one chunk; without a span, everything. */
export function chunkOf(trace: Trace, span?: Span): Promise<Uint8Array> {
  const [t0, t1] = span?.tokens ?? [0, trace.tokens.length];
  const [s0, s1] = span?.stages ?? [0, trace.stages.length];
  const tokens = trace.tokens.slice(t0, t1);
  const stages = trace.stages.slice(s0, s1);
  const side = (rows: TokenRow[], from: number) => ({
    seen: rows.flatMap((r, i) => r.seen.map((slot) => ({ row: from + i, slot }))),
    changed: rows.flatMap((r, i) => r.changed.map((c) => ({ row: from + i, ...c }))),
  });
  const before = side(trace.tokens.slice(0, t0), 0);
  const { seen, changed } = side(tokens, t0);
  const columns: Columns = {};
  for (const name of ["run", "index", "position", "token", "rank"])
    columns[`tokens.${name}`] = name === "run" ? u2(pick(tokens, name)) : u4(pick(tokens, name));
  for (const name of ["prob", "entropy", "final_prob", "top_logit", "log_z", "tail_lo", "tail_hi"])
    columns[`tokens.${name}`] = f4(pick(tokens, name));
  for (const name of ["start_ms", "end_ms"]) columns[`tokens.${name}`] = f8(pick(tokens, name));
  columns["tokens.top_ids"] = { ...u4(tokens.flatMap((t) => t.ids)), width: K };
  columns["tokens.top_delta"] = {
    ...u2(tokens.flatMap((t) => t.deltas.map((d) => Math.min(65535, Math.round(d * 1024))))),
    width: K,
  };
  columns["tokens.tail_count"] = { ...u4(tokens.flatMap((t) => t.tail)), width: BINS };
  columns["tokens.tail_seen"] = { ...u2(tokens.flatMap((t) => t.tailSeen)), width: BINS };
  columns["changed.row"] = u4(pick(changed, "row"));
  columns["changed.id"] = u4(pick(changed, "id"));
  columns["changed.by"] = u1(pick(changed, "by"));
  columns["changed.delta"] = f4(pick(changed, "delta"));
  columns["seen.row"] = u4(pick(seen, "row"));
  columns["seen.slot"] = u1(pick(seen, "slot"));
  columns["stages.run"] = u2(pick(stages, "run"));
  columns["stages.token"] = { data: Int32Array.from(pick(stages, "token")) };
  columns["stages.stage"] = u1(pick(stages, "stage"));
  columns["stages.start_ms"] = f8(pick(stages, "start_ms"));
  columns["stages.dur_ms"] = f8(pick(stages, "dur_ms"));
  columns["stages.n"] = u4(pick(stages, "n"));
  const header: Omit<Header, "columns"> = {
    format: "genai_lab.chunk",
    version: 1,
    seq: span?.seq ?? 0,
    first: { tokens: t0, stages: s0, seen: before.seen.length, changed: before.changed.length },
    model: { name: "SmolLM2-135M-Instruct", vocab_size: VOCAB, kv_bytes_per_token: 46080 },
    origin: { machine: "2 CPU threads, onnxruntime 1.32.0", recorded_at: "2026-01-31T12:00:00Z", dropped: {} },
    runs: trace.runs,
    texts: allTexts(),
    stage_names: STAGES,
    processor_names: PROCESSORS,
  };
  return encodeChunk(header, columns);
}
