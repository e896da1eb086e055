/**
 * Painting blocks: one cell in its state, rings, wires and brackets, in the colours of the page.
 *
 * Decides nothing about places; those come from blocks_map_layout.ts.
 */

import type { Ring, Size, Spot, Wire } from "./blocks_map_layout";
import type { EngineInk, Hue } from "./engine_ink";

export type Brush = CanvasRenderingContext2D;

/** What a cell shows. */
export interface Look {
  state: "free" | "cached" | "used";
  /** Of the holder, or of the request whose table is drawn; null: nobody's. */
  hue: Hue | null;
  /** Printed in the corners of a large cell; empty: nothing. */
  id: string;
  letter: string;
  count: number;
  filled: number;
  blockSize: number;
  /** Hues of all holders of a shared block. */
  holders: readonly Hue[];
  /** Content was given up in this very step. */
  evicted: boolean;
  /** The slot of the selected token. */
  slot: number | null;
}

const SLOTS_IN_ROW = 8;

/** One blank canvas of the size of its place, in the screen's pixels. */
export function sized(canvas: HTMLCanvasElement, width: number, height: number): Brush | null {
  const g = canvas.getContext("2d");
  if (!g || !width) return null;
  const dpr = devicePixelRatio || 1;
  const [w, hh] = [Math.round(width * dpr), Math.round(height * dpr)];
  if (canvas.width !== w || canvas.height !== hh) Object.assign(canvas, { width: w, height: hh });
  canvas.style.height = `${height}px`;
  g.setTransform(dpr, 0, 0, dpr, 0, 0);
  return g;
}

export function font(g: Brush, { family }: EngineInk, px: number, weight = 400): void {
  g.font = `${weight} ${px}px ${family}`;
}

function box(g: Brush, x: number, y: number, w: number, h: number, r: number): void {
  g.beginPath();
  g.roundRect(x, y, w, h, Math.max(0, Math.min(r, w / 2, h / 2)));
}

function hatch(g: Brush, colour: string, x: number, y: number, w: number, h: number, pitch: number): void {
  g.save();
  g.beginPath();
  g.rect(x, y, w, h);
  g.clip();
  g.strokeStyle = colour;
  g.lineWidth = 1;
  g.beginPath();
  for (let d = -h; d < w; d += pitch) {
    g.moveTo(x + d, y + h);
    g.lineTo(x + d + h, y);
  }
  g.stroke();
  g.restore();
}

/** One block. The place under it is expected to be empty. */
export function paintCell(
  g: Brush,
  ink: EngineInk,
  size: Size,
  { x, y }: Spot,
  w: number,
  h: number,
  look: Look,
): void {
  if (size === "small" || w < 11) paintSmall(g, ink, x, y, w, h, look);
  else paintFramed(g, ink, size, x, y, w, h, look);
  if (look.evicted) corner(g, ink, size, x, y, w);
}

/** Level by height in the owner's hue; shared ones get a light line across the middle, cached ones a hatch. */
function paintSmall(g: Brush, { tones }: EngineInk, x: number, y: number, w: number, h: number, look: Look): void {
  g.fillStyle = look.state === "free" ? tones.sunken : tones.line;
  g.fillRect(x, y, w, h);
  if (look.state === "cached") {
    g.fillStyle = tones.edge;
    if (w < 6) g.fillRect(x, y + h / 2, w, 1);
    else hatch(g, tones.edge, x, y, w, h, 3);
    return;
  }
  if (look.state === "free" || !look.hue) return;
  const shared = look.count > 1;
  const level = Math.max(1, (h * look.filled) / look.blockSize);
  g.fillStyle = shared ? tones["ink-3"] : look.hue.fill;
  g.fillRect(x, y + h - level, w, level);
  if (!shared || w < 5) return;
  g.strokeStyle = tones.surface;
  g.lineWidth = 1;
  g.strokeRect(x + 1.5, y + 1.5, w - 3, h - 3);
}

function paintFramed(
  g: Brush,
  ink: EngineInk,
  size: Size,
  x: number,
  y: number,
  w: number,
  h: number,
  look: Look,
): void {
  const { tones } = ink;
  const shared = look.count > 1;
  g.lineWidth = 1;
  if (look.state === "free") {
    g.strokeStyle = tones.line;
    box(g, x + 0.5, y + 0.5, w - 1, h - 1, 2);
    g.stroke();
  } else if (look.state === "cached") {
    g.fillStyle = tones.sunken;
    box(g, x + 0.5, y + 0.5, w - 1, h - 1, 2);
    g.fill();
    const head = size === "large" && look.id ? 14 : 1;
    hatch(g, tones.edge, x + 1, y + head, w - 2, h - head - 1, 4);
    g.strokeStyle = tones.edge;
    box(g, x + 0.5, y + 0.5, w - 1, h - 1, 2);
    g.stroke();
  } else {
    g.fillStyle = tones.surface;
    g.strokeStyle = shared ? tones["ink-2"] : (look.hue?.edge ?? tones.edge);
    box(g, x + 0.5, y + 0.5, w - 1, h - 1, shared ? 3 : 2);
    g.fill();
    g.stroke();
    if (shared) {
      box(g, x + 2.5, y + 2.5, w - 5, h - 5, 1.5);
      g.stroke();
    }
    slots(g, ink, size, x, y, w, h, look);
  }
  if (size === "large") words(g, ink, x, y, w, look);
}

