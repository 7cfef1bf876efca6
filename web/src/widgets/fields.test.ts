// @vitest-environment jsdom
import { expect, describe, test } from "vitest";

import { bar, column, field, filterRows, sortRows, formatValue } from "./fields";

interface Row {
  name: string;
  total_ns: number | null;
  share_ratio: number;
}

const ROWS: Row[] = [
  { name: "gemm 10", total_ns: 2_000_000, share_ratio: 0.2 },
  { name: "gemm 9", total_ns: null, share_ratio: 0.1 },
  { name: "<b>copy</b>", total_ns: 5_000_000, share_ratio: 0.5 },
];
const FIELDS = [field<Row>("name"), field<Row>("total_ns"), bar<Row>("share_ratio", "share")];

describe("fields", () => {
  test("derive label and unit from the name", () => {
    expect(FIELDS.map(({ label, unit, numeric }) => [label, unit, numeric])).toEqual([
      ["name", "none", false],
      ["total", "ns", true],
      ["share", "ratio", true],
    ]);
  });

  test("with computed values have an explicit label and unit", () => {
    const half = column<Row>("half", "half of total", "ns", (row) => (row.total_ns === null ? null : row.total_ns / 2));
    expect(ROWS.map(half.value)).toEqual([1_000_000, null, 2_500_000]);
    expect(half.numeric).toBe(true);
  });
});

describe("rows", () => {
  test("are sorted by value, missing values last in either direction", () => {
    const names = (descending: boolean): string[] =>
      sortRows(ROWS, FIELDS, { field: "total_ns", descending }).map((row) => row.name);
    expect(names(true)).toEqual(["<b>copy</b>", "gemm 10", "gemm 9"]);
    expect(names(false)).toEqual(["gemm 10", "<b>copy</b>", "gemm 9"]);
    expect(sortRows(ROWS, FIELDS, { field: "name", descending: false })[1]?.name).toBe("gemm 9");
  });

  test("keep their order without a known field", () => {
    expect(sortRows(ROWS, FIELDS, null)).toEqual(ROWS);
    expect(sortRows(ROWS, FIELDS, { field: "gone", descending: true })).toEqual(ROWS);
  });

  test("are filtered by any field, ignoring case", () => {
    expect(filterRows(ROWS, FIELDS, " GEMM ").map((row) => row.name)).toEqual(["gemm 10", "gemm 9"]);
    expect(filterRows(ROWS, FIELDS, "")).toEqual(ROWS);
    expect(filterRows(ROWS, FIELDS, "nothing")).toEqual([]);
  });
});

test("values are formatted in their unit", () => {
  expect(formatValue(true, "none")).toBe("yes");
  expect(formatValue(null, "ns")).toBe("n/a");
  expect(formatValue(2_000_000, "ns")).toBe("2 ms");
  expect(formatValue("<b>", "none")).toBe("<b>");
});
