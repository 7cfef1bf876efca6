// Columns of payload rows: label, unit, formatting, sorting and filtering.
import type { ComponentChildren } from "preact";

import { inUnit, labelOf, unitOf } from "../base/quantities";
import { RatioBar } from "./ratio_bar";
import { sortBy } from "./sort_heading";

export type Value = string | number | boolean | null;

export interface Field<Row> {
  name: string;
  label: string;
  unit: string;
  /** Right-aligned, and descending when first sorted. */
  numeric: boolean;
  value: (row: Row) => Value;
  /** Custom rendering; default is the formatted value. */
  draw?: ((row: Row) => ComponentChildren) | undefined;
  /** Indentation of a row while the table is unsorted: a tree. */
  indent?: (row: Row) => number;
  /** Tooltip of the heading. */
  description?: string | undefined;
}

/** Column for a field of the rows; unit and label follow from its name. */
export function field<Row extends object>(
  name: keyof Row & string,
  overrides: Partial<Omit<Field<Row>, "name">> = {},
): Field<Row> {
  const unit = overrides.unit ?? unitOf(name) ?? "none";
  return {
    name,
    label: labelOf(name),
    unit,
    numeric: unit !== "none",
    value: (row) => toValue(row[name]),
    ...overrides,
  };
}

/** Column for a ratio, rendered as a bar with its number. */
export function bar<Row extends object>(name: keyof Row & string, label: string): Field<Row> {
  return field<Row>(name, {
    label,
    draw: (row) => {
      const ratio: unknown = row[name];
      return <RatioBar ratio={typeof ratio === "number" ? ratio : null} />;
    },
  });
}

/** Column with a computed value. */
export function column<Row>(
  name: string,
  label: string,
  unit: string,
  value: (row: Row) => Value,
  overrides: Partial<Field<Row>> = {},
): Field<Row> {
  return { name, label, unit, numeric: unit !== "none", value, ...overrides };
}

function toValue(value: unknown): Value {
  if (value === null || value === undefined) return null;
  if (typeof value === "string" || typeof value === "number" || typeof value === "boolean")
    return value;
  return JSON.stringify(value);
}

export function formatValue(value: Value, unit: string): string {
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value === "number" || value === null) return inUnit(value, unit);
  return value;
}

export interface Order {
  field: string;
  descending: boolean;
}

/** Sort rows by one column; see `sortBy`. */
export function sortRows<Row>(rows: readonly Row[], fields: Field<Row>[], order: Order | null): Row[] {
  const column = fields.find((candidate) => candidate.name === order?.field);
  if (column === undefined || order === null) return [...rows];
  return sortBy(rows, column.value, order.descending);
}

/** Keep rows that contain a text in any column, ignoring case. */
export function filterRows<Row>(rows: readonly Row[], fields: Field<Row>[], text: string): Row[] {
  const query = text.trim().toLowerCase();
  if (query === "") return [...rows];
  return rows.filter((row) =>
    fields.some((column) => String(column.value(row) ?? "").toLowerCase().includes(query)),
  );
}
