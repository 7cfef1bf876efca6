// Steps over their numbers: stacked phases, moving median, outliers, and their histogram on the same axis.
import type { Palette } from "../base/palette";
import { count, countOf } from "../base/quantities";
import { axisOption, baseOption, legendOption, tooltipContent, tooltipOption } from "./common";
import type { EChartsOption } from "./echarts";
import { formatOnScale, type Scale } from "./plot";

export interface StepStrip {
  kind: "step_strip";
  title: string;
  /** First step of each group, then the one after the last. */
  steps: number[];
  value: Scale;
  /** Parts of the mean step of each group; `key` chooses the colour. */
  parts: { key: string; name: string; values: number[] }[];
  median: number[];
  /** Outliers, and what they are. */
  outliers: { step: number; value: number; key: string; text: string }[];
  /** Histogram at the right; empty without one. */
  edges: number[];
  counts: number[];
  height: number;
  /** Only these parts are coloured; all are if absent. */
  highlight?: readonly string[] | undefined;
  note?: string | null;
}

/** Colours of phases in the palette; the same on all strips. */
const COLOURS: Record<string, number> = {
  data_wait: 1, h2d: 3, forward: 0, loss: 7, backward: 2, optimizer: 4, dispatch: 3, execution: 0,
  communication: 5, checkpoint: 3, compilation: 7, garbage_collection: 5, other: 6,
  kernel: 0, memcpy: 3, memset: 3, runtime: 4, data_loader: 1, cpu_exec: 2,
};

/** Colour of a part; where only some are coloured, the time outside of all phases has no grey. */
export function partColour(key: string, colours: Palette, highlight: readonly string[] | undefined): string {
  if (highlight === undefined) return phaseColour(key, colours);
  if (!highlight.includes(key)) return colours.line;
  return key === "other" ? colours.series[0] ?? colours.text : phaseColour(key, colours);
}

export function phaseColour(key: string, { series, muted }: Palette): string {
  return series[COLOURS[key] ?? 6] ?? muted;
}

/** Lower strips have no legend and no names of axes. */
const MIN_LABELLED_HEIGHT = 260;
const MARGINS = { labelled: { top: 18, bottom: 82, left: 76 }, plain: { top: 10, bottom: 26, left: 62 } };
const HISTOGRAM_PX = 120;
/** A logarithmic axis of more powers of ten has only these as ticks. */
const MAX_FINE_DECADES = 5;
/** Steps above the histogram and this multiple of the largest median are clipped. */
const MAX_MEDIANS = 2;
const OUTLIERS = "outliers";
const MEDIAN = "moving median";
const HISTOGRAM = "steps per bin";

/** Sum of the first parts at each group. */
export function cumulate(parts: StepStrip["parts"]): number[][] {
  const sums: number[][] = [];
  for (const { values } of parts) {
    const before = sums[sums.length - 1];
    sums.push(values.map((value, index) => value + (before?.[index] ?? 0)));
  }
  return sums;
}

/** Ends of the axis of durations. */
export function stripExtent({ median, outliers, edges, value }: StepStrip, totals: readonly number[]): [number, number] {
  const largest = Math.max(...totals, ...outliers.map((outlier) => outlier.value), ...edges.slice(-1));
  if (value.log === true) return [10 ** Math.floor(Math.log10(Math.max(10, Math.min(...totals)) / 10)), largest * 1.2];
  return [0, Math.min(largest, Math.max(MAX_MEDIANS * Math.max(...median), ...edges.slice(-1))) * 1.05];
}

export function stripLabel(strip: StepStrip): string {
  const last = strip.steps.length - 1;
  return `${strip.title}: steps ${strip.steps[0] ?? 0} to ${(strip.steps[last] ?? 1) - 1}, ${strip.parts.map(({ name }) => name).join(", ")}; `
    + `median from ${formatOnScale(Math.min(...strip.median), strip.value)} to ${formatOnScale(Math.max(...strip.median), strip.value)}; ${countOf(strip.outliers.length, "outlier")} marked.`;
}

