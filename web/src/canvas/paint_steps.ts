// Steps of a rank: a numbered box each. Outliers have a triangle as well as another colour.
import type { RankSteps } from "../api/views";
import type { Frame } from "./scene";
import { toPixel } from "./viewport";

interface Box {
  top: number;
  bottom: number;
  /** Nanoseconds by which the steps are shifted on screen. */
  shift: number;
}

/** Minimum width at which a step is drawn as a box of its own. */
const BOX_PX = 5;
const MIN_OUTLIER_WIDTH_PX = 9;

export function paintSteps(frame: Frame, steps: RankSteps, box: Box): void {
  const { scale, rectangles, ink } = frame;
  const from = scale.from + box.shift;
  const to = from + scale.width / scale.pixelsPerNs;
  const outliers = outliersOf(steps);
  let drawnEnd = -2;
  let markedX = -MIN_OUTLIER_WIDTH_PX;
  for (let index = firstStepEndingAfter(steps, from); index < steps.after_ns.length; index++) {
    const start = steps.after_ns[index] ?? 0;
    if (start >= to) break;
    const isOutlier = outliers.has(steps.numbers[index] ?? -1);
    const x0 = Math.max(-2, toPixel(scale, start - box.shift));
    const end = start + Math.max(0, steps.duration_ns[index] ?? 0);
    const x1 = Math.min(scale.width + 2, Math.max(x0 + 1, toPixel(scale, end - box.shift)));
    if (isOutlier && x0 - markedX >= MIN_OUTLIER_WIDTH_PX) {
      markedX = Math.max(0, x0);
      frame.labels.push({ x: markedX + 2, y: (box.top + box.bottom) / 2, maxWidth: 14, text: "▲", colour: ink.warn });
    }
    if (x1 - drawnEnd < 1) continue;
    drawnEnd = x1;
    const number = steps.numbers[index] ?? index;
    const isOdd = number % 2 === 1;
    const colour = isOutlier ? ink.outlier : isOdd ? ink.stepOdd : ink.step;
    const widthPx = x1 - x0;
    rectangles.add(x0, box.top, widthPx >= BOX_PX ? x1 - 1 : x1, box.bottom, colour);
    const labelWidth = Math.min(scale.width, x1) - Math.max(0, x0) - (isOutlier ? 22 : 8);
    if (labelWidth < 12) continue;
    const x = Math.max(0, x0) + (isOutlier ? 16 : 4);
    const text = labelWidth > 70 ? `step ${number}` : String(number);
    frame.labels.push({ x, y: (box.top + box.bottom) / 2, maxWidth: labelWidth, text, colour: ink.text });
  }
}

const outlierSets = new WeakMap<RankSteps, Set<number>>();

export function outliersOf(steps: RankSteps): Set<number> {
  let outliers = outlierSets.get(steps);
  if (outliers === undefined) {
    outliers = new Set(steps.outliers);
    outlierSets.set(steps, outliers);
  }
  return outliers;
}

/** Index of the first step that ends after a time. */
export function firstStepEndingAfter(steps: RankSteps, ns: number): number {
  let low = 0;
  let high = steps.after_ns.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((steps.after_ns[middle] ?? 0) + (steps.duration_ns[middle] ?? 0) > ns) high = middle;
    else low = middle + 1;
  }
  return low;
}
