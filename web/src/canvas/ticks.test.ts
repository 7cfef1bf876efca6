import { describe, expect, test } from "vitest";

import { exactTime, rulerMarks, tickStep, tickLabel } from "./ticks";

const SECOND = 1e9;

describe("the ruler", () => {
  test("has round tick intervals", () => {
    expect([1, 3, 7, 11, 260].map(tickStep)).toEqual([1, 5, 10, 20, 500]);
    expect(tickStep(40 * SECOND)).toBe(60 * SECOND);
    expect(tickStep(50 * 60 * SECOND)).toBe(3600 * SECOND);
  });

  test("counts from a round time if it is far from the origin", () => {
    const marks = rulerMarks(12.3456789 * SECOND, 12.3456789 * SECOND + 2000, 1000);
    expect(marks.anchor).toBe("12.345 s +");
    expect(marks.ticks[0]?.label).toBe("+679.0 µs");
    expect(marks.ticks.length).toBeGreaterThan(5);
    expect(new Set(marks.ticks.map((tick) => tick.label)).size).toBe(marks.ticks.length);
  });

  test("counts from the origin otherwise, or from a given time", () => {
    expect(rulerMarks(0, 2e9, 1000).ticks.map((tick) => tick.label)).toEqual([
      "0", "200 ms", "400 ms", "600 ms", "800 ms", "1.0 s", "1.2 s", "1.4 s", "1.6 s", "1.8 s", "2.0 s",
    ]);
    const relative = rulerMarks(500, 1500, 1000, 1000);
    expect(relative.ticks.find((tick) => tick.ns === 1000)?.label).toBe("0");
    expect(relative.ticks.find((tick) => tick.ns === 900)?.label).toBe("-100 ns");
  });

  test("has distinct labels at every width", () => {
    for (let power = 2; power < 14; power++) {
      for (const from of [0, 7.123456789 * SECOND, 86_399 * SECOND]) {
        const labels = rulerMarks(from, from + 10 ** power, 1200).ticks.map((tick) => tick.label);
        expect(new Set(labels).size).toBe(labels.length);
      }
    }
  });
});

test("times have only significant digits", () => {
  expect(tickLabel(90 * SECOND, SECOND)).toBe("1:30 min");
  expect(tickLabel(3_725 * SECOND, SECOND)).toBe("1:02:05 h");
  expect(exactTime(1_234_567)).toBe("1.234567 ms");
  expect(exactTime(2 * SECOND)).toBe("2 s");
  expect(exactTime(86_399_123_456_789)).toBe("23:59:59.123456789 h");
});
