// Table whose order, filter and selected row are in the URL.
import type { ComponentChildren } from "preact";

import { DataTable } from "../widgets/data_table";
import { type Field, type Order } from "../widgets/fields";
import { useText } from "./url_options";

interface Props<Row> {
  /** Prefix of the URL parameters; the main table of a screen has none. */
  id?: string;
  title: string;
  rows: readonly Row[];
  fields: Field<Row>[];
  description?: string | null | undefined;
  definition?: string | null | undefined;
  tools?: ComponentChildren;
  introduction?: ComponentChildren;
  footnote?: string | null | undefined;
  testid?: string;
  /** Show the filter for short tables as well. */
  searchable?: boolean;
  /** Span the full width of the panels; default true. */
  wide?: boolean;
  groupOf?: ((row: Row) => string) | undefined;
  isHigh?: boolean;
  /** Key of a row in the URL; rows are selectable if it is set. */
  keyOf?: ((row: Row) => string) | undefined;
  /** Called instead of selecting a row, and the row to highlight. */
  onRow?: (row: Row) => void;
  selected?: Row | undefined;
  /** Content beside the table for the selected row. */
  renderSelected?: ((row: Row) => ComponentChildren) | undefined;
}

/** Parse an order: a leading minus means descending. */
export function parseOrder(text: string): Order | null {
  if (text === "") return null;
  return text.startsWith("-")
    ? { field: text.slice(1), descending: true }
    : { field: text, descending: false };
}

export function formatOrder(order: Order): string {
  return `${order.descending ? "-" : ""}${order.field}`;
}

export function LinkedTable<Row extends object>({ id, keyOf, renderSelected, ...rest }: Props<Row>) {
  const name = (suffix: string): string => (id === undefined ? suffix : `${id}-${suffix}`);
  const [order, setOrder] = useText(name("sort"));
  const [filter, setFilter] = useText(name("filter"));
  const [row, setRow] = useText(name("row"));
  const selectedRow = row === "" || keyOf === undefined ? undefined : rest.rows.find((candidate) => keyOf(candidate) === row);
  const details = selectedRow === undefined ? null : renderSelected?.(selectedRow) ?? null;
  return (
    <div class={details === null ? "beside-details closed" : "beside-details"}>
      <DataTable
        {...rest}
        isNarrow={details !== null}
        order={parseOrder(order)}
        onOrder={(next) => { setOrder(formatOrder(next)); }}
        filter={filter}
        onFilter={setFilter}
        selected={selectedRow ?? rest.selected}
        onRow={keyOf === undefined ? rest.onRow : (clickedRow) => { setRow(clickedRow === selectedRow ? "" : keyOf(clickedRow)); }}
      />
      {details}
    </div>
  );
}
