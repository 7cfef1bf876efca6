// Limit on the rows that are requested.
import { useOption } from "./url_options";
import { count } from "../base/quantities";
import { Select } from "../widgets/select";

const LIMITS = ["500", "50", "5000", "0"] as const;
type RowLimit = (typeof LIMITS)[number];

export function useRowLimit(): [RowLimit, (value: RowLimit) => void] {
  return useOption("top", LIMITS);
}

export function RowLimitSelect({ value, onChange }: { value: RowLimit; onChange: (value: RowLimit) => void }) {
  const choices = [...LIMITS].sort((a, b) => (Number(a) || Infinity) - (Number(b) || Infinity));
  return (
    <Select
      label="Rows"
      value={value}
      choices={choices.map((limit) => [limit, limit === "0" ? "all" : `top ${count(Number(limit))}`] as const)}
      onChange={(next) => { onChange(next as RowLimit); }}
    />
  );
}

/** Note below a table on rows that were not requested. */
export function omittedRows(shownCount: number, totalCount: number): string | null {
  return shownCount < totalCount ? `top rows of ${count(totalCount)}` : null;
}
