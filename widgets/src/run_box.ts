/**
 * One run of the ribbon on the page: its title, its tokens as spans, how it ended.
 *
 * Tokens are only ever appended, in blocks of their own layout. A branch begins with the text before it, dimmed.
 */
import { endsBlock } from "./blocks";
import { flag, h, say } from "./dom";
import { count } from "./format";
import type { Run, Store } from "./store";
import { askedWords, branchTitle, fillToken, originOf, runName, textBefore, tokenSpan } from "./tokens";

/** How a run stands or ended, in words; empty when its text says so itself. */
export function endWords(store: Store, run: Run): string {
  const { info, rows } = run;
  const written = store.firstIndex(run) + rows.length;
  const tokens = `${count(written)} ${written === 1 ? "token" : "tokens"}`;
  if (info.status === "failed") return `Failed: ${info.error ?? "no reason was given"}`;
  if (info.status === "stopped") return `stopped by hand after ${tokens}`;
  if (info.status === "running") {
    if (store.kernel === "absent") return `was still being written when this page last heard of it, after ${tokens}`;
    if (store.stopping && store.late) return "Stop waits: the notebook is busy and hears it when its cell ends";
    return rows.length ? `writing, ${tokens} so far` : "reading the prompt …";
  }
  if (info.finish === "length") return `cut off at its length limit, after ${tokens}`;
  const last = rows.at(-1);
  const told = last !== undefined && store.special(store.tokens.get("token", last));
  return info.finish === "eos" && !told ? "the model ended its answer here" : "";
}

export class RunBox {
  readonly element: HTMLElement;
  readonly spans: HTMLElement[] = [];
  private title = h("span");
  private list = h("div", { class: "gl-rib", role: "listbox", "aria-orientation": "horizontal" });
  private end = h("div", { class: "gl-end" });
  private block: HTMLElement | null = null;
  private blockSize = 0;

  constructor(
    private store: Store,
    readonly run: Run,
    close: () => void,
  ) {
    const branch = run.info.parent !== null;
    const button = h("button", { class: "gl-btn", type: "button", onclick: close }, "Close");
    const head = branch
      ? h("div", { class: "gl-h" }, this.title, button)
      : h("div", { class: "gl-ask" }, h("span", {}, "Asked:"), this.title);
    const name = branch ? "gl-branch" : "gl-run";
    this.element = h("div", { class: name, "data-run": run.info.run }, head, this.list, this.end);
  }

  /** Bring title, end and tokens up to date; `paint` tints a new token. */
  update(paint: (span: HTMLElement, row: number, run: Run) => void): void {
    for (let i = this.spans.length; i < this.run.rows.length; i++) paint(this.append(i), this.run.rows[i], this.run);
    const { store, run } = this;
    const { parent, status } = run.info;
    say(this.title, parent === null ? askedWords(run.info) : branchTitle(store, run));
    say(this.end, endWords(store, run));
    flag(this.list, "aria-label", `${runName(store, run)}, token by token`);
    this.element.classList.toggle("gl-running", status === "running" && store.kernel !== "absent");
  }

  private append(i: number): HTMLElement {
    const { store, run } = this;
    const id = store.tokens.get("token", run.rows[i]);
    const raw = store.text(id);
    const block = this.block ?? this.newBlock();
    const span = tokenSpan(store, run, i);
    for (let n = i - 1; n >= 0 && n >= i - 3 && store.raw(id); n--) {
      if (!store.raw(store.tokens.get("token", run.rows[n]))) break;
      fillToken(this.spans[n], store, run, n); // its character may be complete now
    }
    flag(span, "role", "option");
    flag(span, "aria-selected", false);
    span.tabIndex = -1;
    span.dataset.i = String(i);
    if (i === 0 && run.info.forced !== null) span.classList.add("gl-forced");
    const origin = originOf(store, run.rows[i]);
    if (origin) span.dataset.o = String(origin);
    if (raw.startsWith(" ") || store.special(id)) block.append(h("wbr"));
    block.append(span);
    this.spans.push(span);
    if (endsBlock(++this.blockSize, raw)) this.block = null;
    else if (raw.includes("\n")) block.append(h("br"));
    return span;
  }

  private newBlock(): HTMLElement {
    const block = h("div", { class: "gl-block", role: "presentation" });
    this.block = block;
    this.blockSize = 0;
    this.list.append(block);
    const { run, cached_tokens, parent } = this.run.info;
    const cut = this.store.firstIndex(this.run) > 0;
    if (!this.spans.length && (cut || parent !== null)) {
      const title = cached_tokens ? `${count(cached_tokens)} tokens before it came from the cache` : null;
      const before = cut ? "… " : textBefore(this.store, { run, token: 0 }, 7);
      block.append(h("span", { class: "gl-dim", "aria-hidden": true, title }, before));
    }
    return block;
  }
}
