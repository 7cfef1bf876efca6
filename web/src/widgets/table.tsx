// Plain table, sortable by column.
import { useState } from "preact/hooks";

import { MISSING, figure } from "../base/quantities";
import { sortBy, SortHeading } from "./sort_heading";

export type Cell = string | number | null;

export interface Heading {
  label: string;
  unit: string;
  /** Decimals of a numeric column; null for text. */
  digits: number | null;
}

interface Props {
  caption: string;
  columns: Heading[];
  rows: Cell[][];
}

/** Longer texts get a wider cell and may wrap anywhere. */
const MAX_SHORT_LENGTH = 30;

interface Order {
  column: number;
  descending: boolean;
}

export function formatCell(cell: Cell, digits: number | null): string {
  if (cell === null) return MISSING;
  return typeof cell === "number" ? figure(cell, digits ?? 2) : cell;
}

export function Table({ caption, columns, rows }: Props) {
  const [order, setOrder] = useState<Order | null>(null);
  const sortedRows =
    order === null
      ? rows
      : sortBy(rows, (row) => row[order.column] ?? null, order.descending);
  return (
    <div class="scroll" role="region" aria-label={caption} tabIndex={0}>
      <table>
        <caption class="hidden">{caption}</caption>
        <thead>
          <tr>
            {columns.map((column, index) => (
              <SortHeading
                key={column.label}
                descending={order?.column === index ? order.descending : null}
                numeric={column.digits !== null}
                onSort={(descending) => { setOrder({ column: index, descending }); }}
              >
                {column.label}
                {column.unit === "" ? "" : ` [${column.unit}]`}
              </SortHeading>
            ))}
          </tr>
        </thead>
        <tbody>
          {sortedRows.map((row, index) => (
            <tr key={index}>
              {row.map((cell, column) => (
                <CellView key={column} cell={cell} digits={columns[column]?.digits ?? null} />
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function CellView({ cell, digits }: { cell: Cell; digits: number | null }) {
  const text = formatCell(cell, digits);
  const kind = digits === null ? "" : "number";
  return <td class={text.length > MAX_SHORT_LENGTH ? `${kind} long` : kind}>{text}</td>;
}
