// Columns of changes, and their relation to the noise of the steps.
import { change, relativeChange } from "../../base/quantities";
import { column, type Field } from "../../widgets/fields";

interface Changed {
  change_ns: number;
}

interface ChangedRatio {
  change_ratio: number | null;
}

/** Absolute change of a duration. */
export function changeField<Row extends Changed>(): Field<Row> {
  return column<Row>("change_ns", "change", "ns", (row) => row.change_ns, {
    draw: (row) => <>{change(row.change_ns, "ns")}</>,
  });
}

/** Change as a share of the value before. */
export function relativeField<Row extends ChangedRatio>(label: string): Field<Row> {
  return column<Row>("change_ratio", label, "ratio", (row) => row.change_ratio, {
    draw: (row) => <>{relativeChange(row.change_ratio)}</>,
  });
}

export function NoiseLabel({ beyond, worse }: { beyond: boolean; worse: boolean }) {
  if (!beyond) return <span class="status-text quiet">within noise</span>;
  return <span class={`status-text ${worse ? "bad" : "good"}`}><span aria-hidden="true">{worse ? "▲" : "▼"}</span> {worse ? "slower" : "faster"}</span>;
}
