// Idle time of streams between their first and last work.
import type { ComponentChildren } from "preact";

import type { StreamIdleView } from "../../api/views";
import { duration } from "../../base/quantities";
import { FigurePanel } from "../../charts/figure_panel";
import { useCarryOver } from "../../parts/carry_over";
import { LinkedTable } from "../../parts/linked_table";
import { TraceScreen } from "../../parts/trace_screen";
import { bar, field } from "../../widgets/fields";
import { streamFigure, streamName } from "./figures";

export function Idle({ tabs }: { tabs: ComponentChildren }) {
  const [carryOver, carryOverSelect] = useCarryOver();
  return (
    <TraceScreen
      view="idle"
      title="GPU"
      tabs={tabs}
      options={{ carry_over: carryOver }}
      tools={carryOverSelect}
    >
      {(trace, payload) =>
        trace.streams.length === 0 ? null : (
          <>
            <div class="panels">
              <FigurePanel wide testid="idle-streams" block={streamFigure(trace.streams)} />
            </div>
            <LinkedTable
              title="Idle time by stream"
              testid="table-idle"
              description={`Shares are of the ${payload.share_of}. Kernel wait: gaps shorter than ${duration(payload.kernel_wait_below_ns)}. Host wait: no work had been launched.`}
              rows={trace.streams}
              fields={[
                field<StreamIdleView>("stream", { value: (row) => streamName(row.stream) }),
                field("device", { numeric: true, unit: "count" }),
                field("work_count", { label: "work" }),
                field("span_ns"),
                field("busy_ns"),
                field("idle_ns"),
                bar("host_wait_ratio", "host wait"),
                bar("kernel_wait_ratio", "kernel wait"),
                bar("other_ratio", "other"),
                field("host_wait_count", { label: "host waits" }),
                field("longest_host_wait_ns"),
              ]}
            />
          </>
        )
      }
    </TraceScreen>
  );
}
