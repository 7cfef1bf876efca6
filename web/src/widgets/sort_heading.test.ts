import { describe, expect, test } from "vitest";

import { sortBy } from "./sort_heading";

const ROWS: [string, number | null][] = [["b10", 2], ["b9", null], ["a", 10], ["c", 2]];

function names(by: 0 | 1, descending: boolean): string[] {
  return sortBy(ROWS, (row) => row[by], descending).map((row) => row[0]);
}

describe("ordering", () => {
  test("puts missing values last in either direction, and is stable", () => {
    expect(names(1, false)).toEqual(["b10", "c", "a", "b9"]);
    expect(names(1, true)).toEqual(["a", "b10", "c", "b9"]);
  });

  test("puts empty text last in either direction", () => {
    for (const descending of [false, true]) expect(sortBy(["", "a"], (text) => text, descending)).toEqual(["a", ""]);
  });

  test("compares numbers within text by value", () => {
    expect(names(0, false)).toEqual(["a", "b9", "b10", "c"]);
  });

  test("does not modify its input", () => {
    names(0, true);
    expect(ROWS[0]?.[0]).toBe("b10");
  });
});
