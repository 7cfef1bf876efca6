// Sorting of tables by a column.
import type { ComponentChildren } from "preact";

/** `localeCompare` with options makes one of these per call. */
const COLLATOR = new Intl.Collator("en", { numeric: true });

/** Sort rows by a value; missing values and empty text last in either direction, stable for equal values. */
export function sortBy<Row>(
  rows: readonly Row[],
  value: (row: Row) => string | number | boolean | null,
  descending: boolean,
): Row[] {
  const sign = descending ? -1 : 1;
  const keyed = rows.map((row) => ({ row, key: value(row) }));
  keyed.sort(({ key: a }, { key: b }) => {
    if (isMissing(a) || isMissing(b)) return Number(isMissing(a)) - Number(isMissing(b));
    if (typeof a === "number" && typeof b === "number") return sign * (a - b);
    return sign * COLLATOR.compare(String(a), String(b));
  });
  return keyed.map(({ row }) => row);
}

function isMissing(value: string | number | boolean | null): boolean {
  return value === null || value === "";
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
