// Colours of the classes of a job's time, for bars and strips. Eight colours serve sixteen classes:
// stripes tell two classes of a colour apart. Classes that follow each other differ in hue.
import type { Palette } from "./palette";

/** Index of the colour in the palette, and whether it is striped. */
const COLOURS: Record<string, readonly [number, "plain" | "striped"]> = {
  launch: [6, "plain"],
  importing: [1, "plain"],
  rendezvous: [3, "striped"],
  preparing: [0, "plain"],
  warm_up: [7, "striped"],
  steps: [2, "plain"],
  evaluation: [7, "plain"],
  checkpoints: [3, "plain"],
  between_epochs: [4, "plain"],
  between_steps: [1, "striped"],
  recording: [4, "striped"],
  finishing: [0, "striped"],
  stuck: [5, "plain"],
  down: [5, "striped"],
  repeated: [2, "striped"],
};

export interface Fill {
  colour: string;
  /** Colour of its stripes; null without stripes. */
  stripe: string | null;
}

/** Fill of a class; of time that was not seen, grey stripes. */
export function fillOf(key: string, { series, surface, line, muted }: Palette): Fill {
  const entry = COLOURS[key];
  if (entry === undefined) return { colour: line, stripe: muted };
  return { colour: series[entry[0]] ?? line, stripe: entry[1] === "striped" ? surface : null };
}

/** Fill as a CSS background. */
export function background({ colour, stripe }: Fill): string {
  return stripe === null ? colour : `repeating-linear-gradient(-45deg, ${colour} 0 3px, ${stripe} 3px 5px)`;
}