function slots(
  g: Brush,
  { tones }: EngineInk,
  size: Size,
  x: number,
  y: number,
  w: number,
  h: number,
  look: Look,
): void {
  const shared = look.count > 1;
  const padX = shared ? (w < 20 ? 4 : 5) : 3;
  const head = size === "large" && (look.id || look.letter) ? 16 : shared ? 5 : 3;
  const dots = shared && look.holders.length > 0 && size === "large";
  const foot = shared ? (dots ? 10 : 5) : 3;
  const [left, top, wide, tall] = [x + padX, y + head, w - 2 * padX, h - head - foot];
  const full = shared ? tones["ink-3"] : (look.hue?.fill ?? tones.edge);
  const rows = Math.ceil(look.blockSize / SLOTS_IN_ROW);
  const [sw, sh] = [wide / Math.min(SLOTS_IN_ROW, look.blockSize), tall / rows];
  if (sw < 2.2 || sh < 2.5) {
    g.fillStyle = tones.sunken;
    g.fillRect(left, top, wide, tall);
    g.fillStyle = full;
    g.fillRect(left, top, (wide * look.filled) / look.blockSize, tall);
  } else
    for (let s = 0; s < look.blockSize; s++) {
      g.fillStyle = s < look.filled ? full : tones.sunken;
      g.fillRect(left + (s % SLOTS_IN_ROW) * sw, top + Math.floor(s / SLOTS_IN_ROW) * sh, sw - 0.8, sh - 0.8);
    }
  if (look.slot !== null && sw >= 2.2) {
    g.strokeStyle = tones.mark;
    g.lineWidth = 1.5;
    const [sx, sy] = [left + (look.slot % SLOTS_IN_ROW) * sw, top + Math.floor(look.slot / SLOTS_IN_ROW) * sh];
    g.strokeRect(sx - 0.9, sy - 0.9, sw + 1, sh + 1);
  }
  if (!dots) return;
  const dw = Math.min(5, wide / look.holders.length);
  look.holders.forEach((hue, i) => {
    g.fillStyle = hue.fill;
    g.fillRect(left + i * dw, y + h - 9, Math.max(1, dw - 0.8), 4);
  });
}

function words(g: Brush, ink: EngineInk, x: number, y: number, w: number, look: Look): void {
  const shared = look.count > 1;
  const pad = shared ? 5 : 3;
  font(g, ink, 10, 700);
  const letter = shared && look.letter ? `×${look.count}` : look.letter;
  const lw = letter ? g.measureText(letter).width : 0;
  g.fillStyle = ink.tones.ink;
  if (letter && lw < w - 4) g.fillText(letter, x + pad + 1, y + 12);
  font(g, ink, 10, look.letter ? 400 : look.state === "used" ? 700 : 400);
  const iw = g.measureText(look.id).width;
  if (!look.id || iw > w - 3 || (letter && lw + iw + 2 * pad + 3 > w)) return;
  g.fillStyle = look.state === "used" ? (look.letter ? ink.tones["ink-2"] : ink.tones.ink) : ink.tones["ink-3"];
  g.fillText(look.id, letter ? x + w - iw - pad : Math.max(x + 2, x + w - iw - pad), y + 12);
}

/** A corner folded over: what was written here before is gone. */
function corner(g: Brush, { tones }: EngineInk, size: Size, x: number, y: number, w: number): void {
  const s = size === "large" ? 9 : size === "medium" ? 7 : Math.min(5, w * 0.7);
  g.fillStyle = tones.surface;
  g.beginPath();
  g.moveTo(x - 1, y - 1);
  g.lineTo(x + s + 2, y - 1);
  g.lineTo(x - 1, y + s + 2);
  g.fill();
  g.fillStyle = tones.mark;
  g.beginPath();
  g.moveTo(x, y);
  g.lineTo(x + s, y);
  g.lineTo(x, y + s);
  g.fill();
}

export function paintRing(g: Brush, colour: string, ring: Ring, width: number, out: number): void {
  g.strokeStyle = colour;
  g.lineWidth = width;
  box(g, ring.x - out, ring.y - out, ring.w + 2 * out, ring.h + 2 * out, 2 + out);
  g.stroke();
}

/** A line under cells side by side, with its ends turned up. */
export function paintBracket(g: Brush, colour: string, x: number, w: number, y: number, up: number): void {
  g.strokeStyle = colour;
  g.lineWidth = 1;
  g.beginPath();
  g.moveTo(x + 0.5, y - up);
  g.lineTo(x + 0.5, y + 0.5);
  g.lineTo(x + w - 0.5, y + 0.5);
  g.lineTo(x + w - 0.5, y - up);
  g.stroke();
}

/** One wire; `top` is where it leaves the strip, `lanes` where the first lane runs. */
export function paintWire(g: Brush, colour: string, width: number, wire: Wire, top: number, lanes: number): void {
  const y = lanes + wire.lane * 5;
  const { x: x1, y: y1 } = wire.to;
  const turn = Math.min(5, Math.abs(x1 - wire.from) / 2);
  g.strokeStyle = colour;
  g.lineWidth = width;
  g.beginPath();
  g.moveTo(wire.from, top);
  g.arcTo(wire.from, y, x1, y, turn);
  g.arcTo(x1, y, x1, y1, turn);
  g.lineTo(x1, y1);
  if (wire.side) g.lineTo(x1 + 3, y1);
  g.stroke();
}
