import { describe, expect, test } from "vitest";

import {
  MIN_SPAN_NS, spanAround, interpolate, clampSpan, levelOf, panSpan, revealRange, scaleOf, toPixel, toTime,
  fullSpan, widthOf, zoomSpan,
} from "./viewport";

const DAY = 24 * 3600 * 1e9;
const BOUNDS = { end: DAY };

describe("a window", () => {
  test("keeps the time under the pointer during zoom", () => {
    const before = { from: 1e12, to: 2e12 };
    const after = zoomSpan(before, 0.5, 0.25, BOUNDS);
    expect(after.from + 0.25 * widthOf(after)).toBeCloseTo(1.25e12, 3);
    expect(widthOf(after)).toBe(0.5e12);
  });

  test("has a minimum width, and is at most as wide as the run with its margins", () => {
    expect(widthOf(zoomSpan({ from: 5, to: 105 }, 1e-9, 0.5, BOUNDS))).toBeCloseTo(MIN_SPAN_NS, 6);
    const widest = zoomSpan({ from: 0, to: DAY }, 1e9, 0.5, BOUNDS);
    expect(widthOf(widest)).toBeLessThanOrEqual(1.05 * DAY);
    expect(widest.from).toBeLessThanOrEqual(0);
    expect(widest.to).toBeGreaterThanOrEqual(DAY);
  });

  test("stays within the run", () => {
    const panned = panSpan({ from: 0, to: 1e9 }, -1e15, BOUNDS);
    expect(panned.to).toBeGreaterThan(0);
    expect(widthOf(panned)).toBeCloseTo(1e9, 3);
    expect(panSpan({ from: 0, to: 1e9 }, 1e18, BOUNDS).from).toBeLessThan(DAY);
  });

  test("tolerates NaN", () => {
    for (const span of [{ from: NaN, to: NaN }, { from: -Infinity, to: Infinity }, { from: 5, to: 1 }]) {
      const clamped = clampSpan(span, BOUNDS);
      expect(Number.isFinite(clamped.from) && Number.isFinite(clamped.to)).toBe(true);
      expect(widthOf(clamped)).toBeGreaterThan(0);
    }
    expect(widthOf(fullSpan({ end: 0 }))).toBeGreaterThan(0);
  });

  test("moves only as far as needed to reveal a range", () => {
    const span = { from: 100e9, to: 200e9 };
    expect(revealRange(span, { from: 120e9, to: 130e9 }, BOUNDS)).toBe(span);
    const revealed = revealRange(span, { from: 900e9, to: 901e9 }, BOUNDS);
    expect(widthOf(revealed)).toBeCloseTo(100e9, 3);
    expect(revealed.from).toBeLessThan(900e9);
    expect(revealed.to).toBeGreaterThan(901e9);
  });

  test("animates to its target", () => {
    const [start, target] = [{ from: 0, to: DAY }, { from: 5e12, to: 5e12 + 1000 }];
    expect(interpolate(start, target, 1)).toEqual(target);
    expect(interpolate(start, target, 0)).toEqual(start);
    expect(widthOf(interpolate(start, target, 0.5))).toBeCloseTo(Math.sqrt(DAY * 1000), -1);
  });
});

test("positions are exact to a nanosecond after a day", () => {
  const start = DAY - 12_345;
  const scale = scaleOf({ from: start, to: start + 100 }, 1000);
  for (let ns = 0; ns < 100; ns++) {
    expect(toPixel(scale, start + ns)).toBeCloseTo(10 * ns, 6);
    expect(toTime(scale, 10 * ns)).toBeCloseTo(start + ns, 1);
  }
});

test("levels are powers of two close to a pixel", () => {
  expect(levelOf({ from: 0, to: 1024_000 }, 1000)).toBe(10);
  expect(levelOf({ from: 0, to: 10 }, 1000)).toBe(0);
  const range = spanAround({ from: 10, to: 10 }, BOUNDS);
  expect(widthOf(range)).toBeGreaterThan(0);
});
