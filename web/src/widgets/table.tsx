// A table whose columns sort it, by a click or from the keyboard.
import { useState } from "preact/hooks";

import { MISSING, fixed } from "../base/quantities";
import { inOrder, OrderHeading } from "./ordering";

export type Cell = string | number | null;

export interface Heading {
  label: string;
  unit: string;
  /** Decimals of a column of numbers; null for a column of words. */
  digits: number | null;
}

interface Props {
  caption: string;
  columns: Heading[];
  rows: Cell[][];
}

/** Words longer than this get more room, and may be broken anywhere. */
const LONG = 30;

interface Order {
  column: number;
  descending: boolean;
}

export function shown(cell: Cell, digits: number | null): string {
  if (cell === null) return MISSING;
  return typeof cell === "number" ? fixed(cell, digits ?? 2) : cell;
}

export function Table({ caption, columns, rows }: Props) {
  const [order, setOrder] = useState<Order | null>(null);
  const shownRows =
    order === null
      ? rows
      : inOrder(rows, (row) => row[order.column] ?? null, order.descending);
  return (
    <div class="scroll" role="region" aria-label={caption} tabIndex={0}>
      <table>
        <caption class="hidden">{caption}</caption>
        <thead>
          <tr>
            {columns.map((column, place) => (
              <OrderHeading
                key={column.label}
                descending={order?.column === place ? order.descending : null}
                numeric={column.digits !== null}
                onOrder={(descending) => { setOrder({ column: place, descending }); }}
              >
                {column.label}
                {column.unit === "" ? "" : ` [${column.unit}]`}
              </OrderHeading>
            ))}
          </tr>
        </thead>
        <tbody>
          {shownRows.map((row, place) => (
            <tr key={place}>
              {row.map((cell, column) => (
                <Value key={column} cell={cell} digits={columns[column]?.digits ?? null} />
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Value({ cell, digits }: { cell: Cell; digits: number | null }) {
  const text = shown(cell, digits);
  const kind = digits === null ? "" : "number";
  return <td class={text.length > LONG ? `${kind} long` : kind}>{text}</td>;
}
