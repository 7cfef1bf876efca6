// Line, step or scatter plot over time, steps or another quantity.
import type { Palette } from "../base/palette";
import { inUnit, percent, timeUnit } from "../base/quantities";
import { axisOption, baseOption, legendOption, lineStyleType, tooltipContent, tooltipOption } from "./common";
import type { EChartsOption } from "./echarts";

/** Axis of a plot. */
export interface Scale {
  name: string;
  unit: string;
  min?: number;
  max?: number;
  log?: boolean;
  /** Names of the positions 0, 1, …, for a categorical axis. */
  categories?: string[];
}

export interface Series {
  name: string;
  x: number[];
  y: (number | null)[];
  /** Line by default; a step holds its value until the next one. */
  draw?: "line" | "step" | "points";
  filled?: boolean;
  /** Smoothed values, drawn in front of the values, which are faint. */
  smoothed?: (number | null)[];
  /** Names of the points. */
  names?: string[];
}

export interface Plot {
  kind: "plot";
  title: string;
  x: Scale;
  y: Scale;
  series: Series[];
  /** Horizontal marks. */
  levels?: { name: string; value: number }[];
  /** Vertical marks. */
  marks?: { name: string; value: number }[];
  /** Shaded ranges of the horizontal axis. */
  spans?: { name: string; from: number; to: number }[];
  height?: number;
  /** One of several that share their axis of time: low, without the names of the axes. */
  isSmall?: boolean;
  /** Samples that can be rarer than the positions: those without a value are no gaps. */
  isSampled?: boolean;
  note?: string | null;
}


const SYMBOLS = ["circle", "diamond", "triangle", "rect"] as const;
/** Series with more points have no symbols. */
const MAX_SYMBOLS = 60;

/** Format a value on an axis: a quantity in its unit, a category by its name. */
export function formatOnScale(value: number, scale: Scale): string {
  if (scale.categories !== undefined) return scale.categories[value] ?? "";
  if (value === 0) return "0";
  return inUnit(value, scale.unit);
}

const EXTREMES = { min: Infinity, max: -Infinity };

function extremes(values: readonly (number | null)[]): typeof EXTREMES {
  return values.reduce(
    (range, value) =>
      value === null
        ? range
        : { min: Math.min(range.min, value), max: Math.max(range.max, value) },
    EXTREMES,
  );
}

export function plotLabel(plot: Plot): string {
  const parts = plot.series.slice(0, 12).map((series) => {
    const { min, max } = extremes(series.y);
    return min > max
      ? `${series.name}: no values`
      : `${series.name} from ${formatOnScale(min, plot.y)} to ${formatOnScale(max, plot.y)}`;
  });
  const marks = plot.marks === undefined || plot.marks.length === 0 ? "" : ` Marks: ${plot.marks.slice(0, 12).map(({ name, value }) => `${name} at ${plot.x.name} ${formatOnScale(value, plot.x)}`).join("; ")}.`;
  const spans = (plot.spans ?? []).map(({ name, from, to }) => ` Shaded: ${name} from ${formatOnScale(from, plot.x)} to ${formatOnScale(to, plot.x)}.`).join("");
  const more = plot.series.length > parts.length ? `; ${plot.series.length - parts.length} more` : "";
  return `${plot.title}: ${plot.y.name} over ${plot.x.name}. ${parts.join("; ")}${more}.${marks}${spans}`;
}

/** Tick interval for units in which round decimal numbers are not round. */
export function tickInterval(scale: Scale, span: number): number | undefined {
  if (scale.categories !== undefined || scale.log === true || !(span > 0)) return undefined;
  if (scale.unit === "bytes") return 2 ** Math.ceil(Math.log2(span / 6));
  if (scale.unit !== "ns" || span < 120e9) return undefined;
  const seconds = [15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400];
  return (seconds.find((interval) => span / 1e9 / interval <= 8) ?? 172_800) * 1e9;
}

