import { describe, expect, test } from "vitest";

import type { SlicesView } from "../api/views";
import { paintSlices } from "./paint_slices";
import { Rectangles } from "./rectangles";
import type { Frame, Region, Scene } from "./scene";
import { slicesOf } from "./slices";
import { scaleOf } from "./viewport";

const partial = <T>(value: Partial<Record<keyof T, unknown>>): T => value as T;
const WIDTH_PX = 1000;
const NS_PER_PIXEL = 100;
const END_NS = WIDTH_PX * NS_PER_PIXEL;

/** Paint slices of a row, given by start and duration in pixels; ends of the rectangles in pixels. */
function paint(slices: readonly (readonly [start: number, width: number])[]): [number, number][] {
  const zeros = slices.map(() => 0);
  const view = partial<SlicesView>({
    from_after_ns: 0, to_after_ns: END_NS, names: ["step"],
    tracks: [{
      track: "t", row_count: 1, row: zeros, name: zeros, event: zeros, count: slices.map(() => 1), busy_ratio: slices.map(() => 1),
      after_ns: slices.map(([start]) => start * NS_PER_PIXEL), duration_ns: slices.map(([, width]) => width * NS_PER_PIXEL),
      kind: [], part_slice: [], part_name: [], part_ns: [],
    }],
  });
  const data = slicesOf(view).get("t");
  if (data === undefined) throw new Error("no slices");
  const span = { from: 0, to: END_NS };
  const rectangles = new Rectangles();
  const scene = partial<Scene>({
    span, query: "", standing: [], colourBy: "name", shiftOf: () => 0,
    slices: { partsIn: () => [{ chunk: { ...span, data }, ...span }] },
  });
  const colours = Array.from({ length: 64 }, () => "#000000");
  const ink = partial<Frame["ink"]>({ slices: { fill: colours.map(() => 0), text: colours } });
  const frame: Frame = { scene, scale: scaleOf(span, WIDTH_PX), level: 0, rectangles, labels: [], ink };
  paintSlices(frame, { track: "t", top: 0, rowPx: 10, onlyFirst: false }, partial<Region>({ top: 0, bottom: 10, scrollTop: 0 }));
  return Array.from({ length: rectangles.count }, (_, index) => [rectangles.x0[index] ?? NaN, rectangles.x1[index] ?? NaN]);
}

describe("slices thinner than a pixel", () => {
  test("stay at their time, however many there are", () => {
    const slices = Array.from({ length: 400 }, (_, index) => [0.7 * index, 0.3] as const);
    const drawn = paint(slices);
    const lastEnd = 0.7 * 399 + 0.3;
    expect(Math.max(...drawn.map(([, end]) => end))).toBeLessThanOrEqual(lastEnd + 1);
    for (const [start] of drawn) expect(start % 0.7 < 1e-3 || 0.7 - (start % 0.7) < 1e-3).toBe(true);
  });

  test("do not hide the rest of a long slice", () => {
    expect(paint([[10, 0.2], [10.4, 20]])).toEqual([[10, 11], [11, expect.closeTo(30.4 - 0.8, 3)]]);
  });
});
