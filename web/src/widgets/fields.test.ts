// @vitest-environment jsdom
import { expect, describe, test } from "vitest";

import type { NodeRow, Statistics } from "../api/views";

import { cellText, column, columns, entries, filterRows, formatValue, innerColumns, sortRows, tile } from "./fields";

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
const FIELDS = columns<"KernelTime", Row>("KernelTime", "name", "total_ns", "share_ratio");
const STATISTICS: Statistics = {
  count: 7, mean: 2_500, standard_deviation: 0, min: 0, p50: 2_000, p95: 0, p99: 0, max: 0, outlier_count: 0, outlier_threshold: 0,
};

describe("columns", () => {
  test("have the labels of their fields", () => {
    expect(FIELDS.map(({ title, unit, display, numeric }) => [title, unit, display, numeric])).toEqual([
      ["name", "none", undefined, false],
      ["total", "ns", undefined, true],
      ["share", "ratio", "bar", true],
    ]);
  });

  test("may differ from their labels, be computed, or not apply", () => {
    const [name, half] = columns<"KernelTime", Row>(
      "KernelTime",
      ["name", { value: (row) => row.name.toUpperCase() }],
      false,
      column("half", "half of total", "ns", (row) => (row.total_ns === null ? null : row.total_ns / 2)),
    );
    expect(name?.value({ name: "a", total_ns: 0, share_ratio: 0 })).toBe("A");
    expect(ROWS.map((row) => half?.value(row))).toEqual([1_000_000, null, 2_500_000]);
    expect(half?.numeric).toBe(true);
  });

  test("of statistics have the unit of the field around them, or of the row", () => {
    const [mean, count] = innerColumns("Statistics", "ns", (row: { of: Statistics | null }) => row.of, "mean", "count");
    expect([mean, count].map((field) => field && cellText({ of: STATISTICS }, field))).toEqual(["2.5 µs", "7"]);
    expect(mean?.value({ of: null })).toBeNull();
    const [value] = columns<"FigureChange", { unit: string; base: number }>("FigureChange", "base");
    expect(value && cellText({ unit: "ratio", base: 0.5 }, value)).toBe("50.0%");
  });
});

test("lists of names are one text", () => {
  const [ranks] = columns("NodeRow", "ranks");
  const texts = [["rank 0", "rank 1"], []].map((names) => ranks && cellText({ ranks: names } as unknown as NodeRow, ranks));
  expect(texts).toEqual(["rank 0, rank 1", "none"]);
});

test("entries and tiles of fields have titles, values and explanations", () => {
  const [launches, total, mixed] = entries("KernelTime", { launch_count: 1_200, total_ns: 5 }, "launch_count", ["total_ns", "5 ns (1%)"], ["Mixed", "text"]);
  expect(launches?.slice(0, 2)).toEqual(["Launches", "1,200"]);
  expect(total?.slice(0, 2)).toEqual(["Total", "5 ns (1%)"]);
  expect(mixed?.slice(0, 2)).toEqual(["Mixed", "text"]);
  expect(tile("Statistics", STATISTICS, "p50", { unit: "ns", testid: "p50" })).toMatchObject({ value: "2 µs", testid: "p50" });
  expect(tile("Statistics", null, "count")).toMatchObject({ label: "Count", value: "n/a" });
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

test("values are formatted in their unit and display", () => {
  expect(formatValue(true, { unit: "none" })).toBe("yes");
  expect(formatValue(null, { unit: "ns" })).toBe("n/a");
  expect(formatValue(2_000_000, { unit: "ns" })).toBe("2 ms");
  expect(formatValue("<b>", { unit: "none" })).toBe("<b>");
  expect(formatValue(1_200, { unit: "none", display: "identifier" })).toBe("1200");
  expect(formatValue(2_500_000, { unit: "bytes", display: "file_size" })).toBe("2.5 MB");
  expect(formatValue(-2_000, { unit: "ns", display: "change" })).toBe("-2 µs");
  expect(formatValue(0.125, { unit: "ratio", display: "change" })).toBe("+12.5%");
});
