// Figures of the blocks of a report that no figure draws as they are.
import type { BarChart, Curves, Matrix } from "../api/report";
import { sentence } from "../base/text";
import type { Grid } from "./grid";
import type { Plot, Scale } from "./plot";
import type { Stacks } from "./stacks";

export function figureOf(block: BarChart | Curves | Matrix): Plot | Stacks | Grid {
  const notes = [block.note ?? "", block.more === null ? "" : sentence(`… ${block.more}`)].filter(Boolean);
  const note = notes.length === 0 ? null : notes.join(" ");
  switch (block.kind) {
    case "curves":
      return plotOf(block, note);
    case "bar_chart":
      return {
        kind: "stacks", title: block.title, note,
        categories: block.names, categoryName: block.item, horizontal: true,
        value: { name: block.axis, unit: block.unit },
        parts: [{ name: block.axis, values: block.values }],
      };
    case "matrix":
      return {
        kind: "grid", title: block.title, note,
        rows: block.rows, columns: block.columns, column: block.column, values: block.values,
        value: { name: block.axis, unit: block.unit, ...(block.unit === "ratio" ? { min: 0, max: 1 } : {}) },
      };
  }
}

function plotOf({ title, x_axis, x_unit, y_axis, y_unit, curves }: Curves, note: string | null): Plot {
  return {
    kind: "plot", title, note,
    x: scaleOf(x_axis, x_unit, curves.flatMap(({ x }) => x)),
    y: scaleOf(y_axis, y_unit, curves.flatMap(({ y }) => y)),
    series: curves.map(({ name, x, y }) => {
      const points = x.flatMap((position, point) => (position === null ? [] : [[position, y[point] ?? null] as const]));
      return { name, x: points.map(([position]) => position), y: points.map(([, value]) => value) };
    }),
  };
}

/** Axis from 0 to 100% for shares; otherwise from 0 unless values are negative. */
export function scaleOf(name: string, unit: string, values: readonly (number | null)[]): Scale {
  if (unit === "ratio") return { name, unit, min: 0, max: 1 };
  const min = values.reduce((low: number, value) => Math.min(low, value ?? 0), 0);
  return { name, unit, ...(min < 0 ? { min } : {}) };
}
