// Data of a chart as a table, as the accessible alternative.
import type { Boxes, Heatmap, Histogram, Lines, Pie } from "../api/report";
import { inUnit } from "../base/quantities";
import type { Cell, Heading } from "../widgets/table";
import type { Grid } from "./grid";
import { extent } from "./grid";
import { formatOnScale, type Plot, type Scale } from "./plot";
import type { StepStrip } from "./step_strip";
import type { Stacks } from "./stacks";

interface TableData {
  columns: Heading[];
  rows: Cell[][];
}

export function figureTable(block: Boxes | Heatmap | Histogram | Lines | Pie | Plot | Stacks | StepStrip | Grid): TableData {
  switch (block.kind) {
    case "pie":
      return {
        columns: [textHeading("name"), numberHeading("share", "%", 2)],
        rows: block.slices.map((slice) => [slice.name, 100 * slice.share_ratio]),
      };
    case "histogram":
      return {
        columns: [
          numberHeading("from", block.unit, block.digits),
          numberHeading("to", block.unit, block.digits),
          ...block.series.map((bars) => numberHeading(bars.name, "", 0)),
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
          textHeading("name"),
          numberHeading("samples", "", 0),
          ...fields.map((field) => numberHeading(field, "%", 2)),
        ],
        rows: Object.entries(block.boxes).map(([name, box]) => [name, box.count, ...fields.map((field) => box[field])]),
      };
    }
    case "heatmap":
      return {
        columns: ["row", "min", "mean", "max"].map(textHeading),
        rows: block.rows.map(({ name, unit, full, shade_ratio }) => [
          name,
          ...minMeanMax(shade_ratio).map((shade) => inUnit(shade === null ? null : full * shade, unit)),
        ]),
      };
    case "lines":
      return {
        columns: [textHeading("name"), numberHeading("seconds", "s", 2), numberHeading("value", block.unit, block.digits)],
        rows: block.lines.flatMap((line) =>
          line.x.map((x, point): Cell[] => [line.name, x, line.y[point] ?? null]),
        ),
      };
    case "plot":
      return {
        columns: [textHeading("series"), positionHeading(block.x), scaleHeading(block.y)],
        rows: block.series.flatMap((series) =>
          series.x.map((x, point): Cell[] => [
            series.names?.[point] ?? series.name,
            block.x.categories === undefined ? x : formatOnScale(x, block.x),
            series.y[point] ?? null,
          ]),
        ),
      };
    case "stacks":
      return {
        columns: [textHeading(block.categoryName), ...block.parts.map(({ name, values }) => scaleHeading({ ...block.value, name }, values))],
        rows: block.categories.map((category, index) => [category, ...block.parts.map((part) => part.values[index] ?? null)]),
      };
    case "step_strip":
      return {
        columns: [numberHeading("first step", "", 0), ...[...block.parts, { name: "moving median" }].map(({ name }) => scaleHeading({ ...block.value, name }))],
        rows: block.median.map((median, index) => [block.steps[index] ?? null, ...block.parts.map(({ values }) => values[index] ?? null), median]),
      };
    case "grid":
      return {
        columns: [textHeading("row"), ...["min", "mean", "max"].map((name) => scaleHeading({ ...block.value, name }))],
        rows: block.rows.map((row, index) => [row, ...minMeanMax(block.values[index] ?? [])]),
      };
  }
}

function positionHeading(scale: Scale): Heading {
  return scale.categories === undefined ? scaleHeading(scale) : textHeading(scale.name);
}

/** Heading of values on an axis; counts have no decimals, unless they are means. */
function scaleHeading({ name, unit }: Scale, values: readonly (number | null)[] = []): Heading {
  const isCount = unit === "count" && values.length > 0 && values.every((value) => value === null || Number.isInteger(value));
  return numberHeading(name, unit === "none" || isCount ? "" : unit, unit === "ns" || isCount ? 0 : 3);
}

function textHeading(label: string): Heading {
  return { label, unit: "", digits: null };
}

function numberHeading(label: string, unit: string, digits: number): Heading {
  return { label, unit, digits };
}

/** Minimum, mean and maximum. */
function minMeanMax(values: (number | null)[]): (number | null)[] {
  const numbers = values.filter((value) => value !== null);
  if (numbers.length === 0) return [null, null, null];
  const [min, max] = extent([numbers]);
  return [min, numbers.reduce((sum, value) => sum + value, 0) / numbers.length, max];
}
