// Busy and idle time of the devices, with a breakdown of busy time.
import type { ComponentChildren } from "preact";

import type { DeviceGpuTime, TraceGpuTime } from "../../api/views";
import { duration } from "../../base/quantities";
import { LinkedTable } from "../../parts/linked_table";
import { TraceScreen } from "../../parts/trace_screen";
import { columns, innerColumns, labelOf, tile } from "../../widgets/fields";
import { Panel } from "../../widgets/panel";
import { ShareBar } from "../../widgets/share_bar";
import { Tiles } from "../../widgets/tiles";

export function Time({ tabs }: { tabs: ComponentChildren }) {
  return (
    <TraceScreen view="gpu-time" title="GPU" tabs={tabs} carryOver communication>
      {(trace, payload) => (trace.shares === null ? null : <Content trace={trace} shareOf={payload.share_of} communicationOf={payload.communication_of} />)}
    </TraceScreen>
  );
}

function Content({ trace, shareOf, communicationOf }: { trace: TraceGpuTime; shareOf: string; communicationOf: string }) {
  return (
    <>
      <Tiles
        tiles={[
          tile("GpuShares", trace.shares, "busy_ratio", { caption: `${duration(trace.busy_ns)} of ${duration(trace.total_ns)}`, testid: "gpu-busy" }),
          tile("GpuShares", trace.shares, "idle_ratio", { caption: duration(trace.idle_ns), testid: "gpu-idle" }),
          ...(trace.comm_ns === 0 ? [] : [
            tile("TraceGpuTime", trace, "comm_ns", { caption: `${duration(trace.exposed_comm_ns)} exposed` }),
            tile("TraceGpuTime", trace, "comm_hidden_ratio", { caption: "of communication time" }),
          ]),
        ]}
      />
      <Panel title="All devices" definition={`Shares are of the ${shareOf}. Communication: ${communicationOf}`} wide>
        <ShareBar label="Time of all devices" segments={timeSegments(trace)} />
      </Panel>
      <LinkedTable
        title="By device"
        testid="table-gpu-time"
        definition="From the first to the last work of each device."
        rows={trace.devices}
        fields={columns(
          "DeviceGpuTime", "device", "total_ns", "busy_ns",
          ...innerColumns("GpuShares", "ratio", (row: DeviceGpuTime) => row.shares, "busy_ratio").map((field) => ({ ...field, title: "busy share" })),
          "idle_ns", "compute_ns", "comm_ns", "exposed_comm_ns", "exposed_memcpy_ns", "memset_ns", "gpu_event_count", "same_stream_overlap_count",
        )}
      />
    </>
  );
}

function timeSegments(trace: TraceGpuTime) {
  const { shares } = trace;
  if (shares === null) return [];
  const parts = [
    ["compute_ratio", trace.compute_ns],
    ["exposed_comm_ratio", trace.exposed_comm_ns],
    ["exposed_memcpy_ratio", trace.exposed_memcpy_ns],
    ["idle_ratio", trace.idle_ns],
  ] as const;
  return parts.map(([name, ns]) => ({ name: labelOf("GpuShares", name).title, ratio: shares[name], amount: duration(ns) }));
}
