// Figures of the tensors screen.
import type { ScalarSeries, TensorHeatView, TensorHistogramView, TensorView } from "../../api/views";
import { countOf, number } from "../../base/quantities";
import { sentence } from "../../base/text";
import type { Grid } from "../../charts/grid";
import type { Plot, Scale, Series } from "../../charts/plot";
import { labelOf } from "../../widgets/fields";
import { smooth } from "./smoothing";

export interface CurveOptions {
  x: "step" | "time";
  log: boolean;
  /** 0 to 1; 0 draws the values alone. */
  smoothing: number;
  /** One chart for all names. */
  isJoined: boolean;
}

const STEP: Scale = { name: "step", unit: "count" };
const TIME: Scale = { name: "after the start of the run", unit: "ns" };

/** True if the steps of all series are known. */
export function haveSteps(scalars: readonly ScalarSeries[]): boolean {
  return scalars.every((series) => series.step !== null);
}

/** Plots of logged scalars: one per name, or one of all. */
export function scalarPlots(scalars: readonly ScalarSeries[], options: CurveOptions): Plot[] {
  if (options.isJoined) return scalars.length === 0 ? [] : [scalarPlot("Scalars", scalars, options)];
  const byName = new Map<string, ScalarSeries[]>();
  for (const series of scalars) byName.set(series.name, [...(byName.get(series.name) ?? []), series]);
  return [...byName].map(([name, group]) => scalarPlot(name.slice(0, 200), group, options));
}

function scalarPlot(title: string, group: readonly ScalarSeries[], { x, log, smoothing, isJoined }: CurveOptions): Plot {
  const values = group.flatMap((series) => series.value.filter((value) => value !== null));
  const hiddenCount = log ? values.filter((value) => value <= 0).length : 0;
  const valuesPerPoint = Math.max(...group.map((series) => series.values_per_point));
  const nanCount = group.reduce((sum, series) => sum + series.nan_count, 0);
  const xs = (series: ScalarSeries): number[] => (x === "step" ? series.step : null) ?? series.after_ns;
  const notes = [
    valuesPerPoint > 1 ? `Each point is the mean of up to ${valuesPerPoint} values.` : "",
    hiddenCount > 0 ? `${countOf(hiddenCount, "point")} of zero or less cannot be drawn on a logarithmic axis.` : "",
    nanCount > 0 ? `${countOf(nanCount, "value is", "values are")} NaN or infinite.` : "",
  ].filter(Boolean);
  return {
    kind: "plot",
    title,
    x: x === "step" ? STEP : TIME,
    y: { name: "value", unit: "none", ...(log ? { log } : minimumOf(values)) },
    series: group.map((series) => {
      const y = log ? series.value.map((value) => (value !== null && value > 0 ? value : null)) : series.value;
      const rank = series.rank === null ? series.process.slice(0, 60) : `rank ${series.rank}`;
      return {
        name: isJoined ? `${series.name.slice(0, 60)}, ${rank}` : rank,
        x: xs(series),
        y,
        ...(smoothing > 0 ? { smoothed: smooth(y, smoothing) } : {}),
      };
    }),
    marks: group.flatMap((series) => runStarts(series.non_finite_points).map((point) => ({ name: "NaN or infinite", value: xs(series)[point] ?? 0 }))),
    note: notes.length === 0 ? null : notes.join(" "),
  };
}

/** Bounds of an axis that begins at zero unless values are negative. */
function minimumOf(values: readonly number[]): { min?: number } {
  const min = values.reduce((low, value) => Math.min(low, value), 0);
  return min < 0 ? { min } : {};
}

/** First of each run of consecutive ascending numbers. */
export function runStarts(points: readonly number[]): number[] {
  return points.filter((point, index) => points[index - 1] !== point - 1);
}

/** Name of a column of recorded steps. */
export function columnNames({ first_step, last_step }: { first_step: number[]; last_step: number[] }): string[] {
  return first_step.map((first, column) => {
    const last = last_step[column] ?? first;
    return first === last ? String(first) : `${first} to ${last}`;
  });
}

/** Heat map of one number of the tensors of a collection over the steps. */
export function heatFigure(title: string, heat: TensorHeatView): Grid {
  const notes = [
    heat.columns === null ? "Each column is a recorded step." : sentence(heat.columns),
    "Colors are logarithmic; zero has the color of the smallest value. Rows are in the order of the optimizer.",
    heat.rows.some((row) => row.non_finite_columns.length > 0) ? "Crosses mark NaN or infinite elements." : "",
    heat.left_out_count > 0 ? `${countOf(heat.left_out_count, "more tensor")} not shown.` : "",
  ].filter(Boolean);
  return {
    kind: "grid",
    title,
    rows: heat.rows.map((row) => row.name.replace(/^gradient\//, "")),
    columns: columnNames(heat),
    column: "step",
    values: heat.rows.map((row) => row.value),
    value: { name: title, unit: "none", log: true },
    marks: heat.rows.map((row) => row.non_finite_columns),
    note: notes.join(" "),
  };
}

/** Heat map of the histograms of a tensor: bins over steps, the highest values first. */
export function histogramFigure(histogram: TensorHistogramView): Grid {
  const bins = [...histogram.bins].reverse();
  return {
    kind: "grid",
    title: "Distribution of elements",
    rows: bins.map((bin) => `${number(bin.low)} to ${number(bin.high)}`),
    columns: columnNames(histogram),
    column: "step",
    values: bins.map((bin) => bin.share_ratio.map((share) => (share === 0 ? null : share))),
    value: { name: "share of elements", unit: "ratio" },
    note: [
      "Shares are of the elements of the tensor. Bins are powers of two, with one around zero. Blank: no elements.",
      histogram.columns === null ? "" : sentence(histogram.columns),
    ].filter(Boolean).join(" "),
  };
}

type Curve = "min" | "max" | "mean" | "standard_deviation" | "l2" | "update_ratio" | "zero_ratio" | "nan_count" | "infinite_count";

/** Curves of one tensor: values, norm, update, zeros, and what is not finite. */
export function tensorPlots(tensor: TensorView, log: boolean): Plot[] {
  const x = tensor.first_step;
  const breaks = x.flatMap((_, column) => ((tensor.nan_count[column] ?? 0) + (tensor.infinite_count[column] ?? 0) > 0 ? [column] : []));
  const marks = runStarts(breaks).map((column) => ({ name: "NaN or infinite", value: x[column] ?? 0 }));
  const plot = (title: string, unit: string, names: Curve[], isLog: boolean): Plot => {
    const series = names.map((name): Series => ({
      name: labelOf("TensorView", name).title,
      x,
      y: isLog ? tensor[name].map((value) => (value !== null && value > 0 ? value : null)) : tensor[name],
    }));
    const values = series.flatMap((curve) => curve.y.filter((value) => value !== null));
    return {
      kind: "plot", title, x: STEP, series,
      y: { name: unit === "count" ? "elements" : "value", unit, ...(isLog ? { log: true } : minimumOf(values)) },
      ...(unit === "count" ? {} : { marks }),
      note: tensor.columns === null ? null : sentence(tensor.columns),
    };
  };
  const plots = [
    plot("Elements", "none", ["max", "mean", "min", "standard_deviation"], false),
    plot("L2 norm", "none", ["l2"], log),
    plot("Update ratio", "none", ["update_ratio"], log),
    plot("Zeros", "ratio", ["zero_ratio"], false),
    plot("NaN and infinite elements", "count", ["nan_count", "infinite_count"], false),
  ];
  return plots.filter(({ series }) => series.some(({ y }) => y.some((value) => value !== null && value !== 0)));
}
