// The numbers of a chart as a table, for those who cannot or would rather not look at it.
import type { Boxes, Heatmap, Histogram, Lines, Pie } from "../api/report";
import type { Cell, Heading } from "../widgets/table";

interface Numbers {
  columns: Heading[];
  rows: Cell[][];
}

export function figureTable(block: Boxes | Heatmap | Histogram | Lines | Pie): Numbers {
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
  }
}

function words(label: string): Heading {
  return { label, unit: "", digits: null };
}

function figures(label: string, unit: string, digits: number): Heading {
  return { label, unit, digits };
}

/** Smallest, mean and largest of a row that holds percentages of `full`. */
function extremes(percent: (number | null)[], full: number): Cell[] {
  const known = percent.filter((value) => value !== null);
  if (known.length === 0) return [null, null, null];
  const mean = known.reduce((sum, value) => sum + value, 0) / known.length;
  return [Math.min(...known), mean, Math.max(...known)].map((value) => (value / 100) * full);
}
