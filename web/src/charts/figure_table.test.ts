import { expect, test } from "vitest";

import { MISSING, memory } from "../base/quantities";
import { figureTable } from "./figure_table";

test("the table of a heat map has minimum, mean and maximum of each row in its unit", () => {
  const { rows } = figureTable({
    kind: "heatmap",
    title: "",
    start: "",
    column_ns: 1,
    rows: [
      { name: "memory", metric: "memory_used_bytes", device: "", unit: "bytes", full: 2 ** 30, shade_ratio: [0, null, 1] },
      { name: "never", metric: "cpu_busy_ratio", device: "", unit: "ratio", full: 1, shade_ratio: [null] },
    ],
    more: null,
  });
  expect(rows).toEqual([
    ["memory", memory(0), memory(2 ** 29), memory(2 ** 30)],
    ["never", MISSING, MISSING, MISSING],
  ]);
});

test("the table of a histogram has a row per bin and a column per series", () => {
  const { columns, rows } = figureTable({
    kind: "histogram",
    title: "",
    axis: "",
    unit: "s",
    digits: 1,
    counted: "steps",
    edges: [0, 1, 2],
    series: [
      { name: "a", counts: [1, 2], below_count: 0, above_count: 0 },
      { name: "b", counts: [3, 4], below_count: 0, above_count: 0 },
    ],
    marks: [],
    more: null,
  });
  expect(columns.map((column) => column.label)).toEqual(["from", "to", "a", "b"]);
  expect(rows).toEqual([[0, 1, 1, 3], [1, 2, 2, 4]]);
});