function scaledAxis(scale: Scale, values: number[], colours: Palette, endsOnTick = false): Record<string, unknown> {
  const { min, max } = extremes(values);
  const span = (scale.max ?? max) - (scale.min ?? Math.min(0, min));
  const interval = tickInterval(scale, span);
  const end = endsOnTick && interval !== undefined ? Math.ceil(max / interval) * interval : undefined;
  return {
    type: scale.log === true ? "log" : "value",
    ...axisOption(colours, scale.name),
    ...(scale.min === undefined ? {} : { min: scale.min }),
    ...(scale.max === undefined && end === undefined ? {} : { max: scale.max ?? end }),
    ...(interval === undefined ? {} : { interval }),
    ...(scale.categories === undefined ? {} : { minInterval: 1 }),
    axisLabel: {
      color: colours.muted,
      hideOverlap: true,
      formatter: (value: number) => formatTick(value, scale, span),
    },
  };
}

/** Shorter axes need more digits than a value alone. */
const MIN_SPAN_RATIO = 0.1;

/** Format a tick of an axis of some span: ratios are whole percents, neighbouring times differ. */
export function formatTick(value: number, scale: Scale, span = Infinity): string {
  if (scale.unit === "ratio") return percent(value);
  if (scale.unit !== "ns" || span >= MIN_SPAN_RATIO * value || span <= 0) return formatOnScale(value, scale);
  const [unit, size] = timeUnit(value);
  return `${(value / size).toFixed(Math.ceil(Math.log10((10 * size) / span)))} ${unit}`;
}

export function plotOption(plot: Plot, colours: Palette): EChartsOption {
  const hasManySeries = plot.series.length > 1;
  const values = [...plot.series.flatMap((series) => series.y.filter((y) => y !== null)), ...(plot.levels ?? []).map(({ value }) => value)];
  const isScatter = plot.series.every((series) => series.draw === "points");
  const top = plot.levels === undefined || plot.levels.length === 0 ? 10 : 22; // room for the name of a level
  return {
    ...baseOption(colours, plotLabel(plot)),
    tooltip: {
      ...tooltipOption(colours),
      trigger: isScatter ? "item" : "axis",
      axisPointer: { type: "line", lineStyle: { color: colours.muted } },
      formatter: (items: unknown) => tooltipOf(plot, Array.isArray(items) ? items : [items]),
    },
    ...(hasManySeries ? { legend: { ...legendOption(colours, plot.series.map((series) => series.name)), ...(plot.isSmall === true ? { itemWidth: 12, itemGap: 8 } : {}) } } : {}),
    grid: plot.isSmall === true ? { left: 62, right: 20, top, bottom: hasManySeries ? 52 : 24 } : { left: 76, right: 26, top: top + 8, bottom: hasManySeries ? 82 : 50 },
    xAxis: {
      ...scaledAxis(plot.x, plot.series.flatMap((series) => series.x), colours),
      ...(plot.isSmall === true ? { name: "" } : { nameGap: 30 }),
      ...(plot.x.log === true ? {} : { splitLine: { show: false } }),
    },
    yAxis: {
      ...(plot.y.log === true ? {} : { min: 0 }),
      ...scaledAxis(plot.y, values, colours, true),
      ...(plot.isSmall === true ? { name: "", splitNumber: 2 } : { nameGap: 58 }),
    },
    series: [...plot.series.map((series, index) => ({
      type: series.draw === "points" ? ("scatter" as const) : ("line" as const),
      name: series.name,
      ...(series.draw === "step" ? { step: "end" as const } : {}),
      symbol: hasSymbols(series) ? (SYMBOLS[index % SYMBOLS.length] ?? "circle") : "none",
      symbolSize: series.draw === "points" ? 8 : 4,
      showSymbol: true,
      connectNulls: plot.isSampled === true,
      lineStyle: { width: 1.6, type: lineStyleType(Math.floor(index / 8)), ...(series.smoothed === undefined ? {} : { opacity: 0.3, width: 1 }) },
      ...(series.filled === true ? { areaStyle: { opacity: 0.18 } } : {}),
      data: series.x.map((x, point) => dataPoint(series, x, point)),
      ...(index === 0 && (plot.levels ?? plot.marks) !== undefined ? { markLine: lineMarks(plot, colours) } : {}),
      ...(index === 0 && plot.spans !== undefined ? { markArea: shadedSpans(plot.spans, colours) } : {}),
    })), ...smoothedLines(plot, colours)],
  };
}

