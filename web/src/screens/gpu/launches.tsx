// Launches: duration of the calls, and delay of the work after them.
import type { ComponentChildren } from "preact";

import type { StreamQueue, TraceLaunches } from "../../api/views";
import { count, duration } from "../../base/quantities";
import { FigurePanel } from "../../charts/figure_panel";
import { LinkedTable } from "../../parts/linked_table";
import { TraceScreen } from "../../parts/trace_screen";
import { field } from "../../widgets/fields";
import { queueDepthFigure, streamName } from "./figures";

export function Launches({ tabs }: { tabs: ComponentChildren }) {
  return (
    <TraceScreen view="launches" title="GPU" tabs={tabs}>
      {(trace, payload) =>
        trace.calls.length === 0 ? null : (
          <>
            <LinkedTable
              title="Launches by call"
              testid="table-launches"
              description={
                "Delay: time from the end of the call to the start of the work. Short work: shorter than its launch call. " +
                `Long: calls above ${duration(payload.long_call_ns)}, delays above ${duration(payload.long_delay_ns)}.`
              }
              rows={trace.calls}
              fields={[
                field("call"),
                field("launch_count", { label: "launches" }),
                field("work_count", { label: "work" }),
                field("call_mean_ns", { label: "mean call" }),
                field("call_p95_ns", { label: "p95 call" }),
                field("device_mean_ns", { label: "mean work" }),
                field("delay_p50_ns", { label: "median delay" }),
                field("delay_p95_ns", { label: "p95 delay" }),
                field("delay_max_ns", { label: "max delay" }),
                field("short_count", { label: "short work" }),
                field("long_call_count", { label: "long calls" }),
                field("long_delay_count", { label: "long delays" }),
              ]}
            />
            {trace.queues.length === 0 ? null : <QueueTable trace={trace} blockedDepth={payload.blocked_depth} />}
          </>
        )
      }
    </TraceScreen>
  );
}

function QueueTable({ trace, blockedDepth }: { trace: TraceLaunches; blockedDepth: number }) {
  return (
    <>
      <div class="panels">
        <FigurePanel wide testid="queue-depth" block={queueDepthFigure(trace)} />
      </div>
      <LinkedTable
        id="queues"
        title="Queues by stream"
        description={`Blocked: time with ${count(blockedDepth)} or more pending launches, the limit of a stream.`}
        rows={trace.queues}
        fields={[
          field<StreamQueue>("stream", { value: (row) => streamName(row.stream) }),
          field("launch_count", { label: "launches" }),
          field("span_ns"),
          field("mean_depth", { numeric: true, unit: "count" }),
          field("largest_depth", { numeric: true, unit: "count" }),
          field("blocked_ns"),
        ]}
      />
    </>
  );
}
