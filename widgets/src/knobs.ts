/**
 * The settings of the pipeline that a person can move, and how its columns are called.
 *
 * A knob knows its slider's range, how positions become values, and how a value is shown.
 */
import { count } from "./format";
import { GUIDANCE, PENALTY } from "./sampling";

export interface Knob {
  key: "repetition_penalty" | "temperature" | "top_k" | "top_p" | "min_p";
  min: number;
  max: number;
  step: number;
  /** Slider position to value and back; top-k walks over stops of growing distance. */
  read(position: number): number;
  place(value: number): number;
  show(value: number): string;
}

const K_STOPS = [
  ...Array.from({ length: 64 }, (_, i) => i + 1),
  80,
  100,
  150,
  200,
  300,
  500,
  1000,
  2000,
  5000,
  10000,
  0,
];
const same = (v: number) => v;
const off = (text: string, isOff: boolean) => (isOff ? "off" : text);

export const KNOBS: Record<string, Knob> = {
  [PENALTY]: {
    key: "repetition_penalty",
    min: 1,
    max: 2,
    step: 0.05,
    read: same,
    place: same,
    show: (v) => off(`÷ ${v.toFixed(2)}`, v === 1),
  },
  temperature: {
    key: "temperature",
    min: 0,
    max: 2,
    step: 0.05,
    read: same,
    place: same,
    show: (v) => (v === 0 ? "best only" : v.toFixed(2)),
  },
  top_k: {
    key: "top_k",
    min: 0,
    max: K_STOPS.length - 1,
    step: 1,
    read: (at) => K_STOPS[at],
    place: (v) => (v === 0 ? K_STOPS.length - 1 : K_STOPS.findIndex((k) => k === 0 || k >= v)),
    show: (v) => off(count(v), v === 0),
  },
  top_p: {
    key: "top_p",
    min: 0.05,
    max: 1,
    step: 0.01,
    read: (v) => (v >= 1 ? 0 : v),
    place: (v) => (v === 0 ? 1 : v),
    show: (v) => off(v.toFixed(2), v <= 0 || v >= 1),
  },
  min_p: {
    key: "min_p",
    min: 0,
    max: 0.5,
    step: 0.01,
    read: same,
    place: same,
    show: (v) => off(v.toFixed(2), v === 0),
  },
};

/** Column heads: name, what it does. */
const HEADS: Record<string, [string, string]> = {
  raw: ["raw", "the model's own probabilities"],
  [GUIDANCE]: ["guidance", "only what the grammar allows"],
  min_length: ["min length", "no end before this length"],
  [PENALTY]: ["penalty", "words used before lose"],
  no_repeat_ngram: ["no repeats", "no word group twice"],
  temperature: ["temperature", "below 1 steeper, above flatter"],
  top_k: ["top-k", "keep only the k best"],
  top_p: ["top-p", "keep best until this share"],
  min_p: ["min-p", "drop below part of the best"],
  drawn: ["drawn", "one of those left, at random"],
};
/** Name of a column and what it does; an unknown stage is a person's own processor. */
export const headOf = (name: string): [string, string] =>
  HEADS[name] ?? [name.replace(/_/g, " "), "a step of your own"];
