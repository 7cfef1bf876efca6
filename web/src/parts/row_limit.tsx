// Limit on the rows that are requested.
import type { JSX } from "preact";

import { count } from "../base/quantities";
import { Select } from "../widgets/select";
import { useOption } from "./url_options";

const LIMITS = ["500", "50", "5000", "0"] as const;
type RowLimit = (typeof LIMITS)[number];

const CHOICES = [...LIMITS]
  .sort((a, b) => (Number(a) || Infinity) - (Number(b) || Infinity))
  .map((limit) => [limit, limit === "0" ? "all" : `top ${count(Number(limit))}`] as const);

/** Return the limit and its control. */
export function useRowLimit(): [RowLimit, JSX.Element] {
  const [value, setValue] = useOption("top", LIMITS);
  return [value, <Select key="rows" label="Rows" value={value} choices={CHOICES} onChange={setValue} />];
}

/** Note below a table on rows that were not requested. */
export function omittedRows(shownCount: number, totalCount: number): string | null {
  return shownCount < totalCount ? `top rows of ${count(totalCount)}` : null;
}
