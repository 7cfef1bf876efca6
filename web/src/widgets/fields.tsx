// Fields of payload rows as columns: what they are called, how they read, how they sort and filter.
import type { ComponentChildren } from "preact";

import { inUnit, labelOf, unitOf } from "../base/quantities";
import { sortBy } from "./sort_heading";
import { RatioBar } from "./ratio_bar";

export type Value = string | number | boolean | null;

export interface Field<Row> {
  name: string;
  label: string;
  unit: string;
  /** Numbers stand at the right and sort from the largest. */
  numeric: boolean;
  value: (row: Row) => Value;
  /** How it is drawn where that is more than its text. */
  draw?: ((row: Row) => ComponentChildren) | undefined;
  /** How deep a row's text is set in while the rows stand in their own order: a tree. */
  indent?: (row: Row) => number;
  /** What it means, shown at the heading. */
  description?: string | undefined;
}

/** A field of the rows by its name; unit and label follow from it. */
export function field<Row extends object>(
  name: keyof Row & string,
  more: Partial<Omit<Field<Row>, "name">> = {},
): Field<Row> {
  const unit = more.unit ?? unitOf(name) ?? "none";
  return {
    name,
    label: labelOf(name),
    unit,
    numeric: unit !== "none",
    value: (row) => toValue(row[name]),
    ...more,
  };
}

/** A ratio of the rows, drawn as a bar with its number. */
export function bar<Row extends object>(name: keyof Row & string, label: string): Field<Row> {
  return field<Row>(name, {
    label,
    draw: (row) => {
      const ratio: unknown = row[name];
      return <RatioBar ratio={typeof ratio === "number" ? ratio : null} />;
    },
  });
}

/** A field of its own making. */
export function column<Row>(
  name: string,
  label: string,
  unit: string,
  value: (row: Row) => Value,
  more: Partial<Field<Row>> = {},
): Field<Row> {
  return { name, label, unit, numeric: unit !== "none", value, ...more };
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

/** Rows by one field; see `inOrder`. */
export function sortRows<Row>(rows: readonly Row[], fields: Field<Row>[], order: Order | null): Row[] {
  const by = fields.find((candidate) => candidate.name === order?.field);
  if (by === undefined || order === null) return [...rows];
  return sortBy(rows, by.value, order.descending);
}

/** Rows in which some text occurs, regardless of case. */
export function filterRows<Row>(rows: readonly Row[], fields: Field<Row>[], text: string): Row[] {
  const query = text.trim().toLowerCase();
  if (query === "") return [...rows];
  return rows.filter((row) =>
    fields.some((column) => String(column.value(row) ?? "").toLowerCase().includes(query)),
  );
}
