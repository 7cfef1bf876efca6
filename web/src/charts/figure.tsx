// Chart with its title, notes, and its data as a table.
import { useMemo, useState } from "preact/hooks";

import type { Boxes, Heatmap, Histogram, Lines, Pie } from "../api/report";
import type { Palette } from "../base/palette";
import { duration } from "../base/quantities";
import { Table } from "../widgets/table";
import { boxesLabel, boxesOption } from "./boxes";
import { Chart } from "./chart";
import type { EChartsOption } from "./echarts";
import { figureTable } from "./figure_table";
import { gridHeight, gridLabel, gridOption, heatmapLabel, heatmapOption, type Grid } from "./grid";
import { describeCounts, histogramLabel, histogramOption } from "./histogram";
import { linesLabel, linesOption } from "./lines";
import { pieLabel, pieOption } from "./pie";
import { plotLabel, plotOption, type Plot } from "./plot";
import { stacksHeight, stacksLabel, stacksOption, type Stacks } from "./stacks";

export type Figure = Boxes | Heatmap | Histogram | Lines | Pie | Plot | Stacks | Grid;

interface FigureDescription {
  label: string;
  height: number;
  notes: string[];
  option: (colours: Palette) => EChartsOption;
}

/** Describe a figure: label, height, notes and chart options. */
export function describeFigure(block: Figure): FigureDescription {
  switch (block.kind) {
    case "pie":
      return {
        label: pieLabel(block),
        height: 300,
        notes: [`Shares are of ${block.share_of}.`],
        option: (colours) => pieOption(block, colours),
      };
    case "histogram":
      return {
        label: histogramLabel(block),
        height: 320,
        notes: [
          `${block.series.map((bars) => `${bars.name}: ${describeCounts(bars, block.counted)}`).join("; ")}.`,
        ],
        option: (colours) => histogramOption(block, colours),
      };
    case "boxes":
      return {
        label: boxesLabel(block),
        height: 340,
        notes: ["Boxes show quartiles; whiskers extend to 1.5 times the interquartile range."],
        option: (colours) => boxesOption(block, colours),
      };
    case "heatmap":
      return {
        label: heatmapLabel(block),
        height: gridHeight(block.rows.length),
        notes: [
          `Starts ${block.start}. Each column is the mean of ${duration(1e9 * block.column_s)}. Ratios are ` +
            "relative to 100%, other metrics to the maximum of their row. Blank: no samples.",
        ],
        option: (colours) => heatmapOption(block, colours),
      };
    case "lines":
      return {
        label: linesLabel(block),
        height: 300,
        notes: optionalNote(block.note),
        option: (colours) => linesOption(block, colours),
      };
    case "plot":
      return {
        label: plotLabel(block),
        height: 320,
        notes: optionalNote(block.note),
        option: (colours) => plotOption(block, colours),
      };
    case "stacks":
      return {
        label: stacksLabel(block),
        height: stacksHeight(block),
        notes: optionalNote(block.note),
        option: (colours) => stacksOption(block, colours),
      };
    case "grid":
      return {
        label: gridLabel(block),
        height: gridHeight(block.rows.length),
        notes: optionalNote(block.note),
        option: (colours) => gridOption(block, colours),
      };
  }
}

function optionalNote(note: string | null | undefined): string[] {
  return note === null || note === undefined ? [] : [note];
}

/** Figure with its title as the caption. */
export function FigureView({ block }: { block: Figure }) {
  return (
    <figure class={block.kind}>
      <figcaption>{block.title}</figcaption>
      <FigureBody block={block} />
    </figure>
  );
}

interface FigureBodyProps {
  block: Figure;
  lazy?: boolean;
  onRange?: ((from: number, to: number) => void) | undefined;
}

/** Figure without its title. */
export function FigureBody({ block, lazy = false, onRange }: FigureBodyProps) {
  const { label, height, notes, option } = useMemo(() => describeFigure(block), [block]);
  const more = "more" in block ? block.more : null;
  return (
    <>
      <Chart option={option} label={label} height={height} renderer={renderer(block)} lazy={lazy} onRange={onRange} />
      {[...notes, ...(more === null ? [] : [`… ${more}.`])].map((note) => (
        <p key={note} class="muted">{note}</p>
      ))}
      <FigureData block={block} />
    </>
  );
}

function renderer(block: Figure): "canvas" | "svg" {
  return block.kind === "heatmap" || block.kind === "grid" ? "canvas" : "svg";
}

/** The table is rendered when it is opened: heat maps have thousands of cells. */
function FigureData({ block }: { block: Figure }) {
  const [open, setOpen] = useState(false);
  return (
    <details onToggle={(event) => { setOpen(event.currentTarget.open); }}>
      <summary>Data</summary>
      {open ? <Table caption={`${block.title}, data`} {...figureTable(block)} /> : null}
    </details>
  );
}
