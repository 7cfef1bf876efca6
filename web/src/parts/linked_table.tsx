// A table whose order, filter and chosen row are in the address.
import type { ComponentChildren } from "preact";

import { useText } from "./url_options";
import { DataTable } from "../widgets/data_table";
import { type Field, type Order } from "../widgets/fields";

interface Props<Row> {
  /** Tells the tables of a screen apart in the address; the main one has none. */
  id?: string;
  title: string;
  rows: readonly Row[];
  fields: Field<Row>[];
  about?: string | null | undefined;
  tools?: ComponentChildren;
  more?: string | null | undefined;
  testid?: string;
  /** Has a filter even with few rows. */
  searchable?: boolean;
  /** Over the whole width of a screen of panels, unless it says otherwise. */
  wide?: boolean;
  /** What a row is called in the address; rows can be chosen where it is given. */
  keyOf?: ((row: Row) => string) | undefined;
  /** What a row does instead of being chosen, and which row that was. */
  onRow?: (row: Row) => void;
  selected?: Row | undefined;
  /** What is shown of the chosen row, below the table. */
  renderSelected?: ((row: Row) => ComponentChildren) | undefined;
}

/** An order as the address has it: a minus stands for the largest first. */
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
  return (
    <>
      <DataTable
        {...rest}
        order={parseOrder(order)}
        onOrder={(next) => { setOrder(formatOrder(next)); }}
        filter={filter}
        onFilter={setFilter}
        selected={selectedRow ?? rest.selected}
        onRow={keyOf === undefined ? rest.onRow : (clickedRow) => { setRow(clickedRow === selectedRow ? "" : keyOf(clickedRow)); }}
      />
      {selectedRow === undefined ? null : renderSelected?.(selectedRow)}
    </>
  );
}
