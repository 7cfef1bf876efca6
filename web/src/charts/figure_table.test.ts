import { expect, test } from "vitest";

import { figureTable } from "./figure_table";

test("the table of a heat map has minimum, mean and maximum of each row in its unit", () => {
  const { rows } = figureTable({
    kind: "heatmap",
    title: "",
    start: "",
    column_s: 1,
    rows: [
      { name: "memory", unit: "GB", full: 50, percent: [0, null, 100] },
      { name: "never", unit: "%", full: 100, percent: [null] },
    ],
    more: null,
  });
  expect(rows).toEqual([
    ["memory", "GB", 0, 25, 50],
    ["never", "%", null, null, null],
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
