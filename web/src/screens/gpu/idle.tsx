// Idle time of streams between their first and last work.
import type { ComponentChildren } from "preact";

import { duration } from "../../base/quantities";
import { FigurePanel } from "../../charts/figure_panel";
import { LinkedTable } from "../../parts/linked_table";
import { TraceScreen } from "../../parts/trace_screen";
import { columns } from "../../widgets/fields";
import { streamFigure, streamName } from "./figures";

export function Idle({ tabs }: { tabs: ComponentChildren }) {
  return (
    <TraceScreen view="idle" title="GPU" tabs={tabs} carryOver>
      {(trace, payload) =>
        trace.streams.length === 0 ? null : (
          <>
            <div class="panels">
              <FigurePanel wide testid="idle-streams" block={streamFigure(trace.streams)} />
            </div>
            <LinkedTable
              title="Idle time by stream"
              testid="table-idle"
              definition={`Shares are of the ${payload.share_of}. Kernel wait: gaps shorter than ${duration(payload.kernel_wait_below_ns)}. Host wait: no work had been launched.`}
              rows={trace.streams}
              fields={columns(
                "StreamIdle", ["stream", { value: (row) => streamName(row.stream) }], "device", "work_count", "span_ns", "busy_ns", "idle_ns",
                "host_wait_ratio", "kernel_wait_ratio", "other_ratio", "host_wait_count", "longest_host_wait_ns",
              )}
            />
          </>
        )
      }
    </TraceScreen>
  );
}
