import type { Bars, Histogram } from "../api/report";
import type { Palette } from "../base/palette";
import { count, figure } from "../base/quantities";
import { axisOption, baseOption, legendOption, lineStyleType, markLine, tooltipContent, tooltipOption, withSymbol } from "./common";
import type { EChartsOption } from "./echarts";


export function histogramLabel(block: Histogram): string {
  const parts = block.series.map((bars) => `${bars.name}: ${describeCounts(bars, block.counted)}`);
  const marks = block.marks.map((mark) => `${mark.name} ${figure(mark.value, block.digits)}`);
  const summary = [...parts, ...marks].join("; ");
  return `Histogram: ${block.title}, ${block.axis} in ${block.unit}. ${summary}.`;
}

/** Describe how many values a series has, and how many are outside the bins. */
export function describeCounts(bars: Bars, noun: string): string {
  const inside = bars.counts.reduce((sum, count) => sum + count, 0);
  const all = inside + bars.below_count + bars.above_count;
  const outside = [
    bars.below_count > 0 ? `${count(bars.below_count)} below the bins` : "",
    bars.above_count > 0 ? `${count(bars.above_count)} above the bins` : "",
  ].filter(Boolean);
  return [`${count(all)} ${noun}`, ...outside].join(", ");
}

/** Outline of the bins: each count from its left edge, the last one also at the right edge. */
function outline(edges: number[], counts: number[]): [number, number][] {
  const points = counts.map((count, bin): [number, number] => [edges[bin] ?? 0, count]);
  return [...points, [edges[counts.length] ?? 0, counts[counts.length - 1] ?? 0]];
}

export function histogramOption(block: Histogram, colours: Palette): EChartsOption {
  const hasManySeries = block.series.length > 1;
  return {
    ...baseOption(colours, histogramLabel(block)),
    tooltip: {
      ...tooltipOption(colours),
      trigger: "axis",
      axisPointer: { type: "line" },
      formatter: (items: unknown) => {
        const points = items as { seriesName: string; dataIndex: number }[];
        const bin = Math.min(points[0]?.dataIndex ?? 0, block.edges.length - 2);
        const [low, high] = [block.edges[bin] ?? 0, block.edges[bin + 1] ?? 0];
        const range = `${figure(low, block.digits)} to ${withSymbol(high, block.digits, block.unit)}`;
        const counts = new Map(block.series.map((bars) => [bars.name, bars.counts[bin] ?? 0]));
        return tooltipContent(
          range,
          points.map(({ seriesName }) =>
            `${seriesName}: ${count(counts.get(seriesName) ?? 0)} ${block.counted}`,
          ),
        );
      },
    },
    ...(hasManySeries ? { legend: legendOption(colours, block.series.map((bars) => bars.name)) } : {}),
    grid: { left: 64, right: 24, top: block.marks.length > 0 ? 56 : 20, bottom: hasManySeries ? 78 : 48 },
    xAxis: {
      type: "value",
      min: block.edges[0] ?? 0,
      max: block.edges[block.edges.length - 1] ?? 1,
      ...axisOption(colours, `${block.axis} (${block.unit})`),
      nameGap: 28,
      axisLabel: { color: colours.muted, hideOverlap: true, showMinLabel: false, showMaxLabel: false },
      splitLine: { show: false },
    },
    yAxis: { type: "value", ...axisOption(colours, block.counted), nameGap: 46, minInterval: 1 },
    series: block.series.map((bars, index) => ({
      type: "line" as const,
      name: bars.name,
      step: "end" as const,
      symbol: "none",
      lineStyle: { width: 1.5, type: lineStyleType(index) },
      areaStyle: { opacity: 0.55 / block.series.length },
      data: outline(block.edges, bars.counts),
      ...(index === 0
        ? { markLine: markLine(block.marks, "xAxis", colours, block.digits, block.unit) }
        : {}),
    })),
  };
}
