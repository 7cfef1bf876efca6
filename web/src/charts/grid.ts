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
    min: block.value.min ?? min,
    max: block.value.max ?? max,
    format: (value) => formatOnScale(value, block.value),
    describe: (_, column, value) => [
      value === null ? MISSING : formatOnScale(value, block.value),
      `${block.column} ${block.columns[column] ?? ""}`,
    ],
  });
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
  const time = (column: number): string => duration(column * block.column_ns);
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
  format: (value: number) => string;
  describe: (row: number, column: number, value: number | null) => string[];
}

function matrixOption(colours: Palette, matrix: Matrix): EChartsOption {
  const isCrowded = ROW_HEIGHT * matrix.rows.length > MAX_HEIGHT_PX;
  return {
    ...baseOption(colours, matrix.label),
    tooltip: {
      ...tooltipOption(colours),
      trigger: "item",
      formatter: (item: unknown) => {
        const [column, row, value] = (item as { value: [number, number, number | null] }).value;
        return tooltipContent(matrix.rows[row] ?? "", matrix.describe(row, column, value));
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
        width: 138,
        overflow: "truncate",
        ...(isCrowded ? { hideOverlap: true } : { interval: 0 }),
      },
      axisLine: { lineStyle: { color: colours.line } },
      axisTick: { show: false },
    },
    visualMap: {
      type: "continuous",
      min: matrix.min,
      max: matrix.max > matrix.min ? matrix.max : matrix.min + 1,
      calculable: false,
      orient: "horizontal",
      left: "center",
      bottom: 0,
      itemWidth: 12,
      itemHeight: 180,
      text: [matrix.format(matrix.max), matrix.format(matrix.min)],
      formatter: (value: unknown) => matrix.format(Number(value)),
      textStyle: { color: colours.muted },
      inRange: { color: VIRIDIS },
    },
    series: [
      {
        type: "heatmap",
        progressive: 0,
        itemStyle: { borderWidth: 0 },
        data: matrix.values.flatMap((row, rowIndex) =>
          row.flatMap((value, column) => (value === null ? [] : [[column, rowIndex, value]])),
        ),
      },
    ],
  };
}
