// Columns of changes, and their relation to the noise of the steps.
import type { StepChange } from "../../api/views";
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

/** Relation of a change to the noise of the steps. */
export function NoiseLabel({ change: { noise_ns, beyond_noise, estimate_ns } }: { change: StepChange }) {
  if (noise_ns === null) return <span class="status-text quiet">too few steps</span>;
  if (!beyond_noise) return <span class="status-text quiet">within noise</span>;
  return estimate_ns > 0 ? (
    <span class="status-text bad"><span aria-hidden="true">▲</span> slower</span>
  ) : (
    <span class="status-text good"><span aria-hidden="true">▼</span> faster</span>
  );
}
