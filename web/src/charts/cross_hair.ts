// Line at the time under the pointer, on all charts over time of a screen.
import { effect, signal } from "@preact/signals";
import { createContext } from "preact";

import { addListeners } from "../base/listeners";
import { duration } from "../base/quantities";
import type { EChartsType } from "./echarts";

/** Meaning of a horizontal axis: a position is a number of units after the origin. Positions of
 * columns are the numbers of categories, each with a width of one unit. */
export interface TimeAxis {
  origin: number;
  unit: number;
  isColumns: boolean;
}

/** Axis of nanoseconds after the start of the run. */
export const NANOSECONDS: TimeAxis = { origin: 0, unit: 1, isColumns: false };

/** Time axis of the charts inside; null for charts over anything else. */
export const TimeAxisContext = createContext<TimeAxis | null>(null);

/** Nanoseconds after the start of the run; null without a pointer on a chart. */
const time = signal<number | null>(null);

/** Two positions on the axis, far enough apart to measure its scale. */
const REFERENCES = { columns: [0, 1], values: [0, 1e9] } as const;

/** Scale of an axis from the pixels of two positions; null where they coincide. */
export function scaleOf(axis: TimeAxis, pixelOf: (position: number) => number): { toPixel: (ns: number) => number; toTime: (x: number) => number } | null {
  const [first, second] = REFERENCES[axis.isColumns ? "columns" : "values"];
  const [x0, x1] = [pixelOf(first), pixelOf(second)];
  const pixels = (x1 - x0) / (second - first);
  if (!Number.isFinite(pixels) || pixels === 0) return null;
  const centre = axis.isColumns ? 0.5 : 0; // of a category
  return {
    toPixel: (ns) => x0 + ((ns - axis.origin) / axis.unit - centre) * pixels,
    toTime: (x) => axis.origin + ((x - x0) / pixels + centre) * axis.unit,
  };
}

/** Follow the pointer on a chart, and draw the line of all charts on it. Returns a function that
 * stops. */
export function followCrossHair(chart: EChartsType, container: HTMLElement, axis: TimeAxis): () => void {
  const line = document.createElement("div");
  line.className = "cross-hair";
  const scale = () => scaleOf(axis, (position) => chart.convertToPixel({ xAxisIndex: 0 }, position));
  const isInside = (x: number): boolean => chart.containPixel({ gridIndex: 0 }, [x, container.clientHeight / 2]);
  const stopDrawing = effect(() => {
    const x = time.value === null ? null : scale()?.toPixel(time.value) ?? null;
    if (x === null || time.value === null || !isInside(x)) {
      line.remove();
      return;
    }
    line.style.left = `${x}px`;
    line.dataset.time = duration(Math.max(0, time.value));
    line.classList.toggle("flipped", x > container.clientWidth / 2);
    if (!line.isConnected) container.append(line);
  });
  const stopListening = addListeners(container, {
    pointermove: (event) => {
      const x = event.clientX - container.getBoundingClientRect().left;
      time.value = isInside(x) ? scale()?.toTime(x) ?? null : null;
    },
    pointerleave: () => { time.value = null; },
  });
  return () => {
    stopListening();
    stopDrawing();
    line.remove();
  };
}
