// Busy and idle time of the devices, with a breakdown of busy time.
import type { ComponentChildren } from "preact";

import type { DeviceGpuTime, TraceGpuTime } from "../../api/views";
import { duration, percent } from "../../base/quantities";
import { useCarryOver } from "../../parts/carry_over";
import { LinkedTable } from "../../parts/linked_table";
import { TraceScreen } from "../../parts/trace_screen";
import { field } from "../../widgets/fields";
import { Panel } from "../../widgets/panel";
import { ShareBar } from "../../widgets/share_bar";
import { Tiles } from "../../widgets/tiles";

export function Time({ tabs }: { tabs: ComponentChildren }) {
  const [carryOver, carryOverSelect] = useCarryOver();
  return (
    <TraceScreen
      view="gpu-time"
      title="GPU"
      tabs={tabs}
      options={{ carry_over: carryOver }}
      tools={carryOverSelect}
    >
      {(trace, payload) => (trace.shares === null ? null : <Content trace={trace} shareOf={payload.share_of} />)}
    </TraceScreen>
  );
}

function Content({ trace, shareOf }: { trace: TraceGpuTime; shareOf: string }) {
  return (
    <>
      <Tiles
        tiles={[
          { label: "Busy", value: percent(trace.shares?.busy_ratio ?? null, 1), caption: `${duration(trace.busy_ns)} of ${duration(trace.total_ns)}`, testid: "gpu-busy" },
          { label: "Idle", value: percent(trace.shares?.idle_ratio ?? null, 1), caption: duration(trace.idle_ns), testid: "gpu-idle" },
          { label: "Communication", value: duration(trace.comm_ns), caption: `${duration(trace.exposed_comm_ns)} exposed` },
          { label: "Communication hidden", value: percent(trace.comm_hidden_ratio, 1), caption: "share of communication time" },
        ]}
      />
      <Panel title="All devices" description={`Shares are of the ${shareOf}.`} wide>
        <ShareBar label="Time of all devices" segments={timeSegments(trace)} />
      </Panel>
      <LinkedTable
        title="By device"
        testid="table-gpu-time"
        description="From the first to the last work of each device."
        rows={trace.devices}
        fields={[
          field("device", { numeric: true, unit: "count" }),
          field("total_ns"),
          field("busy_ns"),
          field<DeviceGpuTime>("shares", { label: "busy", unit: "ratio", numeric: true, value: (row) => row.shares?.busy_ratio ?? null }),
          field("idle_ns"),
          field("compute_ns", { label: "computation" }),
          field("comm_ns", { label: "communication" }),
          field("exposed_comm_ns", { label: "exposed communication" }),
          field("exposed_memcpy_ns", { label: "exposed copies" }),
          field("memset_ns", { label: "sets" }),
          field("gpu_event_count", { label: "events" }),
          field("same_stream_overlap_count", { label: "overlaps within a stream" }),
        ]}
      />
    </>
  );
}

function timeSegments(trace: TraceGpuTime) {
  const { shares } = trace;
  if (shares === null) return [];
  return [
    { name: "computation", ratio: shares.compute_ratio, amount: duration(trace.compute_ns) },
    { name: "exposed communication", ratio: shares.exposed_comm_ratio, amount: duration(trace.exposed_comm_ns) },
    { name: "exposed copies", ratio: shares.exposed_memcpy_ratio, amount: duration(trace.exposed_memcpy_ns) },
    { name: "idle", ratio: shares.idle_ratio, amount: duration(trace.idle_ns) },
  ];
}
