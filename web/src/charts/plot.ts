// Values over time, over steps, or over another quantity: lines, steps and points.
import { inUnit, percent } from "../base/quantities";
import type { Palette } from "../base/palette";
import { axis, base, legend, tip, tooltip } from "./common";
import type { EChartsOption } from "./echarts";

/** What an axis measures. */
export interface Scale {
  name: string;
  unit: string;
  min?: number;
  max?: number;
  log?: boolean;
  /** Names of the places 0, 1, …, where the axis has no numbers. */
  places?: string[];
}

export interface Series {
  name: string;
  x: number[];
  y: (number | null)[];
  /** A line unless said otherwise; a step holds its value until the next. */
  draw?: "line" | "step" | "points";
  filled?: boolean;
  /** What each point is called. */
  names?: string[];
}

export interface Plot {
  kind: "plot";
  title: string;
  x: Scale;
  y: Scale;
  series: Series[];
  /** Lines across, from the left to the right. */
  levels?: { name: string; value: number }[];
  note?: string | null;
}

const STYLES = ["solid", "dashed", "dotted"] as const;
const SYMBOLS = ["circle", "diamond", "triangle", "rect"] as const;
/** Series with more points than this are drawn without a sign at each of them. */
const MOST_SIGNS = 60;

/** A value as the axis says it: times in few digits, a place by its name. */
export function onAxis(value: number, scale: Scale): string {
  if (scale.places !== undefined) return scale.places[value] ?? "";
  if (value === 0) return "0";

  return inUnit(value, scale.unit);
}

const EXTREMES = { least: Infinity, largest: -Infinity };

function extremes(values: readonly (number | null)[]): typeof EXTREMES {
  return values.reduce(
    (found, value) =>
      value === null
        ? found
        : { least: Math.min(found.least, value), largest: Math.max(found.largest, value) },
    EXTREMES,
  );
}

export function plotLabel(plot: Plot): string {
  const parts = plot.series.slice(0, 12).map((series) => {
    const { least, largest } = extremes(series.y);
    return least > largest
      ? `${series.name}: no values`
      : `${series.name} from ${onAxis(least, plot.y)} to ${onAxis(largest, plot.y)}`;
  });
  const more = plot.series.length > parts.length ? `; ${plot.series.length - parts.length} more` : "";
  return `${plot.title}: ${plot.y.name} over ${plot.x.name}. ${parts.join("; ")}${more}.`;
}

/** Distance of ticks, where round decimal numbers are not round in the unit that is shown. */
export function tickInterval(scale: Scale, span: number): number | undefined {
  if (scale.places !== undefined || scale.log === true || !(span > 0)) return undefined;
  if (scale.unit === "bytes") return 2 ** Math.ceil(Math.log2(span / 6));
  if (scale.unit !== "ns" || span < 120e9) return undefined;
  const seconds = [15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400];
  return (seconds.find((each) => span / 1e9 / each <= 8) ?? 172_800) * 1e9;
}

function scaleOption(scale: Scale, values: number[], colours: Palette): Record<string, unknown> {
  const { least, largest } = extremes(values);
  const interval = tickInterval(scale, (scale.max ?? largest) - (scale.min ?? Math.min(0, least)));
  return {
    type: scale.log === true ? "log" : "value",
    ...axis(colours, scale.name),
    ...(scale.min === undefined ? {} : { min: scale.min }),
    ...(scale.max === undefined ? {} : { max: scale.max }),
    ...(interval === undefined ? {} : { interval }),
    ...(scale.places === undefined ? {} : { minInterval: 1 }),
    axisLabel: {
      color: colours.muted,
      hideOverlap: true,
      formatter: (value: number) => tick(value, scale),
    },
  };
}

/** A value beside its tick: ratios on an axis are whole percents. */
export function tick(value: number, scale: Scale): string {
  return scale.unit === "ratio" ? percent(value) : onAxis(value, scale);
}

