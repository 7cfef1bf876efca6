// Columns of ranks, compared with each other.
import type { RankLateness } from "../../api/views";
import { NONE } from "../../base/quantities";
import { columns } from "../../widgets/fields";

/** Columns of ranks, without those that are empty in all rows. */
export function rankFields(rows: readonly RankLateness[]) {
  return columns(
    "RankLateness", "rank", rows.some((row) => row.node !== "") && "node", rows.some((row) => row.coordinates !== "") && "coordinates",
    "late_ratio", "last_ratio", "lateness_ns", "mean_lateness_ns", "mean_waiting_ns",
    ["persistence", { value: (row) => row.persistence ?? NONE }],
    ["cause", {
      value: (row) => row.cause ?? (row.persistence === null ? NONE : "not found"),
      draw: ({ cause, persistence }) => cause?.split(",", 1)[0] ?? (persistence === null ? NONE : "not found"),
    }],
    rows.some((row) => row.made_late_by !== null) && ["made_late_by", { value: (row) => row.made_late_by ?? NONE }],
  );
}
