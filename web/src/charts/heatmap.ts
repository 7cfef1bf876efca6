import type { Heatmap } from "../api/report";
import { MISSING, clock, number } from "../base/format";
import { VIRIDIS, type Palette } from "../base/palette";
import { base, tip, tooltip } from "./common";
import type { EChartsOption } from "./echarts";

const ROW_HEIGHT = 17;

export function heatmapHeight(block: Heatmap): number {
  return Math.max(170, 92 + ROW_HEIGHT * block.rows.length);
}

export function heatmapLabel(block: Heatmap): string {
  const means = block.rows.map((row) => {
    const known = row.percent.filter((value) => value !== null);
    const mean = known.reduce((sum, value) => sum + value, 0) / Math.max(known.length, 1);
    return `${row.name} ${number(mean, 0)} %`;
  });
  return `Heat map: ${block.title}. Means over time: ${means.join(", ")}.`;
}

export function heatmapOption(block: Heatmap, colours: Palette): EChartsOption {
  const columns = Math.max(...block.rows.map((row) => row.percent.length));
  return {
    ...base(colours, heatmapLabel(block)),
    tooltip: {
      ...tooltip(colours),
      trigger: "item",
      formatter: (item: unknown) => {
        const [column, place, value] = (item as { value: [number, number, number | null] }).value;
        const row = block.rows[place];
        if (row === undefined) return "";
        const real = value === null ? MISSING : number((value / 100) * row.full, 2);
        return tip(row.name, [
          `${real} ${row.unit}`,
          `${clock(column * block.column_s)} to ${clock((column + 1) * block.column_s)} after the start`,
        ]);
      },
    },
    grid: { left: 150, right: 16, top: 6, bottom: 74 },
    xAxis: {
      type: "category",
      data: Array.from({ length: columns }, (_, column) => clock(column * block.column_s)),
      axisLabel: { color: colours.muted, hideOverlap: true },
      axisLine: { lineStyle: { color: colours.line } },
      axisTick: { show: false },
    },
    yAxis: {
      type: "category",
      inverse: true,
      data: block.rows.map((row) => row.name),
      axisLabel: { color: colours.muted, interval: 0, width: 138, overflow: "truncate" },
      axisLine: { lineStyle: { color: colours.line } },
      axisTick: { show: false },
    },
    visualMap: {
      type: "continuous",
      min: 0,
      max: 100,
      calculable: true,
      orient: "horizontal",
      left: "center",
      bottom: 0,
      itemWidth: 12,
      itemHeight: 160,
      text: ["100 %", "0 %"],
      textStyle: { color: colours.muted },
      inRange: { color: VIRIDIS },
    },
    series: [
      {
        type: "heatmap",
        progressive: 0,
        itemStyle: { borderWidth: 0 },
        data: block.rows.flatMap((row, place) =>
          row.percent.flatMap((value, column) => (value === null ? [] : [[column, place, value]])),
        ),
      },
    ],
  };
}