export function stripOption(strip: StepStrip, colours: Palette): EChartsOption {
  const sums = cumulate(strip.parts);
  const isLabelled = strip.height >= MIN_LABELLED_HEIGHT;
  const margins = MARGINS[isLabelled ? "labelled" : "plain"];
  const histogramPx = strip.counts.length === 0 ? 0 : HISTOGRAM_PX;
  const colourOf = (key: string): string => partColour(key, colours, strip.highlight);
  const name = (text: string): string => (isLabelled ? text : "");
  const [low, high] = stripExtent(strip, sums[sums.length - 1] ?? strip.median);
  const isLog = strip.value.log === true;
  const durations = {
    type: isLog ? "log" : "value",
    min: low,
    max: high,
    ...axisOption(colours, name(strip.value.name)),
    nameGap: 58,
    axisLabel: {
      color: colours.muted, hideOverlap: true,
      formatter: (value: number) => formatOnScale(value, strip.value),
      ...(isLog ? { customValues: logTicks(low, high) } : { showMaxLabel: false }),
    },
    ...(isLabelled ? {} : { splitNumber: 3 }),
  };
  const steps = { min: strip.steps[0], max: strip.steps[strip.steps.length - 1] };
  const line = (name: string, values: readonly number[], rest: Record<string, unknown>) => ({
    type: "line", name, step: "end", symbol: "none", data: [...values, values[values.length - 1] ?? 0].map((y, index) => [strip.steps[index], y]), ...rest,
  });
  return {
    ...baseOption(colours, stripLabel(strip)),
    tooltip: {
      ...tooltipOption(colours),
      trigger: "axis",
      axisPointer: { type: "line", lineStyle: { color: colours.muted } },
      formatter: (items: unknown) => tooltipOf(strip, items as Hovered[]),
    },
    legend: !isLabelled ? { show: false } : { ...legendOption(colours, [...strip.parts.map(({ name }) => name), MEDIAN, ...(strip.outliers.length === 0 ? [] : [OUTLIERS])]), selectedMode: false },
    grid: [{ ...margins, right: histogramPx + (histogramPx === 0 ? 22 : 40) }, { ...margins, left: "auto", right: 26, width: histogramPx }],
    xAxis: [
      { type: "value", ...steps, ...axisOption(colours, name("step")), nameGap: 30, minInterval: 1, splitLine: { show: false }, axisLabel: { color: colours.muted, hideOverlap: true, formatter: (value: number) => count(value) } },
      { type: "value", gridIndex: 1, show: histogramPx > 0, min: 0, max: Math.max(1, ...strip.counts), ...axisOption(colours, name("measured steps")), nameGap: 30, splitNumber: 2, splitLine: { show: false }, axisLabel: { color: colours.muted, hideOverlap: true, showMinLabel: false, formatter: (value: number) => count(value) } },
    ],
    yAxis: [durations, { ...durations, gridIndex: 1, show: histogramPx > 0, name: "", axisLabel: { show: false } }],
    // Sums are drawn one in front of the other, which is a stack on a logarithmic axis, too.
    series: [
      ...strip.parts.map(({ key, name: title }, index) =>
        line(title, sums[index] ?? [], { z: 2 + (strip.parts.length - index) / 100, color: colourOf(key), lineStyle: { width: 0 }, areaStyle: { opacity: 1, origin: "start" }, emphasis: { disabled: true } })),
      line(MEDIAN, strip.median, { z: 4, color: colours.text, lineStyle: { width: 1.6 } }),
      {
        type: "scatter", name: OUTLIERS, z: 5, color: colours.surface, symbolSize: 9, cursor: "pointer",
        itemStyle: { borderColor: colours.text, borderWidth: 1.4 },
        data: strip.outliers.map(({ step, value, key }) => ({ value: [step + 0.5, Math.min(value, high)], symbol: value > high ? "triangle" : "circle", itemStyle: { color: phaseColour(key, colours) } })),
      },
      { type: "scatter", name: HISTOGRAM, xAxisIndex: 1, yAxisIndex: 1, symbol: "rect", color: colours.muted, data: bars(strip, strip.height - margins.top - margins.bottom, low, high, isLog) },
    ],
  } as EChartsOption;
}

/** 1, 2 and 5 times the powers of ten within an axis. */
export function logTicks(low: number, high: number): number[] {
  const [first, last] = [Math.floor(Math.log10(low)), Math.ceil(Math.log10(high))];
  const powers = Array.from({ length: last - first + 1 }, (_, index) => 10 ** (first + index));
  const ticks = powers.flatMap((power) => (powers.length > MAX_FINE_DECADES ? [power] : [power, 2 * power, 5 * power]));
  return ticks.filter((tick) => low <= tick && tick <= high);
}

/** Bars of the histogram: rectangles of as many pixels as steps and durations take. */
function bars({ edges, counts }: StepStrip, height: number, low: number, high: number, isLog: boolean) {
  const scale = (value: number): number => (isLog ? Math.log(Math.max(value, low)) : value);
  const pixels = height / (scale(high) - scale(low));
  const largest = Math.max(1, ...counts);
  return counts.flatMap((number, bin) => {
    const [from, to] = [edges[bin] ?? 0, edges[bin + 1] ?? 0];
    const middle = isLog ? Math.sqrt(from * to) : (from + to) / 2;
    return number === 0 ? [] : [{ value: [number / 2, middle], bin, symbolSize: [(HISTOGRAM_PX * number) / largest, Math.max(1, pixels * (scale(to) - scale(from)))] }];
  });
}

interface Hovered {
  seriesName: string;
  dataIndex: number;
  data: { bin?: number };
}

function tooltipOf(strip: StepStrip, items: Hovered[]): HTMLElement {
  const text = (value: number): string => formatOnScale(value, strip.value);
  const bin = items.find(({ seriesName }) => seriesName === HISTOGRAM)?.data.bin;
  if (bin !== undefined) return tooltipContent(`${text(strip.edges[bin] ?? 0)} to ${text(strip.edges[bin + 1] ?? 0)}`, [countOf(strip.counts[bin] ?? 0, "step")]);
  const outliers = items.flatMap(({ seriesName, dataIndex }) => (seriesName === OUTLIERS ? [strip.outliers[dataIndex]?.text ?? ""] : []));
  const group = items.find(({ seriesName }) => seriesName === MEDIAN)?.dataIndex;
  if (group === undefined) return tooltipContent(outliers[0] ?? "", outliers.slice(1));
  const index = Math.min(group, strip.median.length - 1);
  const [from, to] = [strip.steps[index] ?? 0, (strip.steps[index + 1] ?? 0) - 1];
  return tooltipContent(from === to ? `step ${count(from)}` : `steps ${count(from)} to ${count(to)}, mean`, [
    ...strip.parts.map(({ name, values }) => `${name}: ${text(values[index] ?? 0)}`).reverse(),
    `${MEDIAN}: ${text(strip.median[index] ?? 0)}`,
    ...outliers,
  ]);
}

/** Index of the outlier that a click on a series hits; null for others. */
export function outlierAt(seriesName: string | undefined, index: number | undefined): number | null {
  return seriesName === OUTLIERS && index !== undefined ? index : null;
}
