// A table whose columns sort it, by a click or from the keyboard.
import { useState } from "preact/hooks";

import { MISSING, number } from "../base/format";

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

/** Rows by one column; what is missing comes last either way, equal rows keep their order. */
export function sorted(rows: Cell[][], order: Order | null): Cell[][] {
  if (order === null) return rows;
  const sign = order.descending ? -1 : 1;
  return [...rows].sort((one, other) => {
    const [a, b] = [one[order.column] ?? null, other[order.column] ?? null];
    if (a === null || b === null) return Number(a === null) - Number(b === null);
    if (typeof a === "number" && typeof b === "number") return sign * (a - b);
    return sign * String(a).localeCompare(String(b), "en", { numeric: true });
  });
}

export function shown(cell: Cell, digits: number | null): string {
  if (cell === null) return MISSING;
  return typeof cell === "number" ? number(cell, digits ?? 2) : cell;
}

export function Table({ caption, columns, rows }: Props) {
  const [order, setOrder] = useState<Order | null>(null);
  const choose = (column: number): void => {
    const numeric = columns[column]?.digits !== null;
    const descending = order?.column === column ? !order.descending : numeric;
    setOrder({ column, descending });
  };
  return (
    <div class="scroll" role="region" aria-label={caption} tabIndex={0}>
      <table>
        <caption class="hidden">{caption}</caption>
        <thead>
          <tr>
            {columns.map((column, place) => (
              <th
                key={column.label}
                scope="col"
                class={column.digits === null ? "" : "number"}
                aria-sort={ariaSort(order, place)}
              >
                <button type="button" onClick={() => { choose(place); }}>
                  {column.label}
                  {column.unit === "" ? "" : ` [${column.unit}]`}
                  <span class="order" aria-hidden="true">{arrow(order, place)}</span>
                </button>
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {sorted(rows, order).map((row, place) => (
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

function ariaSort(order: Order | null, column: number): "ascending" | "descending" | "none" {
  if (order?.column !== column) return "none";
  return order.descending ? "descending" : "ascending";
}

function arrow(order: Order | null, column: number): string {
  if (order?.column !== column) return "";
  return order.descending ? " ▼" : " ▲";
}
