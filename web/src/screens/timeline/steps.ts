// Steps under the pointer, and navigation between outliers.
import type { RankSteps } from "../../api/views";
import type { HitTarget } from "../../canvas/hit_test";
import { outliersOf, firstStepEndingAfter } from "../../canvas/paint_steps";
import type { Model } from "./model";

export interface StepHit {
  steps: RankSteps;
  number: number;
  after_ns: number;
  duration_ns: number;
  outlier: boolean;
}

/** Return the step of a rank at a time; null between steps. */
export function stepAt(steps: RankSteps, ns: number): StepHit | null {
  const index = firstStepEndingAfter(steps, ns);
  const start = steps.after_ns[index];
  if (start === undefined || start > ns) return null;
  const number = steps.numbers[index] ?? index;
  const outlier = outliersOf(steps).has(number);
  return { steps, number, after_ns: start, duration_ns: steps.duration_ns[index] ?? 0, outlier };
}

/** Return the step under the pointer: in the band, or in a group's header. */
export function stepUnderPointer(model: Model, target: HitTarget): StepHit | null {
  const steps = target.on === "band"
    ? model.band.peek()
    : target.on === "line" && target.line.kind === "group" ? target.line.steps : null;
  return steps === null ? null : stepAt(steps, target.ns + model.shiftOf(steps.group));
}

/** Number of the next or previous outlier from a time, or null. */
export function nextOutlier(steps: RankSteps, ns: number, direction: 1 | -1): number | null {
  const outliers = outliersOf(steps);
  const indices = steps.numbers.map((_, index) => index);
  if (direction < 0) indices.reverse();
  const outlierIndex = indices.find((index) => {
    const start = steps.after_ns[index] ?? 0;
    const centre = start + (steps.duration_ns[index] ?? 0) / 2;
    return outliers.has(steps.numbers[index] ?? -1) && (direction > 0 ? centre > ns + 1 : centre < ns - 1);
  });
  return outlierIndex === undefined ? null : (steps.numbers[outlierIndex] ?? null);
}
