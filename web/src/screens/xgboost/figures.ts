// Figures of a model of XGBoost.
import type {
  ConfusionMatrix, DataSetEvaluation, FeatureImportance, LabelDistribution, RegressionErrors, RocCurve, RoundCurve,
} from "../../api/views";
import { count, countOf, number } from "../../base/quantities";
import type { Histogram } from "../../api/report";
import type { Figure } from "../../charts/figure";
import { singleLine } from "../../charts/from_payload";
import type { Grid } from "../../charts/grid";
import type { Plot, Scale, Series } from "../../charts/plot";
import type { Stacks } from "../../charts/stacks";

/** Upper bound of features in a chart, and of lines. */
const MAX_FEATURES = 20;
const MAX_LINES = 16;
const ROUND: Scale = { name: "round", unit: "count" };

/** A plot per metric, with a line per data set. */
export function metricPlots(metrics: readonly RoundCurve[]): Plot[] {
  const byMetric = new Map<string, RoundCurve[]>();
  for (const curve of metrics) byMetric.set(curve.metric, [...(byMetric.get(curve.metric) ?? []), curve]);
  return [...byMetric].map(([metric, group]) => ({
    kind: "plot", title: `${singleLine(metric)} by round`,
    x: ROUND, y: { name: singleLine(metric), unit: "none", ...minimumOf(group.flatMap(({ value }) => value)) },
    series: group.slice(0, MAX_LINES).map((curve) => ({ name: singleLine(curve.data_set), x: curve.round, y: curve.value })),
    note: group.length > MAX_LINES ? `${countOf(group.length - MAX_LINES, "more data set")} not shown.` : null,
  }));
}

export function labelFigure({ data_set, row_count, counted_count, bins }: LabelDistribution): Figure {
  const title = `Labels of ${singleLine(data_set)}`;
  const note = row_count === null || row_count === counted_count ? null : `${count(counted_count)} of ${countOf(row_count, "row")} are counted.`;
  const counts = bins.map((bin) => bin.count);
  if (bins.every(({ label }) => label !== null)) {
    return barsOf(title, "class", "rows", "count", bins.map(({ label }) => label ?? ""), counts, note);
  }
  return histogramOf(title, "label", singleLine(data_set), bins);
}

export function importanceFigure({ measure, round, features }: FeatureImportance): Stacks {
  const shown = features.slice(0, MAX_FEATURES);
  // The last row may be the sum of those that were not recorded one by one.
  const rest = features.slice(MAX_FEATURES).filter((feature) => !feature.name.startsWith("("));
  const name = measure.replace("_", " ");
  const note = `After round ${round}.${rest.length > 0 ? ` The next ${countOf(rest.length, "feature")} are in the data.` : ""}`;
  return barsOf(`Importance by ${name}`, "feature", name, "none", shown.map((feature) => singleLine(feature.name)), shown.map(({ value }) => value), note);
}

/** Figures of the predictions for one data set. */
export function predictionFigures({ data_set, round, counted_count, confusion, roc, errors }: DataSetEvaluation): Figure[] {
  const name = singleLine(data_set);
  const when = `After round ${round}, ${countOf(counted_count, "row")}.`;
  return [
    ...(confusion === null ? [] : [confusionFigure(name, confusion, when), diagonalPlot(name, confusion)]),
    ...(roc === null ? [] : [rocPlot(name, roc, when), areaPlot(name, roc)]),
    ...(errors === null ? [] : [...residualFigures(name, errors), errorPlot(name, errors)]),
  ];
}

export function confusionFigure(name: string, { matrix }: ConfusionMatrix, when: string): Grid {
  const labels = matrix.map(({ label }) => label);
  return {
    kind: "grid", title: `Confusion matrix of ${name}`,
    rows: labels, columns: labels, column: "predicted class",
    values: matrix.map(({ predicted_count }) => {
      const total = predicted_count.reduce((sum, rows) => sum + rows, 0);
      return predicted_count.map((rows) => (total === 0 ? null : rows / total));
    }),
    value: { name: "share of the rows of the true class", unit: "ratio", min: 0, max: 1 },
    note: `Rows are true classes, colors shares of their rows. ${when}`,
  };
}

