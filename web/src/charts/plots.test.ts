// @vitest-environment jsdom
import { describe, expect, test } from "vitest";

import { palette } from "../base/palette";
import { figureTable } from "./figure_table";
import { durationHistogram, singleLine, pieOf } from "./from_payload";
import { extent, gridLabel, gridOption, type Grid } from "./grid";
import { formatOnScale, plotLabel, plotOption, formatTick, tickInterval, type Plot } from "./plot";
import { stacksOption, type Stacks } from "./stacks";

const EVIL = "<img src=x onerror=alert(1)>";
const TIME = { name: "time", unit: "ns" as const };
const PLOT: Plot = {
  kind: "plot",
  title: "Busy",
  x: TIME,
  y: { name: "share", unit: "ratio" },
  series: [{ name: EVIL, x: [0, 1e9, 2e9], y: [0.25, null, 0.75] }],
};

type Formatter = (item: unknown) => HTMLElement;
const formatter = (option: { tooltip?: unknown }): Formatter => (option.tooltip as { formatter: Formatter }).formatter;

describe("axes", () => {
  test("format values in their unit", () => {
    expect(formatOnScale(1.5e9, TIME)).toBe("1.5 s");
    expect(formatOnScale(0, TIME)).toBe("0");
    expect(formatOnScale(3_600e9, TIME)).toBe("1 h");
    expect(formatOnScale(1, { name: "", unit: "none", categories: ["a", "b"] })).toBe("b");
    expect(formatTick(0.25, PLOT.y)).toBe("25%");
  });

  test("have ticks at round values of the displayed unit", () => {
    expect(tickInterval(TIME, 3_600e9)).toBe(600e9);
    expect(tickInterval(TIME, 1e9)).toBeUndefined();
    expect(tickInterval({ name: "", unit: "bytes" }, 12 * 2 ** 30)).toBe(2 * 2 ** 30);
    expect(tickInterval({ name: "", unit: "bytes", log: true }, 100)).toBeUndefined();
    expect(tickInterval(TIME, Number.NaN)).toBeUndefined();
  });
});

describe("plots", () => {
  test("have an accessible label with their values", () => {
    expect(plotLabel(PLOT)).toBe(`Busy: share over time. ${EVIL} from 25.0% to 75.0%.`);
    expect(figureTable(PLOT).rows).toEqual([[EVIL, 0, 0.25], [EVIL, 1e9, null], [EVIL, 2e9, 0.75]]);
  });

  test("show names in tooltips as text", () => {
    const box = formatter(plotOption(PLOT, palette(false)))([{ seriesName: EVIL, dataIndex: 0, value: [0, 0.25] }]);
    expect(box.querySelector("img")).toBeNull();
    expect(box.textContent).toBe(`time: 0${EVIL}: 25.0%`);
  });

  test("mark isolated points of long series", () => {
    const x = Array.from({ length: 100 }, (_, index) => index);
    const y = x.map((index) => (index === 50 ? 1 : null));
    const option = plotOption({ ...PLOT, series: [{ name: "s", x, y }] }, palette(true));
    const [series] = option.series as { data: unknown[] }[];
    expect(series?.data[50]).toEqual({ value: [50, 1], symbol: "circle", symbolSize: 5 });
    expect(series?.data[49]).toEqual([49, null]);
  });
});

test("a waterfall has invisible offset bars that are not in its label", () => {
  const block: Stacks = {
    kind: "stacks",
    title: "",
    categories: ["from", "part"],
    categoryName: "part",
    value: TIME,
    horizontal: true,
    offsets: [0, 5],
    parts: [{ name: "shorter", values: [null, 3] }],
  };
  const option = stacksOption(block, palette(false));
  expect((option.series as { name: string; data: unknown }[]).map(({ data }) => data)).toEqual([[0, 5], [null, 3]]);
  expect(formatter(option)([{ dataIndex: 1 }]).textContent).toBe("part partshorter: 3 ns");
  expect(figureTable(block).rows).toEqual([["from", null], ["part", 3]]);
});

test("bars of one quantity need no legend, and many bars no names on the axis", () => {
  const block: Stacks = {
    kind: "stacks",
    title: "Launches of all kernels",
    categories: [EVIL, "b"],
    categoryName: "kernel",
    hasNames: false,
    value: { name: "launches", unit: "count" },
    horizontal: false,
    parts: [{ name: "launches", values: [1_200, 1] }],
  };
  const option = stacksOption(block, palette(false));
  expect(option.legend).toBeUndefined();
  expect((option.xAxis as { axisLabel: { show: boolean } }).axisLabel.show).toBe(false);
  expect(formatter(option)([{ dataIndex: 0 }]).textContent).toBe(`kernel ${EVIL}launches: 1,200`);
  expect(figureTable(block).rows).toEqual([[EVIL, 1_200], ["b", 1]]);
  expect(figureTable(block).columns[1]).toEqual({ label: "launches", unit: "", digits: 0 });
});

describe("grids", () => {
  const GRID: Grid = {
    kind: "grid",
    title: "Steps",
    rows: ["rank 0", EVIL],
    columns: ["1", "2"],
    column: "step",
    values: [[1e6, 2e6], [null, 3e6]],
    value: { name: "duration", unit: "ns" },
  };

  test("have the extent of their values", () => {
    expect(extent(GRID.values)).toEqual([1e6, 3e6]);
    expect(extent([[null]])).toEqual([0, 0]);
    expect(gridLabel(GRID)).toContain("duration from 1 ms to 3 ms");
    expect(figureTable(GRID).rows[1]).toEqual([EVIL, 3e6, 3e6, 3e6]);
  });

  test("show a cell as text in the tooltip", () => {
    const box = formatter(gridOption(GRID, palette(false)))({ value: [1, 1, 3e6] });
    expect(box.querySelector("img")).toBeNull();
    expect(box.textContent).toBe(`${EVIL}3 msstep 2`);
  });
});

describe("figures of payloads", () => {
  test("use the unit of the largest duration", () => {
    const figure = durationHistogram({
      title: "", noun: "steps", edges_ns: [0, 5e6, 10e6], series: [{ name: "all", counts: [1, 2] }],
      marks_ns: [{ name: "p50", value: 6e6 }],
    });
    expect([figure.unit, figure.edges, figure.marks]).toEqual(["ms", [0, 5, 10], [{ name: "p50", value: 6 }]]);
  });

  test("have single-line names", () => {
    expect(singleLine("a\u202Eb\u0000\nc")).toBe("a b c");
    expect(singleLine("x".repeat(1000))).toHaveLength(160);
    const pie = pieOf("", { share_of: "time", parts: [{ name: "a\nb", share_ratio: 1 }] });
    expect(pie.slices[0]?.name).toBe("a b");
  });
});
