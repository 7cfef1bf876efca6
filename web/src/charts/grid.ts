// Rows and columns of values as colours.
import type { Heatmap } from "../api/report";
import { MISSING, duration, percent } from "../base/quantities";
import { VIRIDIS, type Palette } from "../base/palette";
import { base, tip, tooltip, withSymbol } from "./common";
import type { EChartsOption } from "./echarts";
import { onAxis, type Scale } from "./plot";

export interface Grid {
  kind: "grid";
  title: string;
  rows: string[];
  columns: string[];
  /** What a column is: "step". */
  column: string;
  values: (number | null)[][];
  value: Scale;
  note?: string | null;
}

const ROW_HEIGHT = 17;
const MOST_HEIGHT = 1400;

export function gridHeight(rows: number): number {
  return Math.min(MOST_HEIGHT, 96 + Math.max(44, ROW_HEIGHT * rows));
}

/** Smallest and largest value; both 0 where there are none. */
export function bounds(values: readonly (readonly (number | null)[])[]): [number, number] {
  let [least, largest] = [Infinity, -Infinity];
  for (const row of values) {
    for (const value of row) {
      if (value === null) continue;
      if (value < least) least = value;
      if (value > largest) largest = value;
    }
  }
  return least > largest ? [0, 0] : [least, largest];
}

export function gridLabel(block: Grid): string {
  const [least, largest] = bounds(block.values);
  return (
    `Heat map: ${block.title}. ${block.rows.length} rows by ${block.columns.length} columns, ` +
    `${block.value.name} from ${onAxis(least, block.value)} to ${onAxis(largest, block.value)}.`
  );
}

export function gridOption(block: Grid, colours: Palette): EChartsOption {
  const [least, largest] = bounds(block.values);
  return cells(colours, {
    label: gridLabel(block),
    rows: block.rows,
    columns: block.columns,
    column: block.column,
    values: block.values,
    least: block.value.min ?? least,
    largest: block.value.max ?? largest,
    shown: (value) => onAxis(value, block.value),
    told: (_, column, value) => [
      value === null ? MISSING : onAxis(value, block.value),
      `${block.column} ${block.columns[column] ?? ""}`,
    ],
  });
}

export function heatmapLabel(block: Heatmap): string {
  const means = block.rows.map((row) => {
    const known = row.percent.filter((value) => value !== null);
    const mean = known.reduce((sum, value) => sum + value, 0) / Math.max(known.length, 1);
    return `${row.name} ${percent(mean / 100)}`;
  });
  return `Heat map: ${block.title}. Means over time: ${means.join(", ")}.`;
}

/** Metrics over time, each row a percentage of what is its most. */
export function heatmapOption(block: Heatmap, colours: Palette): EChartsOption {
  const count = Math.max(...block.rows.map((row) => row.percent.length));
  const time = (column: number): string => duration(1e9 * column * block.column_s);
  return cells(colours, {
    label: heatmapLabel(block),
    rows: block.rows.map((row) => row.name),
    columns: Array.from({ length: count }, (_, column) => time(column)),
    column: "",
    values: block.rows.map((row) => row.percent),
    least: 0,
    largest: 100,
    shown: (value) => percent(value / 100),
    told: (place, column, value) => {
      const row = block.rows[place];
      const real = value === null ? MISSING : withSymbol((value / 100) * (row?.full ?? 0), 2, row?.unit ?? "");
      return [real, `${time(column)} to ${time(column + 1)} after the start`];
    },
  });
}

interface Cells {
  label: string;
  rows: string[];
  columns: string[];
  column: string;
  values: (number | null)[][];
  least: number;
  largest: number;
  shown: (value: number) => string;
  told: (row: number, column: number, value: number | null) => string[];
}

function cells(colours: Palette, of: Cells): EChartsOption {
  const crowded = ROW_HEIGHT * of.rows.length > MOST_HEIGHT;
  return {
    ...base(colours, of.label),
    tooltip: {
      ...tooltip(colours),
      trigger: "item",
      formatter: (item: unknown) => {
        const [column, row, value] = (item as { value: [number, number, number | null] }).value;
        return tip(of.rows[row] ?? "", of.told(row, column, value));
      },
    },
    grid: { left: 18 + Math.min(138, 12 + 7 * Math.max(0, ...of.rows.map((name) => name.length))), right: 16, top: 6, bottom: 76 },
    xAxis: {
      type: "category",
      data: of.columns,
      name: of.column,
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
      data: of.rows,
      axisLabel: {
        color: colours.muted,
        width: 138,
        overflow: "truncate",
        ...(crowded ? { hideOverlap: true } : { interval: 0 }),
      },
      axisLine: { lineStyle: { color: colours.line } },
      axisTick: { show: false },
    },
    visualMap: {
      type: "continuous",
      min: of.least,
      max: of.largest > of.least ? of.largest : of.least + 1,
      calculable: false,
      orient: "horizontal",
      left: "center",
      bottom: 0,
      itemWidth: 12,
      itemHeight: 180,
      text: [of.shown(of.largest), of.shown(of.least)],
      formatter: (value: unknown) => of.shown(Number(value)),
      textStyle: { color: colours.muted },
      inRange: { color: VIRIDIS },
    },
    series: [
      {
        type: "heatmap",
        progressive: 0,
        itemStyle: { borderWidth: 0 },
        data: of.values.flatMap((row, place) =>
          row.flatMap((value, column) => (value === null ? [] : [[column, place, value]])),
        ),
      },
    ],
  };
}
