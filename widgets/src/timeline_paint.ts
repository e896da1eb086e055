/**
 * Painting the timeline: takes a layout and puts it on a canvas, in the colours of the page.
 *
 * Decides nothing about places; those come from timeline_layout.ts.
 */

import {
  BASE,
  type Box,
  type Fill,
  HEIGHT,
  LANES,
  type Layout,
  LEFT,
  type Measure,
  type Range,
} from "./timeline_layout";
import type { Kind, RunTimes } from "./times";

const TONES = [
  "surface",
  "sunken",
  "line",
  "edge",
  "ink",
  "ink-2",
  "ink-3",
  "mark",
  "p0",
  "p1",
  "s-run",
  "s-prep",
  "s-choose",
  "s-out",
  "on-run",
] as const;
type Tones = Record<(typeof TONES)[number], string>;

/** Colours and font of the page at this moment. */
export interface Ink {
  tones: Tones;
  family: string;
}

export const OVERVIEW_HEIGHT = 16;
const FILLS: Record<Kind, keyof Tones> = {
  run: "s-run",
  prep: "s-prep",
  choose: "s-choose",
  out: "s-out",
  recorder: "s-out",
};
export type Brush = CanvasRenderingContext2D;

export function readInk(root: Element): Ink {
  const style = getComputedStyle(root);
  const tones = Object.fromEntries(TONES.map((t) => [t, style.getPropertyValue(`--gl-${t}`).trim()])) as Tones;
  return { tones, family: style.fontFamily };
}

/** The canvas sized for the screen's pixels, cleared. Null while it is not on screen. */
export function surface(canvas: HTMLCanvasElement, height: number): [Brush, number] | null {
  const width = canvas.clientWidth;
  const g = canvas.getContext("2d");
  if (!width || !g) return null;
  const dpr = devicePixelRatio || 1;
  const [w, h] = [Math.round(width * dpr), Math.round(height * dpr)];
  if (canvas.width !== w || canvas.height !== h) Object.assign(canvas, { width: w, height: h });
  g.setTransform(dpr, 0, 0, dpr, 0, 0);
  g.clearRect(0, 0, width, height);
  return [g, width];
}

function setFont(g: Brush, { family }: Ink, strong: boolean): void {
  g.font = `${strong ? 600 : 400} 11px ${family}`;
}

export function measureWith(g: Brush, ink: Ink): Measure {
  return (text, strong) => {
    setFont(g, ink, strong);
    return g.measureText(text).width;
  };
}

export function line(g: Brush, x0: number, y0: number, x1: number, y1: number, dash: number[] = []): void {
  g.setLineDash(dash);
  g.beginPath();
  g.moveTo(x0, y0);
  g.lineTo(x1, y1);
  g.stroke();
  g.setLineDash([]);
}

export function hatch(g: Brush, { x, y, w, h }: Pick<Box, "x" | "y" | "w" | "h">, colour: string): void {
  g.save();
  g.beginPath();
  g.rect(x, y, w, h);
  g.clip();
  g.strokeStyle = colour;
  g.lineWidth = 1;
  g.beginPath();
  for (let i = -h; i < w + h; i += 5) {
    g.moveTo(x + i, y + h);
    g.lineTo(x + i + h, y);
  }
  g.stroke();
  g.restore();
}

/** The strip of the whole run, with a frame around what the picture below shows. */
export function paintOverview(
  canvas: HTMLCanvasElement,
  { from, to, tokens, prompt }: RunTimes,
  view: Range,
  ink: Ink,
): void {
  const made = surface(canvas, OVERVIEW_HEIGHT);
  if (!made) return;
  const [g, w] = made;
  const c = ink.tones;
  const x = (ms: number) => LEFT + ((ms - from) / (to - from || 1)) * (w - LEFT - 1);
  g.fillStyle = c.sunken;
  g.fillRect(LEFT, 2, w - LEFT, 12);
  let filled = -1;
  for (const t of tokens) {
    const reads = t.index <= prompt;
    const left = x(reads ? from : t.from);
    const right = Math.max(left + 1, x(t.to) - 1);
    if (right <= filled + 0.5) continue;
    g.fillStyle = reads ? c["s-run"] : c["s-choose"];
    g.fillRect(left, 5, right - left, 6);
    filled = right;
  }
  const a = x(view.from);
  g.strokeStyle = c.mark;
  g.lineWidth = 1.5;
  g.beginPath();
  g.roundRect(a + 0.75, 1.75, Math.max(x(view.to) - a, 4) - 1.5, 12.5, 2);
  g.stroke();
  setFont(g, ink, false);
  g.fillStyle = c["ink-2"];
  g.fillText("whole run", 0, 12);
}