function diagonalPlot(name: string, { diagonal, rounds }: ConfusionMatrix): Plot {
  const series = diagonal.slice(0, MAX_LINES).map(({ label, recall_ratio }) => ({ name: `class ${label}`, x: rounds, y: recall_ratio }));
  const omittedCount = diagonal.length - series.length;
  return {
    kind: "plot", title: `Accuracy of each class of ${name}`,
    x: ROUND, y: { name: "accuracy", unit: "ratio", min: 0, max: 1 }, series,
    note: `Rows of a class that are predicted as it, as a share of the rows of the class.${omittedCount > 0 ? ` ${countOf(omittedCount, "more class", "more classes")} not shown.` : ""}`,
  };
}

function rocPlot(name: string, roc: RocCurve, when: string): Plot {
  const points = roc.false_positive_ratio.flatMap((x, point) => (x === null ? [] : [[x, roc.true_positive_ratio[point] ?? null] as const]));
  const curve: Series = { name: "model", x: points.map(([x]) => x), y: points.map(([, y]) => y) };
  return {
    kind: "plot", title: `ROC curve of ${name}`,
    x: { name: "false positive rate", unit: "ratio", min: 0, max: 1 },
    y: { name: "true positive rate", unit: "ratio", min: 0, max: 1 },
    series: [curve, { name: "random guess", x: [0, 1], y: [0, 1] }],
    note: `Area under the curve ${number(roc.auc, 4)}. ${when}`,
  };
}

function areaPlot(name: string, { rounds, auc_by_round }: RocCurve): Plot {
  return { kind: "plot", title: `AUC of ${name} by round`, x: ROUND, y: { name: "AUC", unit: "none" }, series: [{ name: "AUC", x: rounds, y: auc_by_round }] };
}

function residualFigures(name: string, { residuals }: RegressionErrors): Histogram[] {
  const inner = residuals.filter(({ low, high }) => low !== null && high !== null);
  if (inner.length === 0) return [];
  const outside = (side: "low" | "high"): number => residuals.filter((bin) => bin[side] === null).reduce((sum, bin) => sum + bin.count, 0);
  return [histogramOf(`Residuals of ${name}`, "label minus prediction", name, inner, outside("low"), outside("high"))];
}

function errorPlot(name: string, { label_bins, rounds }: RegressionErrors): Plot {
  return {
    kind: "plot", title: `Mean absolute error of ${name} by label`,
    x: ROUND, y: { name: "mean absolute error", unit: "none" },
    series: label_bins.filter((bin) => bin.count > 0).map((bin) => ({ name: `${number(bin.low)} to ${number(bin.high)}`, x: rounds, y: bin.by_round })),
    note: "Labels in ten bins of equal width; those without rows are left out.",
  };
}

interface Bin {
  low: number | null;
  high: number | null;
  count: number;
}

function histogramOf(title: string, axis: string, name: string, bins: readonly Bin[], below_count = 0, above_count = 0): Histogram {
  return {
    kind: "histogram", title, axis, unit: "value", digits: 4, counted: "rows", marks: [], more: null,
    edges: [...bins.map(({ low }) => low), bins[bins.length - 1]?.high ?? null].filter((edge) => edge !== null),
    series: [{ name, counts: bins.map((bin) => bin.count), below_count, above_count }],
  };
}

function barsOf(title: string, item: string, name: string, unit: string, categories: string[], values: (number | null)[], note: string | null): Stacks {
  return { kind: "stacks", title, categories, categoryName: item, horizontal: true, value: { name, unit }, parts: [{ name, values }], note };
}

/** Start of an axis: 0 unless values are negative. */
function minimumOf(values: readonly (number | null)[]): { min?: number } {
  const min = values.reduce((low: number, value) => Math.min(low, value ?? 0), 0);
  return min < 0 ? { min } : {};
}
