// Chart with its title, notes, and its data as a table.
import { useMemo, useState } from "preact/hooks";

import type { Boxes, Heatmap, Histogram, Lines, Pie } from "../api/report";
import type { Palette } from "../base/palette";
import { duration } from "../base/quantities";
import { Table } from "../widgets/table";
import { boxesLabel, boxesOption } from "./boxes";
import { Chart, type PointHandler } from "./chart";
import type { EChartsOption } from "./echarts";
import { figureTable } from "./figure_table";
import { gridHeight, gridLabel, gridOption, heatmapLabel, heatmapOption, type Grid } from "./grid";
import { describeCounts, histogramLabel, histogramOption } from "./histogram";
import { linesLabel, linesOption } from "./lines";
import { pieLabel, pieOption } from "./pie";
import { plotLabel, plotOption, type Plot } from "./plot";
import { stripLabel, stripOption, type StepStrip } from "./step_strip";
import { stacksHeight, stacksLabel, stacksOption, type Stacks } from "./stacks";

export type Figure = Boxes | Heatmap | Histogram | Lines | Pie | Plot | Stacks | StepStrip | Grid;

/** Accessible label, height, notes and chart options of a kind of figures. */
interface FigureKind<Block> {
  label: (block: Block) => string;
  height: (block: Block) => number;
  notes: (block: Block) => string[];
  option: (block: Block, colours: Palette) => EChartsOption;
}

const ownNote = ({ note }: { note?: string | null }): string[] => (note === null || note === undefined ? [] : [note]);

const KINDS: { [Kind in Figure["kind"]]: FigureKind<Extract<Figure, { kind: Kind }>> } = {
  pie: { label: pieLabel, height: () => 300, notes: (pie) => [`Shares are of ${pie.share_of}.`], option: pieOption },
  histogram: {
    label: histogramLabel,
    height: () => 320,
    notes: ({ series, counted }) => [`${series.map((bars) => `${bars.name}: ${describeCounts(bars, counted)}`).join("; ")}.`],
    option: histogramOption,
  },
  boxes: {
    label: boxesLabel,
    height: () => 340,
    notes: () => ["Boxes show quartiles; whiskers extend to 1.5 times the interquartile range."],
    option: boxesOption,
  },
  heatmap: {
    label: heatmapLabel,
    height: ({ rows }) => gridHeight(rows.length),
    notes: ({ start, column_ns }) => [
      `Starts ${start}. Each column is the mean of ${duration(column_ns)}. Ratios are ` +
        "relative to 100%, other metrics to the maximum of their row. Blank: no samples.",
    ],
    option: heatmapOption,
  },
  lines: { label: linesLabel, height: () => 300, notes: ownNote, option: linesOption },
  plot: { label: plotLabel, height: ({ isSmall, height = isSmall === true ? 180 : 320 }) => height, notes: ownNote, option: plotOption },
  stacks: { label: stacksLabel, height: stacksHeight, notes: ownNote, option: stacksOption },
  step_strip: { label: stripLabel, height: ({ height }) => height, notes: ownNote, option: stripOption },
  grid: { label: gridLabel, height: ({ rows }) => gridHeight(rows.length), notes: ownNote, option: gridOption },
};

/** Describe a figure: label, height, notes and chart options. */
export function describeFigure(block: Figure) {
  const { label, height, notes, option } = KINDS[block.kind] as FigureKind<Figure>;
  return { label: label(block), height: height(block), notes: notes(block), option: (colours: Palette) => option(block, colours) };
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
  onPoint?: PointHandler | undefined;
}

/** Figure without its title. */
export function FigureBody({ block, lazy = false, onRange, onPoint }: FigureBodyProps) {
  const { label, height, notes, option } = useMemo(() => describeFigure(block), [block]);
  const more = "more" in block ? block.more : null;
  return (
    <>
      <Chart option={option} label={label} height={height} renderer={renderer(block)} lazy={lazy} onRange={onRange} onPoint={onPoint} />
      {[...notes, ...(more === null ? [] : [`… ${more}.`])].map((note) => (
        <p key={note} class="muted">{note}</p>
      ))}
      <FigureData block={block} />
    </>
  );
}

function renderer(block: Figure): "canvas" | "svg" {
  return block.kind === "heatmap" || block.kind === "grid" || block.kind === "step_strip" ? "canvas" : "svg";
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
