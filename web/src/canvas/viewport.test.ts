import { describe, expect, test } from "vitest";

import {
  NARROWEST_NS, around, between, clamped, levelOf, panned, revealed, scaleOf, toPixel, toTime,
  whole, width, zoomed,
} from "./viewport";

const DAY = 24 * 3600 * 1e9;
const BOUNDS = { end: DAY };

describe("a window", () => {
  test("keeps the time under the pointer when it zooms", () => {
    const before = { from: 1e12, to: 2e12 };
    const after = zoomed(before, 0.5, 0.25, BOUNDS);
    expect(after.from + 0.25 * width(after)).toBeCloseTo(1.25e12, 3);
    expect(width(after)).toBe(0.5e12);
  });

  test("is never narrower than can be drawn, nor wider than the run and its margins", () => {
    expect(width(zoomed({ from: 5, to: 105 }, 1e-9, 0.5, BOUNDS))).toBeCloseTo(NARROWEST_NS, 6);
    const wide = zoomed({ from: 0, to: DAY }, 1e9, 0.5, BOUNDS);
    expect(width(wide)).toBeLessThanOrEqual(1.05 * DAY);
    expect(wide.from).toBeLessThanOrEqual(0);
    expect(wide.to).toBeGreaterThanOrEqual(DAY);
  });

  test("does not leave the run", () => {
    const moved = panned({ from: 0, to: 1e9 }, -1e15, BOUNDS);
    expect(moved.to).toBeGreaterThan(0);
    expect(width(moved)).toBeCloseTo(1e9, 3);
    expect(panned({ from: 0, to: 1e9 }, 1e18, BOUNDS).from).toBeLessThan(DAY);
  });

  test("survives what is no number", () => {
    for (const span of [{ from: NaN, to: NaN }, { from: -Infinity, to: Infinity }, { from: 5, to: 1 }]) {
      const found = clamped(span, BOUNDS);
      expect(Number.isFinite(found.from) && Number.isFinite(found.to)).toBe(true);
      expect(width(found)).toBeGreaterThan(0);
    }
    expect(width(whole({ end: 0 }))).toBeGreaterThan(0);
  });

  test("moves only where it must to show a range", () => {
    const span = { from: 100e9, to: 200e9 };
    expect(revealed(span, { from: 120e9, to: 130e9 }, BOUNDS)).toBe(span);
    const far = revealed(span, { from: 900e9, to: 901e9 }, BOUNDS);
    expect(width(far)).toBeCloseTo(100e9, 3);
    expect(far.from).toBeLessThan(900e9);
    expect(far.to).toBeGreaterThan(901e9);
  });

  test("glides to where it ends", () => {
    const [one, other] = [{ from: 0, to: DAY }, { from: 5e12, to: 5e12 + 1000 }];
    expect(between(one, other, 1)).toEqual(other);
    expect(between(one, other, 0)).toEqual(one);
    expect(width(between(one, other, 0.5))).toBeCloseTo(Math.sqrt(DAY * 1000), -1);
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
  const range = around({ from: 10, to: 10 }, BOUNDS);
  expect(width(range)).toBeGreaterThan(0);
});
