import { expect, test } from "vitest";

import type { BarChart, Curves, Matrix } from "../../api/report";
import type { DataSetEvaluation, LabelDistribution, RoundCurve } from "../../api/views";
import { figureOf } from "../../charts/from_blocks";
import { labelFigure, metricPlots, predictionFigures } from "./figures";

/** Build a payload with only the fields under test. */
const partial = <T>(value: Partial<Record<keyof T, unknown>>): T => value as T;

test("a metric has one plot with a line per data set", () => {
  const curve = (data_set: string, metric: string, value: number[]) =>
    partial<RoundCurve>({ name: `${data_set}-${metric}`, data_set, metric, round: [0, 1], value });
  const plots = metricPlots([curve("train", "rmse", [3, 1]), curve("test", "rmse", [4, 2]), curve("test", "rmsle", [-1, -2])]);
  expect(plots.map(({ title, series }) => [title, series.map(({ name }) => name)])).toEqual([
    ["rmse by round", ["train", "test"]], ["rmsle by round", ["test"]],
  ]);
  expect(plots.map(({ y }) => y.min)).toEqual([undefined, -2]);
});

test("labels are bars by class, or a histogram", () => {
  const bin = (label: string | null, low: number | null, high: number | null, count: number) => ({ label, low, high, count, share_ratio: null });
  const classes = partial<LabelDistribution>({ data_set: "train", row_count: 9, counted_count: 3, bins: [bin("0", null, null, 1), bin("1", null, null, 2)] });
  expect(labelFigure(classes)).toMatchObject({ kind: "stacks", categories: ["0", "1"], note: "3 of 9 rows are counted." });
  const values = partial<LabelDistribution>({ data_set: "train", row_count: 3, counted_count: 3, bins: [bin(null, 0, 0.5, 1), bin(null, 0.5, 1, 2)] });
  expect(labelFigure(values)).toMatchObject({ kind: "histogram", edges: [0, 0.5, 1], series: [{ counts: [1, 2] }] });
});

test("the confusion matrix has shares of each true class, and a class without rows none", () => {
  const evaluation = partial<DataSetEvaluation>({
    data_set: "test", round: 5, counted_count: 4, roc: null,
    confusion: { rounds: [0, 5], diagonal: [{ label: "a", recall_ratio: [0.5, 0.75] }], matrix: [{ label: "a", predicted_count: [3, 1] }, { label: "b", predicted_count: [0, 0] }] },
    errors: { rounds: [5], residuals: [{ low: null, high: -1, count: 2 }, { low: -1, high: 1, count: 5 }, { low: 1, high: null, count: 3 }], label_bins: [{ low: 0, high: 1, count: 0, mean_absolute_error: null, by_round: [null] }] },
  });
  const [confusion, diagonal, residuals, errors] = predictionFigures(evaluation);
  expect(confusion).toMatchObject({ kind: "grid", values: [[0.75, 0.25], [null, null]] });
  expect(diagonal).toMatchObject({ kind: "plot", series: [{ name: "class a", x: [0, 5], y: [0.5, 0.75] }] });
  expect(residuals).toMatchObject({ edges: [-1, 1], series: [{ counts: [5], below_count: 2, above_count: 3 }] });
  expect(errors).toMatchObject({ series: [] });
});

test("blocks of a report become figures", () => {
  const curves = partial<Curves>({ kind: "curves", title: "ROC", x_axis: "x", x_unit: "ratio", y_axis: "y", y_unit: "none", note: null, more: "and 2 more classes", curves: [{ name: "model", x: [0, null, 1], y: [-1, 5, null] }] });
  expect(figureOf(curves)).toMatchObject({
    kind: "plot", x: { min: 0, max: 1 }, y: { min: -1 }, series: [{ x: [0, 1], y: [-1, null] }], note: "… and 2 more classes.",
  });
  const bars = partial<BarChart>({ kind: "bar_chart", title: "Gain", item: "feature", axis: "gain", unit: "none", names: ["a"], values: [2], note: null, more: null });
  expect(figureOf(bars)).toMatchObject({ kind: "stacks", categories: ["a"], parts: [{ name: "gain", values: [2] }], note: null });
  const matrix = partial<Matrix>({ kind: "matrix", title: "Confusion", row: "true", column: "predicted", axis: "share", unit: "ratio", rows: ["a"], columns: ["a"], values: [[1]], note: null, more: null });
  expect(figureOf(matrix)).toMatchObject({ kind: "grid", column: "predicted", value: { min: 0, max: 1 } });
});
