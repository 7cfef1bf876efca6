import type { Pie } from "../api/report";
import type { Palette } from "../base/palette";
import { percent } from "../base/quantities";
import { shortName } from "../base/short_name";
import { elideMiddle } from "../base/text";
import { baseOption, legendOption, tooltipContent, tooltipOption } from "./common";
import type { EChartsOption, LegendOption } from "./echarts";

const NARROW_PX = 360;

/** With more slices, names and shares are listed next to the pie. */
const MAX_LABELS_BELOW = 4;
/** Characters of a name in the legend: the list has half of the width. */
const MAX_NAME = 20;

export function pieLabel(block: Pie): string {
  const parts = block.slices.map((slice) => `${slice.name} ${percent(slice.share_ratio, 1)}`);
  return `Pie chart: ${block.title}. Shares of ${block.share_of}: ${parts.join(", ")}.`;
}

export function pieOption(block: Pie, colours: Palette): EChartsOption {
  const hasLegendList = block.slices.length > MAX_LABELS_BELOW;
  const shares = new Map(block.slices.map((slice) => [slice.name, slice.share_ratio]));
  const legendNames = {
    ...legendOption(colours, [...shares.keys()]),
    formatter: (name: string) => `${percent(shares.get(name) ?? null, 1)}  ${elideMiddle(shortName(name), MAX_NAME)}`,
  };
  return {
    ...baseOption(colours, pieLabel(block)),
    aria: { enabled: true, label: { description: pieLabel(block) }, decal: { show: true } },
    tooltip: {
      ...tooltipOption(colours),
      trigger: "item",
      formatter: (item: unknown) => {
        const { name } = item as { name: string };
        return tooltipContent(name, [`${percent(shares.get(name) ?? null, 2)} of ${block.share_of}`]);
      },
    },
    legend: {
      ...legendNames,
      type: hasLegendList ? "scroll" : "plain",
      ...(hasLegendList ? { orient: "vertical", right: 0, top: "middle", bottom: "auto" } : {}),
    },
    series: [
      {
        type: "pie",
        radius: hasLegendList ? ["30%", "54%"] : ["46%", "76%"],
        center: hasLegendList ? ["22%", "50%"] : ["50%", "45%"],
        itemStyle: { borderColor: colours.surface, borderWidth: 2 },
        label: { show: false },
        data: block.slices.map((slice) => ({ name: slice.name, value: slice.share_ratio })),
      },
    ],
    ...(hasLegendList ? { media: [{ query: { maxWidth: NARROW_PX }, option: narrowOption(legendNames) }] } : {}),
  };
}

/** Layout for narrow containers: names and shares below the pie. */
function narrowOption(legendNames: LegendOption): EChartsOption {
  return {
    legend: { ...legendNames, type: "plain", orient: "horizontal", left: "center", right: "auto", top: "auto", bottom: 0, itemGap: 4 },
    series: [{ type: "pie", radius: ["20%", "40%"], center: ["50%", "20%"] }],
  };
}
