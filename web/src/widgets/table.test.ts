import { describe, expect, test } from "vitest";

import { shown, sorted, type Cell } from "./table";

const ROWS: Cell[][] = [["b10", 2], ["b9", null], ["a", 10], ["c", 2]];

describe("sorting", () => {
  test("puts what is missing last either way and keeps equal rows in their order", () => {
    const up = sorted(ROWS, { column: 1, descending: false });
    expect(up.map((row) => row[0])).toEqual(["b10", "c", "a", "b9"]);
    const down = sorted(ROWS, { column: 1, descending: true });
    expect(down.map((row) => row[0])).toEqual(["a", "b10", "c", "b9"]);
  });

  test("compares numbers in words as numbers", () => {
    const names = sorted(ROWS, { column: 0, descending: false }).map((row) => row[0]);
    expect(names).toEqual(["a", "b9", "b10", "c"]);
  });

  test("leaves the given rows as they are", () => {
    sorted(ROWS, { column: 0, descending: true });
    expect(ROWS[0]?.[0]).toBe("b10");
    expect(sorted(ROWS, null)).toBe(ROWS);
  });
});

test("cells say when they are missing", () => {
  expect(shown(null, 2)).toBe("n/a");
  expect(shown(1.005, 2)).toBe("1.01");
  expect(shown("<b>", null)).toBe("<b>");
});
