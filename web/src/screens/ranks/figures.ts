// Heat map of late ranks.
import type { RanksView } from "../../api/views";
import type { Grid } from "../../charts/grid";

/** Lateness of each rank and step; null if there is nothing to compare. */
export function latenessGrid(payload: RanksView): Grid | null {
  const { map } = payload;
  if (map === null) return null;
  return {
    kind: "grid",
    title: "Lateness by rank and step",
    rows: map.ranks,
    columns: map.steps,
    column: "step",
    values: map.lateness_ns.map((row) => row.map((value) => (value === null ? null : Math.max(0, value)))),
    value: { name: "lateness", unit: "ns" },
    note: map.steps_per_column > 1 ? `Each column is the mean of ${map.steps_per_column} steps.` : null,
  };
}
