import { describe, expect, test } from "vitest";

import { MISSING, clock, counted, duration, lasting, money, number, percent, sentence, when } from "./format";

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

describe("words", () => {
  test("of counts are of one or of many", () => {
    expect(counted(1, "row")).toBe("1 row");
    expect(counted(1200, "row")).toBe("1,200 rows");
    expect(counted(2, "series", "series")).toBe("2 series");
  });

  test("become sentences", () => {
    expect(sentence("no step")).toBe("No step.");
    expect(sentence("Is it?")).toBe("Is it?");
  });

  test("of money have cents, and three digits of less than a dollar", () => {
    expect(money(12.3456)).toBe("$12.35");
    expect(money(0.000212345)).toBe("$0.000212");
    expect(money(0.5)).toBe("$0.50");
    expect(money(0)).toBe("$0.00");
    expect(money(null)).toBe(MISSING);
  });

  test("of long times count hours", () => {
    expect(lasting(3_725e9)).toBe("1:02:05 h");
    expect(lasting(39_200_000)).toBe("39.2 ms");
    expect(lasting(null)).toBe(MISSING);
  });

  test("of moments are the reader's", () => {
    expect(when(new Date(2026, 10, 22, 5, 3).getTime())).toBe("2026-11-22 05:03");
    expect(when(Number.NaN)).toBe(MISSING);
  });
});
