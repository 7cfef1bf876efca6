import type { BoxPlot, Boxes } from "../api/report";
import type { Palette } from "../base/palette";
import { count, fixed } from "../base/quantities";
import { words } from "../base/text";
import { axisOption, baseOption, legendOption, markLine, tooltipContent, tooltipOption, withSymbol } from "./common";
import type { EChartsOption } from "./echarts";

const P95 = "p95";
const EXTREMES = "minimum and maximum";
const BOX = "quartiles and whiskers";

export function boxesLabel(block: Boxes): string {
  const parts = Object.entries(block.boxes).map(
    ([name, box]) => `${name}: median ${fixed(box.p50, 1)}, p95 ${fixed(box.p95, 1)}`,
  );
  return `Box plots: ${block.title}, ${block.axis}. ${parts.join("; ")}.`;
}

function tooltipLines(box: BoxPlot): string[] {
  const fields = ["max", "whisker_high", "p95", "p75", "p50", "p25", "whisker_low", "min"] as const;
  const rows = fields.map((field) => `${words(field)}: ${withSymbol(box[field], 2, "%")}`);
  return [...rows, `samples: ${count(box.count)}`];
}

export function boxesOption(block: Boxes, colours: Palette): EChartsOption {
  const names = Object.keys(block.boxes);
  const boxes = Object.values(block.boxes);
  const hasManyBoxes = boxes.length > 6;
  const [first, second, third] = colours.series;
  return {
    ...baseOption(colours, boxesLabel(block)),
    tooltip: {
      ...tooltipOption(colours),
      trigger: "item",
      formatter: (item: unknown) => {
        const index = (item as { dataIndex: number }).dataIndex % boxes.length;
        const box = boxes[index];
        return box === undefined ? "" : tooltipContent(names[index] ?? "", tooltipLines(box));
      },
    },
    legend: legendOption(colours, [BOX, P95, EXTREMES]),
    grid: { left: 56, right: block.marks.length > 0 ? 116 : 24, top: 20, bottom: hasManyBoxes ? 112 : 70 },
    xAxis: {
      type: "category",
      data: names,
      ...axisOption(colours, ""),
      axisLabel: { color: colours.muted, interval: 0, rotate: hasManyBoxes ? 35 : 0 },
      splitLine: { show: false },
    },
    yAxis: { type: "value", min: 0, max: 100, ...axisOption(colours, block.axis), nameGap: 36 },
    series: [
      {
        type: "boxplot",
        name: BOX,
        itemStyle: { borderColor: first ?? "", color: `${first ?? "#888888"}44`, borderWidth: 1.5 },
        boxWidth: [8, 46],
        data: boxes.map((b) => [b.whisker_low, b.p25, b.p50, b.p75, b.whisker_high]),
        markLine: markLine(block.marks, "yAxis", colours, 0, "%"),
      },
      {
        type: "scatter",
        name: P95,
        symbol: "diamond",
        symbolSize: 10,
        itemStyle: { color: second ?? "" },
        data: boxes.map((b, category) => [category, b.p95]),
      },
      {
        type: "scatter",
        name: EXTREMES,
        symbol: "emptyCircle",
        symbolSize: 6,
        itemStyle: { color: third ?? "" },
        data: [...boxes.map((b, category) => [category, b.min]), ...boxes.map((b, category) => [category, b.max])],
      },
    ],
  };
}
