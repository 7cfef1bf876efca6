// Counters: the mean as a filled step line, and a band from minimum to maximum.
import { inUnit } from "../base/quantities";
import { colourIndex } from "./colours";
import { firstValueAfter, heightOf, type Counter } from "./counters";
import { addValue, emptyCurve, type Curve } from "./curves";
import type { Frame, Region } from "./scene";
import { COUNTER_PX, type Line } from "./tree";
import { toPixel } from "./viewport";

export function paintCounter(frame: Frame, line: Line, region: Region): void {
  const { scene, scale, ink } = frame;
  const top = region.top + line.y - region.scrollTop + 2;
  const shift = scene.shiftOf(line.id);
  const window = { from: scene.span.from + shift, to: scene.span.to + shift };
  const parts = scene.counters.partsIn(line.id, window, frame.level);
  const [first] = parts;
  if (first === undefined) return;
  const curve = emptyCurve(scale.width, {
    top,
    bottom: top + COUNTER_PX - 2,
    clipTop: region.top,
    clipBottom: region.bottom,
    colour: ink.slices.fill[colourIndex(line.name)] ?? 0,
  });
  for (const { chunk, from, to } of parts) addPart(curve, chunk.data, frame, { from, to, shift });
  frame.rectangles.curves.push(curve);
  if (top < region.top || top + 14 > region.bottom) return;
  const text = valueText(first.chunk.data.maxValue, first.chunk.data.unit);
  frame.labels.push({ x: 4, y: top + 6, maxWidth: 200, text, colour: ink.muted, hasBackground: true });
}

interface Part {
  from: number;
  to: number;
  shift: number;
}

function addPart(curve: Curve, counter: Counter, { scale }: Frame, part: Part): void {
  for (let index = firstValueAfter(counter, part.from); index < counter.start.length; index++) {
    const start = counter.start[index] ?? 0;
    if (start >= part.to) break;
    const x0 = toPixel(scale, Math.max(start, part.from) - part.shift);
    const x1 = toPixel(scale, Math.min(counter.end[index] ?? start, part.to) - part.shift);
    addValue(curve, x0, x1, {
      mean: heightOf(counter, counter.mean[index] ?? 0),
      min: heightOf(counter, counter.min[index] ?? 0),
      max: heightOf(counter, counter.max[index] ?? 0),
    });
  }
}

/** Units as written in traces of other tools. */
const UNITS: Record<string, string> = {
  "": "none", "%": "percent", B: "bytes", "bytes/s": "bytes_per_s", "B/s": "bytes_per_s",
};

/** Format a counter value in its unit. */
export function valueText(value: number, unit: string): string {
  return inUnit(value, UNITS[unit] ?? unit);
}
