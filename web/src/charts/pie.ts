import type { Pie } from "../api/report";
import { percent } from "../base/quantities";
import type { Palette } from "../base/palette";
import { base, legend, tip, tooltip } from "./common";
import type { EChartsOption, LegendOption } from "./echarts";

const NARROW_PX = 360;

/** With more slices than this their names and shares stand in a list beside them. */
const MOST_AROUND = 4;

export function pieLabel(block: Pie): string {
  const parts = block.slices.map((slice) => `${slice.name} ${percent(slice.share_ratio, 1)}`);
  return `Pie chart: ${block.title}. Shares of ${block.share_of}: ${parts.join(", ")}.`;
}

export function pieOption(block: Pie, colours: Palette): EChartsOption {
  const many = block.slices.length > MOST_AROUND;
  const shares = new Map(block.slices.map((slice) => [slice.name, slice.share_ratio]));
  const names = {
    ...legend(colours, [...shares.keys()]),
    formatter: (name: string) => `${percent(shares.get(name) ?? null, 1)}  ${name}`,
  };
  return {
    ...base(colours, pieLabel(block)),
    aria: { enabled: true, label: { description: pieLabel(block) }, decal: { show: true } },
    tooltip: {
      ...tooltip(colours),
      trigger: "item",
      formatter: (item: unknown) => {
        const { name } = item as { name: string };
        return tip(name, [`${percent(shares.get(name) ?? null, 2)} of ${block.share_of}`]);
      },
    },
    legend: {
      ...names,
      type: many ? "scroll" : "plain",
      ...(many ? { orient: "vertical", right: 0, top: "middle", bottom: "auto" } : {}),
    },
    series: [
      {
        type: "pie",
        radius: many ? ["40%", "68%"] : ["46%", "76%"],
        center: many ? ["25%", "50%"] : ["50%", "45%"],
        itemStyle: { borderColor: colours.surface, borderWidth: 2 },
        label: { show: false },
        data: block.slices.map((slice) => ({ name: slice.name, value: slice.share_ratio })),
      },
    ],
    ...(many ? { media: [{ query: { maxWidth: NARROW_PX }, option: below(names) }] } : {}),
  };
}

/** Where there is no room beside the pie, names and shares stand below it. */
function below(names: LegendOption): EChartsOption {
  return {
    legend: { ...names, type: "plain", orient: "horizontal", left: "center", right: "auto", top: "auto", bottom: 0, itemGap: 6 },
    series: [{ type: "pie", radius: ["32%", "56%"], center: ["50%", "34%"] }],
  };
}
