// Parts of several wholes as stacked bars; with steps down and up it is a waterfall.
import type { Palette } from "../base/palette";
import { axis, base, legend, tip, tooltip } from "./common";
import type { EChartsOption } from "./echarts";
import { onAxis, tick, type Scale } from "./plot";

export interface Stacks {
  kind: "stacks";
  title: string;
  /** What the bars are called, and what they are. */
  bars: string[];
  bar: string;
  value: Scale;
  parts: { name: string; values: (number | null)[] }[];
  /** Names at the left, bars to the right: for long names and few bars. */
  across: boolean;
  /** Where each bar begins, when not at zero. */
  from?: number[];
  note?: string | null;
}

const ROW_HEIGHT = 26;

export function stacksHeight(block: Stacks): number {
  return block.across ? Math.max(170, 96 + ROW_HEIGHT * block.bars.length) : 320;
}

export function stacksLabel(block: Stacks): string {
  const bars = block.bars.slice(0, 24).map((bar, place) => {
    const parts = block.parts.flatMap(({ name, values }) => {
      const value = values[place] ?? null;
      return value === null ? [] : [`${name} ${onAxis(value, block.value)}`];
    });
    return `${bar}: ${parts.join(", ")}`;
  });
  const more = block.bars.length > bars.length ? `; ${block.bars.length - bars.length} more` : "";
  return `Stacked bars: ${block.title}, ${block.value.name}. ${bars.join("; ")}${more}.`;
}

export function stacksOption(block: Stacks, colours: Palette): EChartsOption {
  const names = {
    type: "category",
    data: block.bars,
    ...axis(colours, block.across ? "" : block.bar),
    nameGap: 30,
    inverse: block.across,
    axisLabel: {
      color: colours.muted,
      hideOverlap: true,
      ...(block.across ? { width: nameWidth(block.bars), overflow: "truncate", interval: 0 } : {}),
    },
    splitLine: { show: false },
  };
  const values = {
    type: "value",
    ...axis(colours, block.value.name),
    nameGap: block.across ? 30 : 58,
    axisLabel: {
      color: colours.muted,
      hideOverlap: true,
      formatter: (value: number) => tick(value, block.value),
    },
    ...(block.value.max === undefined ? {} : { max: block.value.max }),
  };
  const below = block.from;
  return {
    ...base(colours, stacksLabel(block)),
    aria: { enabled: true, label: { description: stacksLabel(block) }, decal: { show: true } },
    tooltip: {
      ...tooltip(colours),
      trigger: "axis",
      axisPointer: { type: "shadow" },
      formatter: (given: unknown) => {
        const place = (given as { dataIndex: number }[])[0]?.dataIndex ?? 0;
        return tip(`${block.bar} ${block.bars[place] ?? ""}`, block.parts.flatMap(({ name, values: all }) => {
          const value = all[place] ?? null;
          return value === null ? [] : [`${name}: ${onAxis(value, block.value)}`];
        }));
      },
    },
    legend: legend(colours, block.parts.map((part) => part.name)),
    grid: { left: block.across ? nameWidth(block.bars) + 18 : 76, right: 30, top: 14, bottom: 82 },
    ...(block.across ? { xAxis: values, yAxis: names } : { xAxis: names, yAxis: values }),
    series: [
      ...(below === undefined
        ? []
        : [{ ...bars("", below), itemStyle: { color: "transparent", decal: { symbol: "none" } }, silent: true }]),
      ...block.parts.map((part) => bars(part.name, part.values)),
    ],
  } as EChartsOption;
}

/** Room for names at the left, in pixels. */
function nameWidth(names: readonly string[]): number {
  return Math.min(160, 12 + 7 * Math.max(0, ...names.map((name) => name.length)));
}

function bars(name: string, data: (number | null)[]): Record<string, unknown> {
  return { type: "bar", name, stack: "all", data, barMaxWidth: 46, barCategoryGap: "22%" };
}
