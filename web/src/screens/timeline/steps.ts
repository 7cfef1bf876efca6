// Steps at a place of the picture, and from one outlier to the next.
import type { RankSteps } from "../../api/views";
import { outliersOf, stepAfter } from "../../canvas/paint_steps";
import type { Hit } from "../../canvas/places";
import type { Model } from "./model";

export interface Step {
  steps: RankSteps;
  number: number;
  after_ns: number;
  duration_ns: number;
  outlier: boolean;
}

/** The step of a rank at a time; null between steps. */
export function stepAt(steps: RankSteps, ns: number): Step | null {
  const place = stepAfter(steps, ns);
  const after = steps.after_ns[place];
  if (after === undefined || after > ns) return null;
  const number = steps.numbers[place] ?? place;
  const outlier = outliersOf(steps).has(number);
  return { steps, number, after_ns: after, duration_ns: steps.duration_ns[place] ?? 0, outlier };
}

/** The step under the pointer: of the band above, or of the line of a group. */
export function stepOf(model: Model, found: Hit): Step | null {
  const steps = found.on === "band"
    ? model.band.peek()
    : found.on === "line" && found.line.kind === "group" ? found.line.steps : null;
  return steps === null ? null : stepAt(steps, found.ns + model.shiftOf(steps.group));
}

/** Number of the next outlier after a time, or the one before; null where there is none. */
export function nextOutlier(steps: RankSteps, ns: number, by: 1 | -1): number | null {
  const outliers = outliersOf(steps);
  const places = steps.numbers.map((_, place) => place);
  if (by < 0) places.reverse();
  const found = places.find((place) => {
    const start = steps.after_ns[place] ?? 0;
    const middle = start + (steps.duration_ns[place] ?? 0) / 2;
    return outliers.has(steps.numbers[place] ?? -1) && (by > 0 ? middle > ns + 1 : middle < ns - 1);
  });
  return found === undefined ? null : (steps.numbers[found] ?? null);
}
