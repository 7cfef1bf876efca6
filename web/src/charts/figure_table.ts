// The numbers of a chart as a table, for those who cannot or would rather not look at it.
import type { Boxes, Heatmap, Histogram, Lines, Pie } from "../api/report";
import type { Cell, Heading } from "../widgets/table";
import type { Grid } from "./grid";
import { bounds } from "./grid";
import { onAxis, type Plot, type Scale } from "./plot";
import type { Stacks } from "./stacks";

interface Numbers {
  columns: Heading[];
  rows: Cell[][];
}

export function figureTable(block: Boxes | Heatmap | Histogram | Lines | Pie | Plot | Stacks | Grid): Numbers {
  switch (block.kind) {
    case "pie":
      return {
        columns: [words("name"), figures("share", "%", 2)],
        rows: block.slices.map((slice) => [slice.name, 100 * slice.share_ratio]),
      };
    case "histogram":
      return {
        columns: [
          figures("from", block.unit, block.digits),
          figures("to", block.unit, block.digits),
          ...block.series.map((bars) => figures(bars.name, "", 0)),
        ],
        rows: block.edges
          .slice(1)
          .map((edge, bin) => [
            block.edges[bin] ?? null,
            edge,
            ...block.series.map((bars) => bars.counts[bin] ?? null),
          ]),
      };
    case "boxes": {
      const fields = ["min", "p25", "p50", "p75", "p95", "max"] as const;
      return {
        columns: [
          words("name"),
          figures("samples", "", 0),
          ...fields.map((field) => figures(field, "%", 2)),
        ],
        rows: block.boxes.map((box) => [box.name, box.count, ...fields.map((field) => box[field])]),
      };
    }
    case "heatmap":
      return {
        columns: [words("row"), words("unit"), ...["min", "mean", "max"].map((n) => figures(n, "", 2))],
        rows: block.rows.map((row) => [row.name, row.unit, ...extremes(row.percent, row.full)]),
      };
    case "lines":
      return {
        columns: [words("name"), figures("seconds", "s", 2), figures("value", block.unit, block.digits)],
        rows: block.lines.flatMap((line) =>
          line.x.map((x, point): Cell[] => [line.name, x, line.y[point] ?? null]),
        ),
      };
    case "plot":
      return {
        columns: [words("series"), place(block.x), measured(block.y)],
        rows: block.series.flatMap((series) =>
          series.x.map((x, point): Cell[] => [
            series.names?.[point] ?? series.name,
            block.x.places === undefined ? x : onAxis(x, block.x),
            series.y[point] ?? null,
          ]),
        ),
      };
    case "stacks":
      return {
        columns: [words(block.bar), ...block.parts.map((part) => measured({ ...block.value, name: part.name }))],
        rows: block.bars.map((bar, at) => [bar, ...block.parts.map((part) => part.values[at] ?? null)]),
      };
    case "grid":
      return {
        columns: [words("row"), ...["min", "mean", "max"].map((name) => measured({ ...block.value, name }))],
        rows: block.rows.map((row, at) => [row, ...extremesOf(block.values[at] ?? [])]),
      };
  }
}

function place(scale: Scale): Heading {
  return scale.places === undefined ? measured(scale) : words(scale.name);
}

function measured(scale: Scale): Heading {
  return figures(scale.name, scale.unit === "none" ? "" : scale.unit, scale.unit === "ns" ? 0 : 3);
}

function words(label: string): Heading {
  return { label, unit: "", digits: null };
}

function figures(label: string, unit: string, digits: number): Heading {
  return { label, unit, digits };
}

/** Smallest, mean and largest of a row that holds percentages of `full`. */
function extremes(percent: (number | null)[], full: number): Cell[] {
  return extremesOf(percent).map((value) => (value === null ? null : (value / 100) * full));
}

/** Smallest, mean and largest. */
function extremesOf(values: (number | null)[]): (number | null)[] {
  const known = values.filter((value) => value !== null);
  if (known.length === 0) return [null, null, null];
  const [least, largest] = bounds([known]);
  return [least, known.reduce((sum, value) => sum + value, 0) / known.length, largest];
}
