// Device work by kind: kernels, copies by direction, sets, synchronization.
import type { ComponentChildren } from "preact";

import type { ActivityKind, CopyKind } from "../../api/views";
import { FigurePanel } from "../../charts/figure_panel";
import { LinkedTable } from "../../parts/linked_table";
import { TraceScreen } from "../../parts/trace_screen";
import { columns } from "../../widgets/fields";
import { bandwidthFigure } from "./figures";

export function Activity({ tabs }: { tabs: ComponentChildren }) {
  return (
    <TraceScreen view="activity" title="GPU" tabs={tabs} carryOver>
      {(trace, payload) => (
        <>
          {trace.activities.length === 0 ? null : <ActivityKinds rows={trace.activities} shareOf={payload.share_of} />}
          {trace.copies.length === 0 ? null : <CopyKinds rows={trace.copies} />}
          {trace.bandwidth.length === 0 ? null : (
            <div class="panels">
              <FigurePanel wide testid="copy-bandwidth" block={bandwidthFigure(trace)} />
            </div>
          )}
        </>
      )}
    </TraceScreen>
  );
}

function ActivityKinds({ rows, shareOf }: { rows: ActivityKind[]; shareOf: string }) {
  return (
    <LinkedTable
      title="Activities"
      testid="table-activity"
      definition={`Shares are of ${shareOf}.`}
      rows={rows}
      fields={columns("ActivityKind", "kind", "count", "total_ns", "share_ratio", "mean_ns")}
    />
  );
}

function CopyKinds({ rows }: { rows: CopyKind[] }) {
  return (
    <LinkedTable
      id="copies"
      title="Copies and sets"
      testid="table-copies"
      rows={rows}
      fields={columns("CopyKind", "direction", "source", "target", "count", "total_ns", "moved_bytes", "achieved_bytes_per_s")}
    />
  );
}
