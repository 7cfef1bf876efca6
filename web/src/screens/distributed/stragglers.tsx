// Heat map of steps by rank, and how often each rank is the slowest.
import { useMemo } from "preact/hooks";

import type { StepMatrix } from "../../api/views";
import { countOf } from "../../base/quantities";
import { FigurePanel } from "../../charts/figure_panel";
import { LinkedTable } from "../../parts/linked_table";
import { labelOf, labelled } from "../../widgets/fields";
import { stepDurationGrid } from "./figures";

export function Stragglers({ matrix }: { matrix: StepMatrix }) {
  const grid = useMemo(() => stepDurationGrid(matrix), [matrix]);
  const rows = matrix.ranks.map((rank, index) => ({
    rank,
    slowest: matrix.slowest_count[index] ?? 0,
    excess: matrix.excess_ns[index] ?? null,
  }));
  return (
    <>
      <div class="panels spaced">
        <FigurePanel
          wide
          testid="step-matrix"
          block={grid}
          description={matrix.source === "watched" ? "Steps of the watched job." : "Steps of the traces."}
        />
      </div>
      {matrix.ranks.length < 2 ? null : (
        <LinkedTable
          id="stragglers"
          title="Stragglers"
          testid="table-stragglers"
          description={`Based on ${countOf(matrix.step_count, "step")} that at least two ranks have.`}
          rows={rows}
          fields={[
            labelled("rank", { title: "rank", unit: "none" }),
            labelled("slowest", labelOf("StepMatrix", "slowest_count")),
            labelled("excess", labelOf("StepMatrix", "excess_ns")),
          ]}
        />
      )}
    </>
  );
}
