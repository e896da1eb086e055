/**
 * The frame every picture stands in: a question, how to read it, the one number, a caption with its origin, a table.
 *
 * A card stands alone. It knows nothing about what is drawn inside its body.
 */
import { freshId, h, refill, say } from "./dom";

export interface Sheet {
  head: string[];
  /** Which columns are numbers. */
  numeric: boolean[];
  rows: (string | number)[][];
}

export interface Card {
  element: HTMLElement;
  body: HTMLElement;
  title(question: string, lead: string): void;
  number(value: string, meaning: string): void;
  caption(kind: "measured" | "modelled", text: string): void;
  /** Fill the table again if it is open. */
  refreshTable(): void;
}

function table(sheet: () => Sheet): [HTMLElement, () => void] {
  const box = h("div", { class: "gl-scroll", tabindex: 0, role: "group", "aria-label": "Table" });
  const details = h("details", { class: "gl-tab" }, h("summary", {}, "Show as a table"), box);
  const cells = (tag: "td" | "th", row: (string | number)[], numeric: boolean[]) =>
    h("tr", {}, ...row.map((c, i) => h(tag, { class: numeric[i] ? "gl-n" : null }, String(c))));
  const fill = () => {
    if (!details.open) return;
    const { head, numeric, rows } = sheet();
    const body = rows.map((row) => cells("td", row, numeric));
    refill(box, h("table", {}, h("thead", {}, cells("th", head, numeric)), h("tbody", {}, ...body)));
  };
  details.addEventListener("toggle", fill);
  return [details, fill];
}

export function makeCard(sheet: () => Sheet): Card {
  const id = freshId();
  const question = h("h2", { id });
  const lead = h("p");
  const value = h("b");
  const meaning = h("span");
  const body = h("div", { class: "gl-body" });
  const captions = h("div");
  const [details, fill] = table(sheet);
  const element = h(
    "section",
    { class: "gl-card", "aria-labelledby": id },
    h("header", {}, h("div", {}, question, lead), h("div", { class: "gl-num" }, value, meaning)),
    body,
    captions,
    details,
  );
  const lines = new Map<string, HTMLElement>();
  return {
    element,
    body,
    title(q, l) {
      say(question, q);
      say(lead, l);
    },
    number(v, m) {
      say(value, v);
      say(meaning, m);
    },
    caption(kind, text) {
      let line = lines.get(kind);
      if (!line) {
        line = h("span");
        lines.set(kind, line);
        captions.append(h("div", { class: "gl-cap" }, h("span", { class: `gl-badge gl-${kind}` }, h("i"), kind), line));
      }
      say(line, text);
    },
    refreshTable: fill,
  };
}

/** A row of buttons of which one is pressed. */
export function choice<T extends string>(
  label: string,
  options: readonly (readonly [T, string])[],
  pick: (value: T) => void,
): [HTMLElement, (now: T | "") => void] {
  const buttons = options.map(([value, text]) =>
    h("button", { class: "gl-btn", type: "button", "data-value": value, onclick: () => pick(value) }, text),
  );
  const show = (now: string) => {
    for (const b of buttons) b.setAttribute("aria-pressed", String(b.dataset.value === now));
  };
  return [h("div", { class: "gl-seg", role: "group", "aria-label": label }, ...buttons), show];
}

/** A button that stays reachable when it cannot be used, and then says why. */
export function refuse(button: HTMLButtonElement, reason: string | null): void {
  button.setAttribute("aria-disabled", String(reason !== null));
  button.title = reason ?? "";
}

export const refused = (button: Element): boolean => button.getAttribute("aria-disabled") === "true";