/** What the fills mean. The swatches are painted by the function that paints the picture. */
export const LEGEND: readonly { fill: Kind; words: string }[] = [
  { fill: "run", words: "the model runs" },
  { fill: "prep", words: "prepare: text to tokens, inputs of the model" },
  { fill: "choose", words: "choose the token, commit it to the text" },
  { fill: "out", words: "cache and text for the reader" },
  { fill: "recorder", words: "the recorder's own work, not counted" },
];

export function paintKey(canvas: HTMLCanvasElement, fill: Kind, ink: Ink): void {
  const made = surface(canvas, 12);
  if (!made) return;
  const [g, w] = made;
  const box = { lane: "stage", x: 0, y: 0, w, h: 12, fill, token: 0, name: "", ms: 0, tint: 0 } as const;
  paintBox(g, ink.tones, box);
}

const tinted = (c: Tones, share: number) => `color-mix(in srgb, ${c.p1} ${Math.round(share * 100)}%, ${c.p0})`;

function paintBox(g: Brush, c: Tones, box: Box): void {
  const gap = box.w > 4 ? 1 : 0;
  const special: Partial<Record<Fill, string>> = { token: tinted(c, box.tint), picked: c.mark, bar: c["s-choose"] };
  const slim = box.w <= 3;
  g.fillStyle = box.fill === "recorder" && slim ? c.edge : (special[box.fill] ?? c[FILLS[box.fill as Kind]]);
  g.fillRect(box.x, box.y, box.w - gap, box.h);
  const hatched = box.fill === "recorder" || (box.fill === "prep" && box.lane === "stage");
  if (hatched && !slim) hatch(g, { ...box, w: box.w - gap }, c["ink-3"]);
  if (box.fill !== "token" && box.fill !== "recorder") return;
  g.strokeStyle = c.edge;
  g.lineWidth = 1;
  if (!slim) g.strokeRect(box.x + 0.5, box.y + 0.5, box.w - 2, box.h - 1);
  else for (const y of [box.y + 0.5, box.y + box.h - 0.5]) line(g, box.x, y, box.x + box.w, y);
}

function paintPlayhead(g: Brush, c: Tones, at: number, w: number): void {
  const x = Math.min(at, w - 1);
  line(g, x, LANES.token[0] - 2, x, BASE + 6);
  g.fillStyle = c.mark;
  g.beginPath();
  g.moveTo(x - 5, 4);
  g.lineTo(Math.min(x + 5, w), 4);
  g.lineTo(x, 13);
  g.fill();
}

function paintMarks(g: Brush, c: Tones, l: Layout, w: number): void {
  g.fillStyle = c.edge;
  g.fillRect(LEFT, BASE, w - LEFT, 1);
  if (l.typicalY !== null) {
    const y = Math.round(l.typicalY) + 0.5;
    g.strokeStyle = c["ink-3"];
    g.lineWidth = 1;
    line(g, LEFT, y, w, y, [1, 3]);
  }
  g.strokeStyle = c.mark;
  if (l.firstToken !== null) {
    const x = Math.round(l.firstToken) + 0.5;
    g.lineWidth = 1.5;
    line(g, x, 18, x, BASE, [4, 3]);
  }
  g.lineWidth = 2;
  if (l.picked) g.strokeRect(l.picked.x, LANES.token[0] - 1, l.picked.w, LANES.token[1] + 2);
  if (l.playhead !== null) paintPlayhead(g, c, l.playhead, w);
}

export function paintLayout(g: Brush, w: number, l: Layout, ink: Ink): void {
  const c = ink.tones;
  g.save();
  g.beginPath();
  g.rect(LEFT - 1, 0, w - LEFT + 1, HEIGHT);
  g.clip();
  g.strokeStyle = c.line;
  g.lineWidth = 1;
  for (const x of l.ticks) line(g, Math.round(x) + 0.5, 18, Math.round(x) + 0.5, BASE + 6);
  for (const box of l.boxes) paintBox(g, c, box);
  paintMarks(g, c, l, w);
  g.restore();
  for (const label of l.labels) {
    setFont(g, ink, label.strong);
    if (label.clear) {
      g.fillStyle = c["s-prep"];
      g.fillRect(label.x - 2, label.y - 10, label.w + 4, 14);
    }
    g.fillStyle = c[label.tone];
    g.fillText(label.text, label.x, label.y);
  }
}
