// Launches: duration of the calls, and delay of the work after them.
import type { ComponentChildren } from "preact";

import type { CallLaunches, KernelSequence, TraceLaunches } from "../../api/views";
import { count, duration } from "../../base/quantities";
import { shortName } from "../../base/short_name";
import { FigurePanel } from "../../charts/figure_panel";
import { LinkedTable } from "../../parts/linked_table";
import { TraceScreen } from "../../parts/trace_screen";
import { columns } from "../../widgets/fields";
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
              definition={
                "Delay: time from the end of the call to the start of the work. Short work: shorter than its launch call. " +
                `Long: calls above ${duration(payload.long_call_ns)}, delays above ${duration(payload.long_delay_ns)}.`
              }
              rows={trace.calls}
              fields={columns(
                "CallLaunches", "call", "launch_count", "work_count", "call_mean_ns", "call_p95_ns", "device_mean_ns",
                "delay_p50_ns", "delay_p95_ns", "delay_max_ns", "short_count", "long_call_count", "long_delay_count",
              )}
            />
            {trace.operators.length === 0 ? null : <OperatorTable rows={trace.operators} />}
            {trace.sequences.length === 0 ? null : <SequenceTable rows={trace.sequences} />}
            {trace.queues.length === 0 ? null : <QueueTable trace={trace} blockedDepth={payload.blocked_depth} />}
          </>
        )
      }
    </TraceScreen>
  );
}

function OperatorTable({ rows }: { rows: readonly CallLaunches[] }) {
  return (
    <LinkedTable
      id="operators"
      title="Launches by operator"
      testid="table-launching-operators"
      rows={rows}
      fields={columns(
        "CallLaunches", ["call", { title: "operator" }], "launch_count", "work_count", "call_mean_ns",
        "device_mean_ns", "delay_p50_ns", "delay_p95_ns", "delay_max_ns", "short_count", "long_delay_count",
      )}
    />
  );
}

function SequenceTable({ rows }: { rows: readonly KernelSequence[] }) {
  return (
    <LinkedTable
      id="sequences"
      title="Repeated kernel sequences"
      testid="table-sequences"
      description="Kernels that one call of an operator launches one after another, where that happens again: candidates for fusion."
      rows={rows}
      fields={columns(
        "KernelSequence", "operator",
        ["kernels", { numeric: false, isLongName: true, value: (row) => row.kernels.join(", "), draw: drawKernels }],
        "repeat_count", "total_ns", "gap_ns", "share_ratio",
      )}
    />
  );
}

function drawKernels({ kernels }: KernelSequence) {
  return <span class="name" title={kernels.join("\n")}>{kernels.map(shortName).join(", ")}</span>;
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
        definition={`Blocked: time with ${count(blockedDepth)} or more pending launches, the limit of a stream.`}
        rows={trace.queues}
        fields={columns(
          "StreamQueue", ["stream", { value: (row) => streamName(row.stream) }],
          "launch_count", "span_ns", "mean_depth", "largest_depth", "blocked_ns",
        )}
      />
    </>
  );
}
