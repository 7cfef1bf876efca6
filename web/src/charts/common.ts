// Options that all charts share.
import type { Mark } from "../api/report";
import type { Palette } from "../base/palette";
import { figure } from "../base/quantities";
import type { EChartsOption, LegendOption, TooltipOption } from "./echarts";

// As in the style sheet: charts measure text for their layout.
const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif';

const LINE_STYLES = ["solid", "dashed", "dotted"] as const;

/** Dash pattern of the series at an index: series differ without colour as well. */
export function lineStyleType(index: number): (typeof LINE_STYLES)[number] {
  return LINE_STYLES[index % LINE_STYLES.length] ?? "solid";
}

/** Content of a tooltip. Text nodes only: names are never parsed as HTML. */
export function tooltipContent(title: string, lines: string[]): HTMLElement {
  const box = document.createElement("div");
  const head = document.createElement("strong");
  head.textContent = title;
  box.append(head);
  for (const line of lines) {
    const row = document.createElement("div");
    row.textContent = line;
    box.append(row);
  }
  return box;
}

/** Format a value of a payload with the symbol of its unit. */
export function withSymbol(value: number, digits: number, symbol: string): string {
  return `${figure(value, digits)}${symbol === "" || symbol === "%" ? symbol : ` ${symbol}`}`;
}

export function baseOption(colours: Palette, label: string): EChartsOption {
  return {
    color: colours.series,
    animation: false,
    textStyle: { color: colours.text, fontFamily: FONT },
    aria: { enabled: true, label: { description: label } },
  };
}

export function tooltipOption(colours: Palette): TooltipOption {
  return {
    confine: true,
    backgroundColor: colours.surface,
    borderColor: colours.line,
    textStyle: { color: colours.text, fontSize: 12 },
    extraCssText: "white-space: normal; max-width: 26rem; overflow-wrap: anywhere;",
  };
}

export function legendOption(colours: Palette, names: string[]): LegendOption {
  return {
    type: "scroll",
    bottom: 0,
    itemWidth: 16,
    itemHeight: 10,
    data: names,
    textStyle: { color: colours.text, width: 190, overflow: "truncate" },
    pageTextStyle: { color: colours.text },
    pageIconColor: colours.text,
    pageIconInactiveColor: colours.line,
    tooltip: { show: true },
  };
}

/** Axis with a name next to it. */
export function axisOption(colours: Palette, name: string): Record<string, unknown> {
  return {
    name,
    nameLocation: "middle",
    nameTextStyle: { color: colours.muted },
    axisLabel: { color: colours.muted, hideOverlap: true },
    axisLine: { lineStyle: { color: colours.line } },
    splitLine: { lineStyle: { color: colours.line, opacity: 0.6 } },
  };
}

/** Dashed marks with name and value, at x or y positions. */
export function markLine(
  marks: Mark[],
  axis: "xAxis" | "yAxis",
  colours: Palette,
  digits: number,
  unit: string,
): Record<string, unknown> {
  return {
    silent: true,
    symbol: "none",
    lineStyle: { color: colours.text, type: "dashed", width: 1 },
    data: marks.map((mark, index) => ({
      [axis]: mark.value,
      label: {
        formatter: `${mark.name} ${withSymbol(mark.value, digits, unit)}`,
        color: colours.text,
        position: "end",
        distance: axis === "xAxis" ? 4 + 13 * (index % 3) : 6,
        ...(axis === "yAxis" ? { width: 100, overflow: "break" } : {}),
      },
    })),
  };
}
