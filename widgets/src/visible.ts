/**
 * Which part of a run the timeline shows: presets that follow the picked token, zoom and pan inside the run.
 *
 * Pure state, in ms; knows nothing about pixels.
 */

import type { Range } from "./timeline_layout";
import type { RunTimes } from "./times";

export type Preset = "run" | "first" | "token" | "choose";

const LEAST_MS = 0.05;

const around = (from: number, to: number, margin: number): Range => ({
  from: from - (to - from) * margin,
  to: to + (to - from) * margin,
});

export class Visible {
  range: Range = { from: 0, to: 1 };
  /** The preset that is followed; null after a zoom or pan by hand. */
  preset: Preset | null = "run";
  private times: RunTimes | null = null;
  private token = -1;

  /** New data or another pick: presets follow, a range set by hand moves only to keep a new pick in sight. */
  update(times: RunTimes, token: number): void {
    const picked = token !== this.token ? times.tokens[token] : undefined;
    this.times = times;
    this.token = token;
    if (this.preset) this.follow(this.preset);
    else if (picked && (picked.to < this.range.from || picked.from > this.range.to)) {
      const half = (this.range.to - this.range.from) / 2;
      this.show(picked.to - half, picked.to + half);
    }
  }

  /** Show [from, to], as far as it lies inside the run. */
  show(from: number, to: number, preset: Preset | null = null): void {
    if (!this.times) return;
    const { from: first, to: last } = this.times;
    const span = Math.max(LEAST_MS, Math.min(last - first, to - from));
    const left = Math.max(first, Math.min(last - span, from));
    this.range = { from: left, to: left + span };
    this.preset = preset;
  }

  follow(preset: Preset): void {
    const range = this.rangeOf(preset);
    if (range) this.show(range.from, range.to, preset);
  }

  zoom(factor: number, at = (this.range.from + this.range.to) / 2): void {
    const { from, to } = this.range;
    this.show(at - (at - from) * factor, at + (to - at) * factor);
  }

  pan(share: number): void {
    const d = (this.range.to - this.range.from) * share;
    this.show(this.range.from + d, this.range.to + d);
  }

  private rangeOf(preset: Preset): Range | null {
    const { times } = this;
    const token = times?.tokens[preset === "first" ? Math.max(0, times.prompt) : this.token];
    if (!times || preset === "run") return times;
    if (!token) return null;
    if (preset === "first") return { from: times.from, to: times.from + (token.to - times.from) * 1.12 };
    if (preset === "token") return around(token.from, token.to, 0.02);
    const choosing = token.stages.find((s) => s.kind === "choose");
    return choosing ? around(choosing.from, token.to, 0.08) : null;
  }
}
