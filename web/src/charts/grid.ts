// Heat map of a matrix of values.
import type { Heatmap } from "../api/report";
import { VIRIDIS, type Palette } from "../base/palette";
import { MISSING, duration, inUnit, percent } from "../base/quantities";
import { baseOption, tooltipContent, tooltipOption } from "./common";
import type { EChartsOption } from "./echarts";
import { formatOnScale, type Scale } from "./plot";

export interface Grid {
  kind: "grid";
  title: string;
  rows: string[];
  columns: string[];
  /** Name of the column dimension: "step". */
  column: string;
  values: (number | null)[][];
  value: Scale;
  /** Columns of each row that have a cross, as their values are not finite. */
  marks?: number[][];
  note?: string | null;
}

const ROW_HEIGHT = 17;
const MAX_HEIGHT_PX = 1400;

export function gridHeight(rows: number): number {
  return Math.min(MAX_HEIGHT_PX, 96 + Math.max(44, ROW_HEIGHT * rows));
}

/** Minimum and maximum; both 0 for an empty matrix. */
export function extent(values: readonly (readonly (number | null)[])[]): [number, number] {
  let [min, max] = [Infinity, -Infinity];
  for (const row of values) {
    for (const value of row) {
      if (value === null) continue;
      if (value < min) min = value;
      if (value > max) max = value;
    }
  }
  return min > max ? [0, 0] : [min, max];
}

export function gridLabel(block: Grid): string {
  const [min, max] = extent(block.values);
  return (
    `Heat map: ${block.title}. ${block.rows.length} rows by ${block.columns.length} columns, ` +
    `${block.value.name} from ${formatOnScale(min, block.value)} to ${formatOnScale(max, block.value)}.`
  );
}

export function gridOption(block: Grid, colours: Palette): EChartsOption {
  const [min, max] = extent(block.values);
  return matrixOption(colours, {
    label: gridLabel(block),
    rows: block.rows,
    columns: block.columns,
    column: block.column,
    values: block.values,
    min: block.value.min ?? (block.value.log === true ? smallestPositive(block.values) : min),
    max: block.value.max ?? max,
    log: block.value.log === true,
    marks: block.marks ?? [],
    format: (value) => formatOnScale(value, block.value),
    describe: (row, column, value) => [
      block.marks?.[row]?.includes(column) === true ? "NaN or infinite elements" : value === null ? MISSING : formatOnScale(value, block.value),
      `${block.column} ${block.columns[column] ?? ""}`,
    ],
  });
}

/** Smallest value above zero, where a logarithmic scale begins; 1 without one. */
export function smallestPositive(values: readonly (readonly (number | null)[])[]): number {
  const positive = values.map((row) => row.map((value) => (value !== null && value > 0 ? value : null)));
  return extent(positive)[0] || 1;
}

export function heatmapLabel(block: Heatmap): string {
  const means = block.rows.map((row) => {
    const samples = row.shade_ratio.filter((value) => value !== null);
    const mean = samples.reduce((sum, value) => sum + value, 0) / Math.max(samples.length, 1);
    return `${row.name} ${percent(mean)}`;
  });
  return `Heat map: ${block.title}. Means over time: ${means.join(", ")}.`;
}

/** Metrics over time, each row in percent of its maximum. */
export function heatmapOption(block: Heatmap, colours: Palette): EChartsOption {
  const count = Math.max(...block.rows.map((row) => row.shade_ratio.length));
  const time = (column: number): string => (column === 0 ? "0" : duration(column * block.column_ns));
  return matrixOption(colours, {
    label: heatmapLabel(block),
    rows: block.rows.map((row) => row.name),
    columns: Array.from({ length: count }, (_, column) => time(column)),
    column: "",
    values: block.rows.map((row) => row.shade_ratio),
    min: 0,
    max: 1,
    format: (value) => percent(value),
    describe: (rowIndex, column, value) => {
      const row = block.rows[rowIndex];
      const text = inUnit(value === null ? null : value * (row?.full ?? 0), row?.unit ?? "");
      return [text, `${time(column)} to ${time(column + 1)} after the start`];
    },
  });
}

interface Matrix {
  label: string;
  rows: string[];
  columns: string[];
  column: string;
  values: (number | null)[][];
  min: number;
  max: number;
  /** Logarithmic colours; values below the minimum have its colour. */
  log?: boolean;
  marks?: number[][];
  format: (value: number) => string;
  describe: (row: number, column: number, value: number | null) => string[];
}

/** Longest name beside a row. */
const MAX_NAME = 22;

/** Cut the middle out of a long name: names of layers differ at their ends. */
export function shortenName(name: string): string {
  return name.length <= MAX_NAME ? name : `${name.slice(0, 6)}…${name.slice(8 - MAX_NAME)}`;
}

function matrixOption(colours: Palette, matrix: Matrix): EChartsOption {
  const toScale = (value: number): number => (matrix.log === true ? Math.log10(Math.max(value, matrix.min)) : value);
  const [low, high] = [toScale(matrix.min), toScale(matrix.max)];
  const isCrowded = ROW_HEIGHT * matrix.rows.length > MAX_HEIGHT_PX;
  return {
    ...baseOption(colours, matrix.label),
    tooltip: {
      ...tooltipOption(colours),
      trigger: "item",
      formatter: (item: unknown) => {
        const [column, row] = (item as { value: [number, number] }).value;
        return tooltipContent(matrix.rows[row] ?? "", matrix.describe(row, column, matrix.values[row]?.[column] ?? null));
      },
    },
    grid: { left: 18 + Math.min(138, 12 + 7 * Math.max(0, ...matrix.rows.map((name) => name.length))), right: 16, top: 6, bottom: 76 },
    xAxis: {
      type: "category",
      data: matrix.columns,
      name: matrix.column,
      nameLocation: "middle",
      nameGap: 23,
      nameTextStyle: { color: colours.muted },
      axisLabel: { color: colours.muted, hideOverlap: true },
      axisLine: { lineStyle: { color: colours.line } },
      axisTick: { show: false },
    },
    yAxis: {
      type: "category",
      inverse: true,
      data: matrix.rows,
      axisLabel: {
        color: colours.muted,
        formatter: shortenName,
        ...(isCrowded ? { hideOverlap: true } : { interval: 0 }),
      },
      axisLine: { lineStyle: { color: colours.line } },
      axisTick: { show: false },
    },
    visualMap: {
      type: "continuous",
      min: low,
      max: high > low ? high : low + 1,
      seriesIndex: 0,
      calculable: false,
      orient: "horizontal",
      left: "center",
      bottom: 0,
      itemWidth: 12,
      itemHeight: 180,
      text: [matrix.format(matrix.max), matrix.format(matrix.min)],
      formatter: (value: unknown) => matrix.format(matrix.log === true ? 10 ** Number(value) : Number(value)),
      textStyle: { color: colours.muted },
      inRange: { color: VIRIDIS },
    },
    series: [
      {
        type: "heatmap",
        progressive: 0,
        itemStyle: { borderWidth: 0 },
        data: matrix.values.flatMap((row, rowIndex) =>
          row.flatMap((value, column) => (value === null ? [] : [[column, rowIndex, toScale(value)]])),
        ),
      },
      {
        type: "scatter",
        symbol: "path://M-1,-1L1,1M-1,1L1,-1",
        symbolSize: 7,
        itemStyle: { color: "transparent", borderColor: colours.text, borderWidth: 1.2 },
        data: (matrix.marks ?? []).flatMap((marked, rowIndex) => marked.map((column) => [column, rowIndex])),
      },
    ],
  };
}
