// A chart with its title, what it leaves out, and the numbers behind it as a table.
import { useMemo, useState } from "preact/hooks";

import type { Boxes, Heatmap, Histogram, Lines, Pie } from "../api/report";
import { clock } from "../base/format";
import type { Palette } from "../base/palette";
import { boxesLabel, boxesOption } from "../charts/boxes";
import { Chart } from "../charts/chart";
import type { EChartsOption } from "../charts/echarts";
import { heatmapHeight, heatmapLabel, heatmapOption } from "../charts/heatmap";
import { counted, histogramLabel, histogramOption } from "../charts/histogram";
import { linesLabel, linesOption } from "../charts/lines";
import { pieLabel, pieOption } from "../charts/pie";
import { Table } from "../widgets/table";
import { figureTable } from "./figure_table";

export type Figure = Boxes | Heatmap | Histogram | Lines | Pie;

interface Drawing {
  label: string;
  height: number;
  notes: string[];
  option: (colours: Palette) => EChartsOption;
}

function drawing(block: Figure): Drawing {
  switch (block.kind) {
    case "pie":
      return {
        label: pieLabel(block),
        height: 300,
        notes: [`Shares of ${block.share_of}.`],
        option: (colours) => pieOption(block, colours),
      };
    case "histogram":
      return {
        label: histogramLabel(block),
        height: 320,
        notes: [
          `${block.series.map((bars) => `${bars.name}: ${counted(bars, block.counted)}`).join("; ")}.`,
        ],
        option: (colours) => histogramOption(block, colours),
      };
    case "boxes":
      return {
        label: boxesLabel(block),
        height: 340,
        notes: ["Boxes are quartiles, whiskers reach 1.5 interquartile ranges; all samples."],
        option: (colours) => boxesOption(block, colours),
      };
    case "heatmap":
      return {
        label: heatmapLabel(block),
        height: heatmapHeight(block),
        notes: [
          `From ${block.start} on; each column is the mean of ${clock(block.column_s)}. Ratios are ` +
            "shares of 100 %, all else of the row's largest value. Blank: not sampled.",
        ],
        option: (colours) => heatmapOption(block, colours),
      };
    case "lines":
      return {
        label: linesLabel(block),
        height: 300,
        notes: block.note === null ? [] : [block.note],
        option: (colours) => linesOption(block, colours),
      };
  }
}

export function FigureView({ block }: { block: Figure }) {
  const { label, height, notes, option } = useMemo(() => drawing(block), [block]);
  const more = block.kind === "pie" ? null : block.more;
  return (
    <figure class={block.kind}>
      <figcaption>{block.title}</figcaption>
      <Chart
        option={option}
        label={label}
        height={height}
        renderer={block.kind === "heatmap" ? "canvas" : "svg"}
      />
      {[...notes, ...(more === null ? [] : [`… ${more}.`])].map((note) => (
        <p key={note} class="muted">{note}</p>
      ))}
      <Numbers block={block} />
    </figure>
  );
}

/** The table is made when somebody opens it: heat maps have thousands of cells. */
function Numbers({ block }: { block: Figure }) {
  const [open, setOpen] = useState(false);
  return (
    <details onToggle={(event) => { setOpen(event.currentTarget.open); }}>
      <summary>Numbers</summary>
      {open ? <Table caption={`${block.title}, as numbers`} {...figureTable(block)} /> : null}
    </details>
  );
}
