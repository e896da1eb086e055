import { expect, test, vi } from "vitest";
import { createStore, type Store } from "../src/store";
import { chunkOf, FakeModel, runOf } from "./made";

const untilRows = (store: Store, rows: number) => vi.waitFor(() => expect(store.tokens.rows).toBe(rows));
const told = (store: Store) => store.run(0)?.rows.map((row) => store.tokens.get("token", row));

test("batches are put together in order, and a row that comes twice is one row", async () => {
  const model = new FakeModel();
  const store = createStore(model.asModel());
  const runs = [runOf(0, { status: "running" })];
  model.chunk(await chunkOf({ runs, seq: 1 }, 0, 0, 3));
  model.chunk(await chunkOf({ runs, seq: 2 }, 0, 2, 5));
  model.chunk(await chunkOf({ runs: [runOf(0)], seq: 3 }, 0, 0, 6));
  model.chunk(await chunkOf({ runs, seq: 2 }, 0, 2, 5));
  await untilRows(store, 6);
  expect(told(store)).toEqual([0, 1, 2, 3, 4, 5]);
  expect(store.run(0)?.stages).toHaveLength(6);
});

test("an older description of a run does not undo a newer one", async () => {
  const model = new FakeModel();
  const store = createStore(model.asModel());
  model.chunk(await chunkOf({ runs: [runOf(0)], seq: 9 }, 0, 0, 2));
  model.chunk(await chunkOf({ runs: [runOf(0, { status: "running" })], seq: 4 }, 0, 0, 3));
  await untilRows(store, 3);
  expect(store.status).toBe("done");
});

test("the saved snapshot is read, and messages go on from there", async () => {
  const snapshot = await chunkOf({ runs: [runOf(0)] }, 0, 0, 4);
  const model = new FakeModel({ chunk: new DataView(snapshot.buffer as ArrayBuffer) });
  const store = createStore(model.asModel());
  await vi.waitFor(() => expect(store.ready).toBe(true));
  expect(store.tokens.rows).toBe(4);
  model.chunk(await chunkOf({ runs: [runOf(0)], seq: 1 }, 0, 4, 7));
  await untilRows(store, 7);
  expect(told(store)).toEqual([0, 1, 2, 3, 4, 5, 6]);
});

test("rows with a hole before them are refused and asked for again", async () => {
  const model = new FakeModel();
  const store = createStore(model.asModel());
  await vi.waitFor(() => expect(store.ready).toBe(true));
  model.chunk(await chunkOf({ runs: [runOf(0)] }, 0, 5, 8));
  await vi.waitFor(() => expect(model.sent.map((m) => m.type)).toEqual(["hello", "hello"]));
  expect(store.tokens.rows).toBe(0);
});

test("news that follows what was never heard is refused, and asked for once a second at most", async () => {
  const model = new FakeModel();
  const store = createStore(model.asModel());
  await vi.waitFor(() => expect(store.ready).toBe(true));
  const runs = [runOf(0, { status: "running" })];
  for (const seq of [3, 4]) {
    const news = await chunkOf({ seq }, 0, 0, 2); // the run itself was in a chunk that got lost
    model.fire("msg:custom", { type: "chunk", seq, after: seq - 1 }, [new DataView(news.buffer as ArrayBuffer)]);
  }
  await vi.waitFor(() => expect(model.sent.map((m) => m.type)).toEqual(["hello", "hello"]));
  expect(store.tokens.rows).toBe(0);
  model.chunk(await chunkOf({ runs, seq: 5 }, 0, 0, 3));
  await untilRows(store, 3);
  expect(told(store)).toEqual([0, 1, 2]);
});

test("a silent kernel is asked again, and is there once it answers", () => {
  vi.useFakeTimers();
  const model = new FakeModel();
  const store = createStore(model.asModel());
  vi.advanceTimersByTime(3001);
  expect([store.kernel, model.sent.length]).toEqual(["absent", 3]);
  model.fire("msg:custom", { type: "state", busy: false, can: { branch: true, stop: true } }, []);
  vi.advanceTimersByTime(100_000);
  expect([store.kernel, model.sent.length]).toEqual(["present", 3]);
  vi.useRealTimers();
});

test("runs that branch from each other in a circle are refused", async () => {
  const model = new FakeModel();
  const store = createStore(model.asModel());
  model.chunk(await chunkOf({ runs: [runOf(0, { parent: 0, fork: 0 })] }, 0, 0, 2));
  await vi.waitFor(() => expect(store.error).toContain("cannot branch from a later run"));
  expect(store.runs).toHaveLength(0);
});

test("a broken recording becomes words, and later chunks still count", async () => {
  const model = new FakeModel();
  const store = createStore(model.asModel());
  model.chunk(Uint8Array.of(1, 2, 3, 4));
  await vi.waitFor(() => expect(store.error).not.toBeNull());
  model.chunk(await chunkOf({ runs: [runOf(0)] }, 0, 0, 2));
  await untilRows(store, 2);
  expect(store.error).toBeNull();
});

