// Sorting of tables by a column.
import type { ComponentChildren } from "preact";

/** Sort rows by a value; missing values last in either direction, stable for equal values. */
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
  /** Current direction; null if the table is not sorted by this column. */
  descending: boolean | null;
  numeric: boolean;
  description?: string | undefined;
  onSort: (descending: boolean) => void;
  children: ComponentChildren;
}

/** Column heading that sorts: numbers descending first, and reversed on the next click. */
export function SortHeading({ descending, numeric, description, onSort, children }: Props) {
  return (
    <th scope="col" class={numeric ? "number" : ""} aria-sort={direction(descending)} title={description}>
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
