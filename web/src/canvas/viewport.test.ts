import { describe, expect, test } from "vitest";

import {
  MIN_SPAN_NS, spanAround, interpolate, clampSpan, levelOf, panSpan, revealRange, scaleOf, toPixel, toTime,
  fullSpan, widthOf, zoomSpan,
} from "./viewport";

const DAY = 24 * 3600 * 1e9;
const BOUNDS = { end: DAY };

describe("a window", () => {
  test("keeps the time under the pointer when it zooms", () => {
    const before = { from: 1e12, to: 2e12 };
    const after = zoomSpan(before, 0.5, 0.25, BOUNDS);
    expect(after.from + 0.25 * widthOf(after)).toBeCloseTo(1.25e12, 3);
    expect(widthOf(after)).toBe(0.5e12);
  });

  test("is never narrower than can be drawn, nor wider than the run and its margins", () => {
    expect(widthOf(zoomSpan({ from: 5, to: 105 }, 1e-9, 0.5, BOUNDS))).toBeCloseTo(MIN_SPAN_NS, 6);
    const wide = zoomSpan({ from: 0, to: DAY }, 1e9, 0.5, BOUNDS);
    expect(widthOf(wide)).toBeLessThanOrEqual(1.05 * DAY);
    expect(wide.from).toBeLessThanOrEqual(0);
    expect(wide.to).toBeGreaterThanOrEqual(DAY);
  });

  test("does not leave the run", () => {
    const moved = panSpan({ from: 0, to: 1e9 }, -1e15, BOUNDS);
    expect(moved.to).toBeGreaterThan(0);
    expect(widthOf(moved)).toBeCloseTo(1e9, 3);
    expect(panSpan({ from: 0, to: 1e9 }, 1e18, BOUNDS).from).toBeLessThan(DAY);
  });

  test("survives what is no number", () => {
    for (const span of [{ from: NaN, to: NaN }, { from: -Infinity, to: Infinity }, { from: 5, to: 1 }]) {
      const usable = clampSpan(span, BOUNDS);
      expect(Number.isFinite(usable.from) && Number.isFinite(usable.to)).toBe(true);
      expect(widthOf(usable)).toBeGreaterThan(0);
    }
    expect(widthOf(fullSpan({ end: 0 }))).toBeGreaterThan(0);
  });

  test("moves only where it must to show a range", () => {
    const span = { from: 100e9, to: 200e9 };
    expect(revealRange(span, { from: 120e9, to: 130e9 }, BOUNDS)).toBe(span);
    const far = revealRange(span, { from: 900e9, to: 901e9 }, BOUNDS);
    expect(widthOf(far)).toBeCloseTo(100e9, 3);
    expect(far.from).toBeLessThan(900e9);
    expect(far.to).toBeGreaterThan(901e9);
  });

  test("glides to where it ends", () => {
    const [start, target] = [{ from: 0, to: DAY }, { from: 5e12, to: 5e12 + 1000 }];
    expect(interpolate(start, target, 1)).toEqual(target);
    expect(interpolate(start, target, 0)).toEqual(start);
    expect(widthOf(interpolate(start, target, 0.5))).toBeCloseTo(Math.sqrt(DAY * 1000), -1);
  });
});

test("a nanosecond has its place after a day: pixels differ by what they should", () => {
  const start = DAY - 12_345;
  const scale = scaleOf({ from: start, to: start + 100 }, 1000);
  for (let ns = 0; ns < 100; ns++) {
    expect(toPixel(scale, start + ns)).toBeCloseTo(10 * ns, 6);
    expect(toTime(scale, 10 * ns)).toBeCloseTo(start + ns, 1);
  }
});

test("levels are the powers of two nearest to a pixel", () => {
  expect(levelOf({ from: 0, to: 1024_000 }, 1000)).toBe(10);
  expect(levelOf({ from: 0, to: 10 }, 1000)).toBe(0);
  const range = spanAround({ from: 10, to: 10 }, BOUNDS);
  expect(widthOf(range)).toBeGreaterThan(0);
});
