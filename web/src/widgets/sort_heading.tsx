// Rows in an order of the reader's choice: by one column, up or down, chosen at its heading.
import type { ComponentChildren } from "preact";

/** Rows by a value; what is missing comes last either way, equal rows keep their order. */
export function sortBy<Row>(
  rows: readonly Row[],
  value: (row: Row) => string | number | boolean | null,
  descending: boolean,
): Row[] {
  const sign = descending ? -1 : 1;
  return [...rows].sort((rowA, rowB) => {
    const [a, b] = [value(rowA), value(rowB)];
    if (a === null || b === null) return Number(a === null) - Number(b === null);
    if (typeof a === "number" && typeof b === "number") return sign * (a - b);
    return sign * String(a).localeCompare(String(b), "en", { numeric: true });
  });
}

interface Props {
  /** How the column orders the rows; null where it does not. */
  descending: boolean | null;
  numeric: boolean;
  about?: string | undefined;
  onSort: (descending: boolean) => void;
  children: ComponentChildren;
}

/** A heading that orders by its column: numbers from the largest, and the other way when chosen again. */
export function SortHeading({ descending, numeric, about, onSort, children }: Props) {
  return (
    <th scope="col" class={numeric ? "number" : ""} aria-sort={direction(descending)} title={about}>
      <button type="button" onClick={() => { onSort(descending === null ? numeric : !descending); }}>
        {children}
        <span class="order" aria-hidden="true">
          {descending === null ? "" : descending ? " ▼" : " ▲"}
        </span>
      </button>
    </th>
  );
}

function direction(descending: boolean | null): "ascending" | "descending" | "none" {
  if (descending === null) return "none";
  return descending ? "descending" : "ascending";
}