test("without a pick the newest token counts while streaming, the most doubtful one afterwards", async () => {
  const model = new FakeModel();
  const store = createStore(model.asModel());
  model.chunk(await chunkOf({ runs: [runOf(0, { status: "running" })], seq: 0 }, 0, 0, 3));
  await untilRows(store, 3);
  expect(store.selected).toEqual({ run: 0, token: 2 });
  model.chunk(await chunkOf({ runs: [runOf(0)], seq: 1 }, 0, 0, 5));
  await untilRows(store, 5);
  expect(store.selected).toEqual({ run: 0, token: 4 });
  store.select(0, 1);
  expect(store.selected).toEqual({ run: 0, token: 1 });
  expect(model.get("selected")).toEqual({ run: 0, token: 1 });
  expect(model.saved).toBe(1);
});

test("a pick is kept inside the run, and picking the same again says nothing", async () => {
  const model = new FakeModel();
  const store = createStore(model.asModel());
  model.chunk(await chunkOf({ runs: [runOf(0)] }, 0, 0, 3));
  await untilRows(store, 3);
  store.select(0, 99);
  store.select(0, 50);
  expect(model.get("selected")).toEqual({ run: 0, token: 2 });
  expect(model.saved).toBe(1);
});

test("a kernel is present once it answers, absent when it is silent for a second", async () => {
  vi.useFakeTimers();
  const silent = createStore(new FakeModel().asModel());
  const answered = new FakeModel();
  const store = createStore(answered.asModel());
  answered.fire("msg:custom", { type: "state", busy: false, can: { branch: true, stop: true } }, []);
  expect(silent.kernel).toBe("unknown");
  vi.advanceTimersByTime(1001);
  expect([silent.kernel, store.kernel]).toEqual(["absent", "present"]);
  expect(silent.refusal).toContain("no running notebook");
  expect(store.refusal).toBeNull();
  vi.useRealTimers();
});

test("a model that cannot send has no kernel", () => {
  const store = createStore(new FakeModel({}, false).asModel());
  expect(store.kernel).toBe("absent");
});

test("a branch that this page asked for is picked when its first token comes", async () => {
  const model = new FakeModel();
  const store = createStore(model.asModel());
  model.chunk(await chunkOf({ runs: [runOf(0)] }, 0, 0, 3));
  await untilRows(store, 3);
  store.branch(0, 1, 77, null);
  expect(model.sent.at(-1)).toEqual({ type: "branch", run: 0, index: 1, token: 77, settings: null });
  expect(store.pending).not.toBeNull();
  const branch = runOf(1, { parent: 0, fork: 1, forced: 77, status: "running" });
  model.chunk(await chunkOf({ runs: [runOf(0), branch], seq: 1 }, 1, 0, 2, 3));
  await untilRows(store, 5);
  expect(store.pending).toBeNull();
  expect(store.selected).toEqual({ run: 1, token: 0 });
});

test("Stop shows at once, before the kernel has heard of it", async () => {
  const model = new FakeModel();
  const store = createStore(model.asModel());
  model.chunk(await chunkOf({ runs: [runOf(0, { status: "running" })] }, 0, 0, 3));
  await untilRows(store, 3);
  store.stop();
  expect(store.status).toBe("stopping");
  expect(model.sent.at(-1)).toEqual({ type: "stop" });
  model.chunk(await chunkOf({ runs: [runOf(0, { status: "stopped" })], seq: 1 }, 0, 0, 3));
  await vi.waitFor(() => expect(store.status).toBe("stopped"));
});

test("nothing listens any more after the end", () => {
  const model = new FakeModel();
  const end = new AbortController();
  createStore(model.asModel(), end.signal);
  expect(model.listening).toBe(6);
  end.abort();
  expect(model.listening).toBe(0);
});

test("chunks that stream in are no news about the kernel: only its first word is", async () => {
  const model = new FakeModel();
  const store = createStore(model.asModel());
  const heard: string[] = [];
  store.subscribe((change) => heard.push(change), new AbortController().signal);
  const runs = [runOf(0, { status: "running" })];
  for (const seq of [1, 2, 3]) {
    const chunk = await chunkOf({ runs, seq }, 0, 0, seq);
    model.fire("msg:custom", { type: "chunk", seq }, [new DataView(chunk.buffer as ArrayBuffer)]);
  }
  await untilRows(store, 3);
  expect(heard.filter((change) => change === "kernel")).toHaveLength(1);
});

test("a kernel that was restarted is no longer there, and the picture says so", async () => {
  vi.useFakeTimers();
  const model = new FakeModel();
  const store = createStore(model.asModel());
  model.fire("msg:custom", { type: "state", can: { branch: true, stop: true } }, []);
  expect(store.kernel).toBe("present");
  model.fire("comm_live_update");
  expect([store.kernel, store.refusal]).toEqual(["unknown", "Asking whether a notebook is running …"]);
  vi.advanceTimersByTime(1100);
  expect(store.kernel).toBe("absent");
  vi.useRealTimers();
});
