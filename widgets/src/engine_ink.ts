/** The colours of the page with those of the owners: eight hues, each with an edge and a colour for its letter. */
import { type Ink, readInk } from "./timeline_paint";

export type Hue = Record<"fill" | "edge" | "letter", string>;

export interface EngineInk extends Ink {
  owners: readonly Hue[];
}

export function readEngineInk(root: Element): EngineInk {
  const style = getComputedStyle(root);
  const of = (kind: string, owner: string) => style.getPropertyValue(`--gl-${kind}${owner}`).trim();
  const owners = [..."ABCDEFGH"].map((o) => ({ fill: of("o", o), edge: of("e", o), letter: of("t", o) }));
  return { ...readInk(root), owners };
}

/** More than eight owners use the hues again; their letters tell them apart. */
export const hueOf = (ink: EngineInk, request: number): Hue => ink.owners[request % ink.owners.length];