export function plotOption(plot: Plot, colours: Palette): EChartsOption {
  const many = plot.series.length > 1;
  const values = plot.series.flatMap((series) => series.y.filter((y) => y !== null));
  const points = plot.series.every((series) => series.draw === "points");
  return {
    ...base(colours, plotLabel(plot)),
    tooltip: {
      ...tooltip(colours),
      trigger: points ? "item" : "axis",
      axisPointer: { type: "line", lineStyle: { color: colours.muted } },
      formatter: (given: unknown) => pointed(plot, Array.isArray(given) ? given : [given]),
    },
    ...(many ? { legend: legend(colours, plot.series.map((series) => series.name)) } : {}),
    grid: { left: 76, right: 26, top: 18, bottom: many ? 82 : 50 },
    xAxis: {
      ...scaleOption(plot.x, plot.series.flatMap((series) => series.x), colours),
      nameGap: 30,
      ...(plot.x.log === true ? {} : { splitLine: { show: false } }),
    },
    yAxis: {
      ...(plot.y.log === true ? {} : { min: 0 }),
      ...scaleOption(plot.y, values, colours),
      nameGap: 58,
    },
    series: plot.series.map((series, place) => ({
      type: series.draw === "points" ? ("scatter" as const) : ("line" as const),
      name: series.name,
      ...(series.draw === "step" ? { step: "end" as const } : {}),
      symbol: isSigned(series) ? (SYMBOLS[place % SYMBOLS.length] ?? "circle") : "none",
      symbolSize: series.draw === "points" ? 8 : 4,
      showSymbol: true,
      connectNulls: false,
      lineStyle: { width: 1.6, type: STYLES[Math.floor(place / 8) % STYLES.length] ?? "solid" },
      ...(series.filled === true ? { areaStyle: { opacity: 0.18 } } : {}),
      data: series.x.map((x, point) => pointOf(series, x, point)),
      ...(place === 0 && plot.levels !== undefined ? { markLine: levels(plot, colours) } : {}),
    })),
  };
}

/** Whether each point has a sign of its own. */
function isSigned(series: Series): boolean {
  return series.draw === "points" || series.x.length <= MOST_SIGNS;
}

/** A point; one without neighbours has a sign in any case, or nothing of it would be seen. */
function pointOf(series: Series, x: number, point: number) {
  const value = [x, series.y[point] ?? null] as [number, number | null];
  const alone = value[1] !== null && (series.y[point - 1] ?? null) === null && (series.y[point + 1] ?? null) === null;
  return alone && !isSigned(series) ? { value, symbol: "circle", symbolSize: 5 } : value;
}

function levels(plot: Plot, colours: Palette): Record<string, unknown> {
  return {
    silent: true,
    symbol: "none",
    lineStyle: { color: colours.muted, type: "dashed", width: 1 },
    data: (plot.levels ?? []).map(({ name, value }) => ({
      yAxis: value,
      label: {
        formatter: `${name} ${onAxis(value, plot.y)}`,
        color: colours.text,
        position: "insideEndTop",
      },
    })),
  };
}

interface Pointed {
  seriesName: string;
  dataIndex: number;
  value: [number, number | null];
}

/** Most lines of a tooltip; with more series than this the largest values are told. */
const MOST_LINES = 16;

function pointed(plot: Plot, items: unknown[]): HTMLElement {
  const found = (items as Pointed[]).filter((item) => item.value[1] !== null);
  const [first] = found;
  if (first === undefined) return tip("", []);
  const name = plot.series.find((series) => series.name === first.seriesName)?.names?.[first.dataIndex];
  if (name !== undefined) {
    return tip(name, [
      first.seriesName,
      `${plot.x.name}: ${onAxis(first.value[0], plot.x)}`,
      `${plot.y.name}: ${onAxis(first.value[1] ?? 0, plot.y)}`,
    ]);
  }
  const largest = [...found].sort((a, b) => (b.value[1] ?? 0) - (a.value[1] ?? 0)).slice(0, MOST_LINES);
  const left = found.length - largest.length;
  return tip(`${plot.x.name}: ${onAxis(first.value[0], plot.x)}`, [
    ...largest.map((item) => `${item.seriesName}: ${onAxis(item.value[1] ?? 0, plot.y)}`),
    ...(left > 0 ? [`and ${left} smaller`] : []),
  ]);
}
