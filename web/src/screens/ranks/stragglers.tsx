// Slowest rank of each step.
import type { StepMatrix } from "../../api/views";
import { countOf } from "../../base/quantities";
import { LinkedTable } from "../../parts/linked_table";
import { labelOf, labelled } from "../../widgets/fields";

export function Stragglers({ matrix }: { matrix: StepMatrix }) {
  if (matrix.ranks.length < 2) return null;
  const rows = matrix.ranks.map((rank, index) => ({
    rank,
    slowest: matrix.slowest_count[index] ?? 0,
    excess: matrix.excess_ns[index] ?? null,
  }));
  const source = matrix.source === "watched" ? "watched job" : "traces";
  return (
    <LinkedTable
      id="stragglers"
      title="Slowest ranks by step duration"
      testid="table-stragglers"
      description={`Based on ${countOf(matrix.step_count, "step")} of the ${source} that at least two ranks have.`}
      rows={rows}
      fields={[
        labelled("rank", { title: "rank", unit: "none" }),
        labelled("slowest", labelOf("StepMatrix", "slowest_count")),
        labelled("excess", labelOf("StepMatrix", "excess_ns")),
      ]}
    />
  );
}
