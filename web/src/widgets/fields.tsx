// Fields of payloads as columns, entries and tiles: their labels give title, unit, explanation and display.
import type { ComponentChildren } from "preact";

import { LABELS, type FieldLabel, type TypeName, type Types } from "../api/labels";
import { MISSING, NONE, change, fileSize, inUnit, relativeChange } from "../base/quantities";
import { capitalize, dateTime } from "../base/text";
import type { Entry } from "./key_values";
import { RatioBar } from "./ratio_bar";
import { sortBy } from "./sort_heading";
import type { Tile } from "./tiles";

export type Value = string | number | boolean | null;

export interface Field<Row> extends FieldLabel {
  name: string;
  /** Right-aligned, and descending when first sorted. */
  numeric: boolean;
  value: (row: Row) => Value;
  /** Custom rendering; default is the formatted value. */
  draw?: ((row: Row) => ComponentChildren) | undefined;
  /** Name of the row that can be long: it is the last column, shortened, in the space that the
   * numbers leave. */
  isLongName?: boolean;
  /** Text of several lines: for tables of few rows, which are drawn whole. */
  wraps?: boolean;
  /** In the CSV alone: another column shows it. */
  isHidden?: boolean;
  /** Indentation of a row while the table is unsorted: a tree. */
  indent?: (row: Row) => number;
}

type Name<Type extends TypeName> = keyof Types[Type] & string;
type Overrides<Row> = Partial<Omit<Field<Row>, "name">>;

/** Column of a field with a label. */
export function labelled<Row extends object>(name: string, label: FieldLabel, overrides: Overrides<Row> = {}): Field<Row> {
  return {
    ...label,
    name,
    numeric: (overrides.unit ?? label.unit) !== "none",
    value: (row) => toValue((row as Record<string, unknown>)[name]),
    ...overrides,
  };
}

/** Columns of payload fields: names, names with changes, or complete columns; those that do not apply are false. */
export function columns<Type extends TypeName, Row extends object = Types[Type]>(
  type: Type,
  ...items: (Name<Type> | readonly [Name<Type>, Overrides<Row>] | Field<Row> | false)[]
): Field<Row>[] {
  return items.flatMap((item) => {
    if (item === false) return [];
    if (typeof item === "object" && "value" in item) return [item];
    const [name, overrides]: readonly [Name<Type>, Overrides<Row>?] = typeof item === "string" ? [item] : item;
    return [labelled<Row>(name, labelOf(type, name), overrides)];
  });
}

/** Columns of an object inside the rows, such as statistics, which take its unit. */
export function innerColumns<Row extends object, Type extends TypeName>(
  type: Type,
  unit: string,
  inner: (row: Row) => Types[Type] | null,
  ...names: Name<Type>[]
): Field<Row>[] {
  return names.map((name) => {
    const label = labelOf(type, name);
    return labelled<Row>(name, label.unit === "inherited" ? { ...label, unit } : label, { value: (row) => toValue(inner(row)?.[name]) });
  });
}

/** Column with a computed value. */
export function column<Row>(
  name: string,
  title: string,
  unit: string,
  value: (row: Row) => Value,
  overrides: Overrides<Row> = {},
): Field<Row> {
  return { name, title, unit, numeric: unit !== "none", value, ...overrides };
}

/** Return the label of a payload field. */
export function labelOf<Type extends TypeName>(type: Type, name: Name<Type>): FieldLabel {
  return LABELS[type][name] as FieldLabel; // the build has a label for each name in the sources
}

/** Format a payload field; `unit` applies to numbers that inherit theirs. */
export function textOf<Type extends TypeName>(type: Type, row: Partial<Types[Type]> | null, name: Name<Type>, unit = "none"): string {
  const label = labelOf(type, name);
  return formatValue(row === null ? null : toValue(row[name]), label.unit === "inherited" ? { ...label, unit } : label);
}

/** Names and values of payload fields; a text after a name replaces the value, and names of no field are shown as they are. */
export function entries<Type extends TypeName>(
  type: Type,
  row: Partial<Types[Type]>,
  ...items: (Name<Type> | readonly [string, ComponentChildren] | false)[]
): Entry[] {
  return items.flatMap((item): Entry[] => {
    if (item === false) return [];
    const [name, text] = typeof item === "string" ? [item, textOf(type, row, item)] : item;
    const label: FieldLabel | undefined = (LABELS[type] as Record<string, FieldLabel>)[name];
    return [[label === undefined ? name : capitalize(label.title), text, label?.description]];
  });
}

/** Tile of a payload field; the explanation of the field is its caption. */
export function tile<Type extends TypeName>(
  type: Type,
  row: Types[Type] | null,
  name: Name<Type>,
  { unit, ...overrides }: Partial<Tile> & { unit?: string } = {},
): Tile {
  const { title, description } = labelOf(type, name);
  return { label: capitalize(title), value: textOf(type, row, name, unit), caption: description, ...overrides };
}

function toValue(value: unknown): Value {
  if (value === null || value === undefined) return null;
  if (typeof value === "string" || typeof value === "number" || typeof value === "boolean")
    return value;
  if (Array.isArray(value) && value.every((item) => typeof item === "string")) return value.join(", ") || NONE;
  return JSON.stringify(value);
}

export function formatValue(value: Value, { unit, display }: Pick<FieldLabel, "unit" | "display">): string {
  if (value === null) return MISSING;
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value === "string") return value;
  if (display === "identifier") return String(value);
  if (display === "file_size") return fileSize(value);
  if (display === "change") return unit === "ratio" ? relativeChange(value) : change(value, unit);
  if (unit === "epoch_ms" || unit === "epoch_ns") return dateTime(unit === "epoch_ms" ? value : value / 1e6);
  return inUnit(value, unit);
}

/** Format the value of a column; rows of metrics name the unit of their numbers. */
export function cellText<Row extends object>(row: Row, field: Field<Row>): string {
  const unit = field.unit === "inherited" && "unit" in row ? String(row.unit) : field.unit;
  return formatValue(field.value(row), { ...field, unit });
}

/** Render the value of a column. */
export function drawCell<Row extends object>(row: Row, field: Field<Row>): ComponentChildren {
  const value = field.value(row);
  return field.display === "bar" ? <RatioBar ratio={typeof value === "number" ? value : null} /> : cellText(row, field);
}

export interface Order {
  field: string;
  descending: boolean;
}

/** Sort rows by one column; see `sortBy`. */
export function sortRows<Row>(rows: readonly Row[], fields: Field<Row>[], order: Order | null): Row[] {
  const sorted = fields.find((candidate) => candidate.name === order?.field);
  if (sorted === undefined || order === null) return [...rows];
  return sortBy(rows, sorted.value, order.descending);
}

/** Keep rows that contain a text in any column, ignoring case. */
export function filterRows<Row>(rows: readonly Row[], fields: Field<Row>[], text: string): Row[] {
  const query = text.trim().toLowerCase();
  if (query === "") return [...rows];
  return rows.filter((row) =>
    fields.some(({ value }) => String(value(row) ?? "").toLowerCase().includes(query)),
  );
}
