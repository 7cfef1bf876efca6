import { describe, expect, test } from "vitest";

import { exact, ruler, stepOf, time } from "./ticks";

const SECOND = 1e9;

describe("the ruler", () => {
  test("has steps that people count in", () => {
    expect([1, 3, 7, 11, 260].map(stepOf)).toEqual([1, 5, 10, 20, 500]);
    expect(stepOf(40 * SECOND)).toBe(60 * SECOND);
    expect(stepOf(50 * 60 * SECOND)).toBe(3600 * SECOND);
  });

  test("counts from a round time before it where it is far from the origin", () => {
    const found = ruler(12.3456789 * SECOND, 12.3456789 * SECOND + 2000, 1000);
    expect(found.anchor).toBe("12.345 s +");
    expect(found.ticks[0]?.label).toBe("+679.0 µs");
    expect(found.ticks.length).toBeGreaterThan(5);
    expect(new Set(found.ticks.map((tick) => tick.label)).size).toBe(found.ticks.length);
  });

  test("counts from the origin elsewhere, or from where it is told to", () => {
    expect(ruler(0, 2e9, 1000).ticks.map((tick) => tick.label)).toEqual([
      "0", "200 ms", "400 ms", "600 ms", "800 ms", "1.0 s", "1.2 s", "1.4 s", "1.6 s", "1.8 s", "2.0 s",
    ]);
    const relative = ruler(500, 1500, 1000, 1000);
    expect(relative.ticks.find((tick) => tick.ns === 1000)?.label).toBe("0");
    expect(relative.ticks.find((tick) => tick.ns === 900)?.label).toBe("-100 ns");
  });

  test("tells neighbouring marks apart at every width", () => {
    for (let power = 2; power < 14; power++) {
      for (const from of [0, 7.123456789 * SECOND, 86_399 * SECOND]) {
        const labels = ruler(from, from + 10 ** power, 1200).ticks.map((tick) => tick.label);
        expect(new Set(labels).size).toBe(labels.length);
      }
    }
  });
});

test("times are written with the digits that they have", () => {
  expect(time(90 * SECOND, SECOND)).toBe("1:30 min");
  expect(time(3_725 * SECOND, SECOND)).toBe("1:02:05 h");
  expect(exact(1_234_567)).toBe("1.234567 ms");
  expect(exact(2 * SECOND)).toBe("2 s");
  expect(exact(86_399_123_456_789)).toBe("23:59:59.123456789 h");
});
