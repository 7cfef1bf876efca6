// @vitest-environment jsdom
import { describe, expect, test } from "vitest";

import type { ScalarSeries, TensorHeatView } from "../../api/views";
import { palette } from "../../base/palette";
import { gridOption, shortenName, smallestPositive } from "../../charts/grid";
import { plotLabel, plotOption } from "../../charts/plot";
import { columnNames, heatFigure, runStarts, scalarPlots, type CurveOptions } from "./figures";
import { smooth } from "./smoothing";

const OPTIONS: CurveOptions = { x: "step", log: false, smoothing: 0, isJoined: false };

function series(name: string, value: (number | null)[], more: Partial<ScalarSeries> = {}): ScalarSeries {
  const points = value.map((_, index) => index);
  return {
    name, process: "p", rank: 0, statistics: null, nan_count: 0, values_per_point: 1,
    after_ns: points.map((point) => 1e9 * point), step: points, value, non_finite_points: [], ...more,
  };
}

describe("smoothing", () => {
  test("is the mean of all values, weighted by their age", () => {
    const values = [3, 1, 4, 1, 5];
    const weight = 0.6;
    const expected = values.map((_, last) => {
      const weights = values.slice(0, last + 1).map((__, index) => weight ** (last - index));
      const sum = weights.reduce((total, part) => total + part, 0);
      return weights.reduce((total, part, index) => total + (part * (values[index] ?? 0)) / sum, 0);
    });
    smooth(values, weight).forEach((value, index) => { expect(value).toBeCloseTo(expected[index] ?? 0, 12); });
    expect(smooth(values, 0)).toEqual(values);
  });

  test("leaves missing values missing, and others as if they were not there", () => {
    expect(smooth([null, 2, null, 4], 0.5)).toEqual([null, 2, null, smooth([2, 4], 0.5)[1]]);
  });
});

describe("curves", () => {
  test("are one chart per name, or one of all", () => {
    const all = [series("loss", [1, 2]), series("accuracy", [0, 1]), series("loss", [2, 3], { rank: 1 })];
    const separate = scalarPlots(all, OPTIONS);
    expect(separate.map((plot) => [plot.title, plot.series.map(({ name }) => name)])).toEqual([["loss", ["rank 0", "rank 1"]], ["accuracy", ["rank 0"]]]);
    const [joined] = scalarPlots(all, { ...OPTIONS, isJoined: true, x: "time" });
    expect(joined?.series.map(({ name }) => name)).toEqual(["loss, rank 0", "accuracy, rank 0", "loss, rank 1"]);
    expect(joined?.series[0]?.x).toEqual([0, 1e9]);
  });

  test("omit on a logarithmic axis what it cannot show, and say so", () => {
    const [plot] = scalarPlots([series("loss", [-1, 0, 2])], { ...OPTIONS, log: true });
    expect(plot?.series[0]?.y).toEqual([null, null, 2]);
    expect(plot?.note).toContain("2 points of zero or less");
  });

  test("mark the start of each run of values that are not finite", () => {
    expect(runStarts([2, 3, 4, 7])).toEqual([2, 7]);
    const [plot] = scalarPlots([series("loss", [1, null, null], { nan_count: 2, non_finite_points: [1, 2] })], OPTIONS);
    expect(plot?.marks).toEqual([{ name: "NaN or infinite", value: 1 }]);
    expect(plot?.note).toBe("2 values are NaN or infinite.");
    expect(plot === undefined ? "" : plotLabel(plot)).toContain("Marks: NaN or infinite at step 1.");
  });

  test("are drawn twice if they are smoothed, in one colour", () => {
    const [plot] = scalarPlots([series("loss", [1, 3])], { ...OPTIONS, smoothing: 0.5 });
    if (plot === undefined) throw new Error("no plot");
    const colours = palette(false);
    const lines = plotOption(plot, colours).series as { name: string; data: number[][]; color?: string }[];
    expect(lines.map(({ name }) => name)).toEqual(["rank 0", "rank 0"]);
    expect(lines[1]?.data).toEqual([[0, 1], [1, smooth([1, 3], 0.5)[1]]]);
    expect(lines[1]?.color).toBe(colours.series[0]);
  });
});

describe("the heat map of layers", () => {
  const heat: TensorHeatView = {
    collection: "gradients", reduction: "l2", rank: 0, mode: "TRAIN", collections: ["gradients"], ranks: [0],
    first_step: [0, 20, 40], last_step: [10, 30, 40], columns: "each column is the maximum of up to 2 recorded steps",
    rows: [
      { name: "gradient/a", value: [0.01, 0, 100], non_finite_columns: [] },
      { name: "gradient/b", value: [1, null, 1], non_finite_columns: [1] },
    ],
    left_out_count: 0, missing: null, damage: [], recording_end: null, doubts: [], rounding: null, range: null,
  };

  test("has a column for each group of steps, and says what it shows", () => {
    expect(columnNames(heat)).toEqual(["0 to 10", "20 to 30", "40"]);
    const figure = heatFigure("Gradient norms", heat);
    expect(figure.rows).toEqual(["a", "b"]);
    expect(figure.note).toContain("Each column is the maximum of up to 2 recorded steps.");
  });

  test("has logarithmic colours, and a cross where elements are not finite", () => {
    expect(smallestPositive(heat.rows.map((row) => row.value))).toBe(0.01);
    const { series: drawn, visualMap } = gridOption(heatFigure("Gradient norms", heat), palette(true)) as unknown as {
      series: { data: number[][] }[];
      visualMap: { min: number; max: number };
    };
    expect(visualMap).toMatchObject({ min: -2, max: 2 });
    expect(drawn[0]?.data).toEqual([[0, 0, -2], [1, 0, -2], [2, 0, 2], [0, 1, 0], [2, 1, 0]]);
    expect(drawn[1]?.data).toEqual([[1, 1]]);
  });

  test("keeps both ends of long names", () => {
    expect(shortenName("fc.weight")).toBe("fc.weight");
    expect(shortenName("transformer.layers.11.linear1.weight")).toBe("transf…linear1.weight");
  });
});
