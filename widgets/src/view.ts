/** What a picture offers to whoever mounts it. */
import type { Change, Store } from "./store";

export interface View {
  element: HTMLElement;
  /** Bring the picture up to date; called at most 30 times a second while data streams, at once after a pick. */
  draw(change: Change | "theme" | "size"): void;
}

export interface Place {
  store: Store;
  /** The `.gl` root: theme, data attributes and focus live there. */
  root: HTMLElement;
  signal: AbortSignal;
}

export type MakeView = (place: Place) => View;
