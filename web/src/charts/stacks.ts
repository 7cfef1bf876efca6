// Stacked bars; with offsets they form a waterfall.
import type { Palette } from "../base/palette";
import { axisOption, baseOption, legendOption, tooltipContent, tooltipOption } from "./common";
import type { EChartsOption } from "./echarts";
import { formatOnScale, formatTick, type Scale } from "./plot";

export interface Stacks {
  kind: "stacks";
  title: string;
  /** Names of the bars, and the name of their dimension. */
  categories: string[];
  categoryName: string;
  /** Names on the axis; default true. Without them, the tooltip and the data table name the bars. */
  hasNames?: boolean;
  value: Scale;
  parts: { name: string; values: (number | null)[]; colour?: (colours: Palette) => string }[];
  /** Horizontal bars, for long names and few bars. */
  horizontal: boolean;
  /** Start of each bar, if not zero. */
  offsets?: number[];
  note?: string | null;
}

const ROW_HEIGHT = 26;

export function stacksHeight(block: Stacks): number {
  return block.horizontal ? Math.max(170, 96 + ROW_HEIGHT * block.categories.length) : 320;
}

export function stacksLabel(block: Stacks): string {
  const descriptions = block.categories.slice(0, 24).map((category, index) => {
    const parts = block.parts.flatMap(({ name, values }) => {
      const value = values[index] ?? null;
      return value === null ? [] : [`${name} ${formatOnScale(value, block.value)}`];
    });
    return `${category}: ${parts.join(", ")}`;
  });
  const hiddenCount = block.categories.length - descriptions.length;
  const more = hiddenCount > 0 ? `; ${hiddenCount} more` : "";
  return `Stacked bars: ${block.title}, ${block.value.name}. ${descriptions.join("; ")}${more}.`;
}

export function stacksOption(block: Stacks, colours: Palette): EChartsOption {
  const names = {
    type: "category",
    data: block.categories,
    ...axisOption(colours, block.horizontal ? "" : block.categoryName),
    nameGap: 30,
    inverse: block.horizontal,
    axisLabel: {
      show: block.hasNames !== false,
      color: colours.muted,
      hideOverlap: true,
      ...(block.horizontal ? { width: nameWidth(block.categories), overflow: "truncate", interval: 0 } : {}),
    },
    splitLine: { show: false },
  };
  const values = {
    type: "value",
    ...axisOption(colours, block.value.name),
    nameGap: block.horizontal ? 30 : 58,
    axisLabel: {
      color: colours.muted,
      hideOverlap: true,
      formatter: (value: number) => formatTick(value, block.value),
    },
    ...(block.value.max === undefined ? {} : { max: block.value.max }),
  };
  const offsets = block.offsets;
  // A single part needs no name other than that of the axis.
  const hasLegend = block.parts.length > 1 || block.parts[0]?.name !== block.value.name;
  return {
    ...baseOption(colours, stacksLabel(block)),
    aria: { enabled: true, label: { description: stacksLabel(block) }, decal: { show: true } },
    tooltip: {
      ...tooltipOption(colours),
      trigger: "axis",
      axisPointer: { type: "shadow" },
      formatter: (items: unknown) => {
        const index = (items as { dataIndex: number }[])[0]?.dataIndex ?? 0;
        return tooltipContent(`${block.categoryName} ${block.categories[index] ?? ""}`, block.parts.flatMap((part) => {
          const value = part.values[index] ?? null;
          return value === null ? [] : [`${part.name}: ${formatOnScale(value, block.value)}`];
        }));
      },
    },
    ...(hasLegend ? { legend: legendOption(colours, block.parts.map((part) => part.name)) } : {}),
    grid: { left: block.horizontal ? nameWidth(block.categories) + 18 : 76, right: 30, top: 14, bottom: hasLegend ? 82 : 50 },
    ...(block.horizontal ? { xAxis: values, yAxis: names } : { xAxis: names, yAxis: values }),
    series: [
      ...(offsets === undefined
        ? []
        : [{ ...barSeries("", offsets), itemStyle: { color: "transparent", decal: { symbol: "none" } }, silent: true }]),
      ...block.parts.map(({ name, values, colour }) => ({ ...barSeries(name, values), ...(colour === undefined ? {} : { color: colour(colours) }) })),
    ],
  } as EChartsOption;
}

/** Width for names at the left, in pixels. */
function nameWidth(names: readonly string[]): number {
  return Math.min(160, 12 + 7 * Math.max(0, ...names.map((name) => name.length)));
}

function barSeries(name: string, data: (number | null)[]): Record<string, unknown> {
  return { type: "bar", name, stack: "all", data, barMaxWidth: 46, barCategoryGap: "22%" };
}