/** Lines of smoothed values; they share the entry in the legend, and the colour, with the values. */
function smoothedLines(plot: Plot, colours: Palette) {
  return plot.series.flatMap(({ name, x, smoothed }, index) => {
    if (smoothed === undefined) return [];
    const color = colours.series[index % colours.series.length] ?? colours.text;
    return [{
      type: "line" as const,
      id: `${SMOOTHED}${index}`,
      name,
      symbol: "none",
      color,
      lineStyle: { width: 2, type: lineStyleType(Math.floor(index / 8)) },
      data: x.map((position, point) => [position, smoothed[point] ?? null]),
    }];
  });
}

/** Start of the ids of smoothed lines. */
const SMOOTHED = "smoothed ";

/** Return true if each point has a symbol. */
function hasSymbols(series: Series): boolean {
  return series.draw === "points" || (series.smoothed === undefined && series.x.length <= MAX_SYMBOLS);
}

/** Data item of a point. An isolated point always has a symbol: a line would not show it. */
function dataPoint(series: Series, x: number, point: number) {
  const value = [x, series.y[point] ?? null] as [number, number | null];
  const isIsolated = value[1] !== null && (series.y[point - 1] ?? null) === null && (series.y[point + 1] ?? null) === null;
  return isIsolated && !hasSymbols(series) ? { value, symbol: "circle", symbolSize: 5 } : value;
}

/** Upper bound of vertical marks; only the first has a name. */
const MAX_MARKS = 40;

/** Marks at values of both axes. */
function lineMarks(plot: Plot, colours: Palette): Record<string, unknown> {
  return {
    silent: true,
    symbol: "none",
    lineStyle: { color: colours.muted, type: "dashed", width: 1 },
    data: [
      ...(plot.levels ?? []).map(({ name, value }) => ({
        yAxis: value,
        label: {
          formatter: `${name} ${formatOnScale(value, plot.y)}`,
          color: colours.text,
          position: "insideEndTop",
        },
      })),
      ...(plot.marks ?? []).slice(0, MAX_MARKS).map(({ name, value }, index) => ({
        xAxis: value,
        lineStyle: { color: colours.text },
        label: { show: index === 0, formatter: name, color: colours.text, position: "insideEndTop", rotate: 90 },
      })),
    ],
  };
}

/** Shaded ranges; an edge keeps a short one visible. */
function shadedSpans(spans: NonNullable<Plot["spans"]>, colours: Palette): Record<string, unknown> {
  return {
    silent: true,
    label: { color: colours.text, position: "insideTop" },
    itemStyle: { color: colours.series[5], opacity: 0.16, borderColor: colours.series[5], borderWidth: 1 },
    data: spans.map(({ name, from, to }) => [{ name, xAxis: from }, { xAxis: to }]),
  };
}

interface HoveredPoint {
  seriesName: string;
  seriesId?: string;
  dataIndex: number;
  value: [number, number | null];
}

/** Upper bound of lines in a tooltip; the largest values are listed. */
const MAX_TOOLTIP_LINES = 16;

function tooltipOf(plot: Plot, items: unknown[]): HTMLElement {
  const points = (items as HoveredPoint[]).filter((item) => item.value[1] !== null);
  const [first] = points;
  if (first === undefined) return tooltipContent("", []);
  const name = plot.series.find((series) => series.name === first.seriesName)?.names?.[first.dataIndex];
  if (name !== undefined) {
    return tooltipContent(name, [
      first.seriesName,
      `${plot.x.name}: ${formatOnScale(first.value[0], plot.x)}`,
      `${plot.y.name}: ${formatOnScale(first.value[1] ?? 0, plot.y)}`,
    ]);
  }
  const largest = [...points].sort((a, b) => (b.value[1] ?? 0) - (a.value[1] ?? 0)).slice(0, MAX_TOOLTIP_LINES);
  const hiddenCount = points.length - largest.length;
  return tooltipContent(`${plot.x.name}: ${formatOnScale(first.value[0], plot.x)}`, [
    ...largest.map((item) => `${item.seriesName}${item.seriesId?.startsWith(SMOOTHED) === true ? ", smoothed" : ""}: ${formatOnScale(item.value[1] ?? 0, plot.y)}`),
    ...(hiddenCount > 0 ? [`and ${hiddenCount} more`] : []),
  ]);
}
