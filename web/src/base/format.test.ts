import { describe, expect, test } from "vitest";

import { MISSING, clock, duration, number, percent } from "./format";

describe("numbers", () => {
  test("have a fixed count of decimals and separators of thousands", () => {
    expect(number(1234567.891, 2)).toBe("1,234,567.89");
    expect(number(3, 0)).toBe("3");
    expect(number(null, 2)).toBe(MISSING);
  });

  test("shares that round to nothing say that they are there", () => {
    expect(percent(0.416)).toBe("42 %");
    expect(percent(0.0004)).toBe("<1 %");
    expect(percent(0.0004, 1)).toBe("<0.1 %");
    expect(percent(0)).toBe("0 %");
    expect(percent(null)).toBe(MISSING);
  });

  test("durations have three digits in the largest unit", () => {
    expect(duration(160_400_000)).toBe("160 ms");
    expect(duration(2_283_000_000)).toBe("2.28 s");
    expect(duration(12)).toBe("12 ns");
    expect(duration(null)).toBe(MISSING);
  });

  test("long times are minutes and hours", () => {
    expect(clock(7.50833)).toBe("7.51 s");
    expect(clock(90)).toBe("1:30 min");
    expect(clock(3725)).toBe("1:02:05 h");
  });
});
