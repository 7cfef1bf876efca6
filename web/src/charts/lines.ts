import type { Lines } from "../api/report";
import type { Palette } from "../base/palette";
import { duration, figure } from "../base/quantities";
import { axisOption, baseOption, legendOption, lineStyleType, tooltipContent, tooltipOption, withSymbol } from "./common";
import type { EChartsOption } from "./echarts";


export function linesLabel(block: Lines): string {
  const parts = block.lines.map(
    (line) => `${line.name} from ${figure(minimum(line.y), block.digits)} to ${figure(-minimum(line.y.map((y) => -y)), block.digits)}`,
  );
  return `Line chart: ${block.title}, ${block.y_axis} in ${block.unit}. ${parts.join("; ")}.`;
}

function minimum(values: number[]): number {
  return values.reduce((low, value) => Math.min(low, value), Infinity);
}

export function linesOption(block: Lines, colours: Palette): EChartsOption {
  const hasManyLines = block.lines.length > 1;
  return {
    ...baseOption(colours, linesLabel(block)),
    tooltip: {
      ...tooltipOption(colours),
      trigger: "item",
      formatter: (item: unknown) => {
        const { seriesName, value } = item as { seriesName: string; value: [number, number] };
        return tooltipContent(seriesName, [
          withSymbol(value[1], block.digits, block.unit),
          `${duration(1e9 * value[0])} after the start of the first step`,
        ]);
      },
    },
    ...(hasManyLines ? { legend: legendOption(colours, block.lines.map((line) => line.name)) } : {}),
    grid: { left: 64, right: 24, top: 20, bottom: hasManyLines ? 78 : 48 },
    xAxis: { type: "value", ...axisOption(colours, block.x_axis), nameGap: 28, splitLine: { show: false } },
    yAxis: { type: "value", min: 0, ...axisOption(colours, `${block.y_axis} (${block.unit})`), nameGap: 46 },
    series: block.lines.map((line, index) => ({
      type: "line" as const,
      name: line.name,
      showSymbol: true,
      symbol: "circle",
      symbolSize: 3,
      lineStyle: { width: 1, type: lineStyleType(index) },
      data: line.x.map((x, point) => [x, line.y[point] ?? 0]),
    })),
  };
}
