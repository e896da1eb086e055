/**
 * Host for an offline page: no Jupyter, no kernel, nothing fetched.
 *
 * Reads the widgets that the page carries as text, gives each the smallest model that works, and puts views into their slots.
 * PROTOCOL.md, "Offline page", is the contract. Knows nothing about traces or pictures: those are in the runtime's module.
 */
interface Entry {
  id: string;
  kind: "runtime" | "trace" | "view";
  esm?: string;
  state: Record<string, unknown>;
  buffers?: { path: (string | number)[]; data: string }[];
}

interface Runtime {
  createStore(model: Model, signal: AbortSignal): unknown;
  mount(kind: unknown, context: { el: HTMLElement; signal: AbortSignal }, store: unknown): unknown;
}

interface WidgetModule {
  initialize?(context: object): unknown;
  render?(context: object): unknown;
}

type Listener = (...args: unknown[]) => void;

class Model {
  private listeners = new Map<string, Listener[]>();

  constructor(private state: Record<string, unknown>) {}

  get(name: string): unknown {
    return this.state[name];
  }

  set(name: string, value: unknown): void {
    if (this.state[name] === value) return;
    this.state[name] = value;
    for (const listener of this.listeners.get(`change:${name}`) ?? []) listener(this, value);
  }

  on(name: string, listener: Listener): void {
    this.listeners.set(name, [...(this.listeners.get(name) ?? []), listener]);
  }

  off(name?: string | null, listener?: Listener | null): void {
    if (!name) this.listeners.clear();
    else this.listeners.set(name, listener ? (this.listeners.get(name) ?? []).filter((l) => l !== listener) : []);
  }

  save_changes(): void {
    for (const listener of this.listeners.get("change") ?? []) listener(this);
  }

  send(): never {
    throw new Error("an offline page has no kernel");
  }
}

const bytes = (base64: string) => new DataView(Uint8Array.from(atob(base64), (c) => c.charCodeAt(0)).buffer);

function withBuffers({ state, buffers = [] }: Entry): Record<string, unknown> {
  for (const { path, data } of buffers) {
    const last = path.at(-1);
    if (last === undefined) continue;
    let owner = state as Record<string | number, unknown>;
    for (const key of path.slice(0, -1)) owner = owner[key] as Record<string | number, unknown>;
    owner[last] = bytes(data);
  }
  return state;
}

async function load(esm: string): Promise<WidgetModule> {
  const url = URL.createObjectURL(new Blob([esm], { type: "text/javascript" }));
  try {
    const module = await import(url);
    return typeof module.default === "function" ? await module.default() : module.default;
  } finally {
    URL.revokeObjectURL(url);
  }
}

class Host {
  private signal = new AbortController().signal;
  private made = new Map<string, Promise<{ exports: unknown; model: Model; module: WidgetModule }>>();

  constructor(private entries: Map<string, Entry>) {}

  private idOf(ref: unknown): string {
    return String(ref).replace(/^anywidget:/, "");
  }

  private widget(id: string) {
    const known = this.made.get(id);
    if (known) return known;
    const entry = this.entries.get(id);
    if (!entry) throw new Error(`this page holds no widget "${id}"`);
    const making = this.make(entry);
    this.made.set(id, making);
    return making;
  }

  private async make(entry: Entry) {
    const model = new Model(withBuffers(entry));
    const module = entry.esm ? await load(entry.esm) : this.plain(entry, model);
    const exports = await module.initialize?.({ model, signal: this.signal, experimental: {} });
    return { exports, model, module };
  }

  /** What the few bytes of a trace model or a view do. */
  private plain(entry: Entry, model: Model): WidgetModule {
    if (entry.kind === "trace") {
      let store: unknown;
      const once = (runtime: Runtime) => {
        store ??= runtime.createStore(model, this.signal);
        return store;
      };
      return { initialize: () => ({ store: once }) };
    }
    return {
      render: async (context: object) => {
        const { el } = context as { el: HTMLElement };
        const runtime = (await this.getWidget(model.get("rt"))).exports as Runtime;
        const trace = (await this.getWidget(model.get("trace"))).exports as { store(r: Runtime): unknown };
        runtime.mount(model.get("kind"), { el, signal: this.signal }, trace.store(runtime));
      },
    };
  }

  async getWidget(ref: unknown) {
    const { exports } = await this.widget(this.idOf(ref));
    return { exports };
  }

  async getModel(ref: unknown) {
    return (await this.widget(this.idOf(ref))).model;
  }

  async show(id: string, el: HTMLElement): Promise<void> {
    const { model, module } = await this.widget(id);
    await module.render?.({ model, el, signal: this.signal, host: this, experimental: {} });
  }
}

const entries = [...document.querySelectorAll("script.genai-lab-widgets")].flatMap(
  (script) => JSON.parse(script.textContent ?? "[]") as Entry[],
);
const host = new Host(new Map(entries.map((entry) => [entry.id, entry])));
for (const slot of document.querySelectorAll<HTMLElement>(".genai-lab-slot"))
  host.show(slot.dataset.widget ?? "", slot).catch((reason: unknown) => {
    slot.dataset.failed = "1";
    slot.append(`This picture could not be shown: ${reason instanceof Error ? reason.message : reason}`);
  });
