// Device utilization during steps: busy time, SM efficiency, occupancy.
import type { ComponentChildren } from "preact";

import type { DeviceMetrics, TraceMetrics } from "../../api/views";
import { count, memory, percent } from "../../base/quantities";
import { FigurePanel } from "../../charts/figure_panel";
import { LinkedTable } from "../../parts/linked_table";
import { TraceScreen } from "../../parts/trace_screen";
import { field } from "../../widgets/fields";
import { Tiles } from "../../widgets/tiles";
import { utilizationFigure } from "./figures";

export function Metrics({ tabs }: { tabs: ComponentChildren }) {
  return (
    <TraceScreen view="gpu-metrics" title="GPU" tabs={tabs}>
      {(trace, payload) => (trace.devices.length === 0 ? null : <Content trace={trace} shareOf={payload.share_of} />)}
    </TraceScreen>
  );
}

function Content({ trace, shareOf }: { trace: TraceMetrics; shareOf: string }) {
  const [first] = trace.devices;
  return (
    <>
      {first === undefined || trace.devices.length > 1 ? null : <DeviceTiles device={first} />}
      <div class="panels">
        <FigurePanel wide testid="gpu-utilization" block={utilizationFigure(trace)} description={`Shares are of the ${shareOf}.`} />
      </div>
      <LinkedTable
        title="By device"
        testid="table-gpu-metrics"
        rows={trace.devices}
        fields={[
          field("device", { numeric: true, unit: "count" }),
          field("device_name", { label: "name" }),
          field("memory_bytes", { label: "memory" }),
          field("compute_capability"),
          field("multiprocessor_count", { label: "SMs" }),
          field("kernel_count", { label: "kernels" }),
          field("utilization_ratio", { label: "utilization" }),
          field("est_sm_efficiency_ratio", { label: "est. SM efficiency" }),
          field("est_achieved_occupancy_ratio", { label: "est. occupancy" }),
          field("tensor_core_ratio", { label: "on Tensor Cores" }),
        ]}
      />
    </>
  );
}

function DeviceTiles({ device }: { device: DeviceMetrics }) {
  return (
    <Tiles
      tiles={[
        { label: "Device", value: device.device_name ?? `GPU ${device.device}`, caption: `${memory(device.memory_bytes)}, ${count(device.multiprocessor_count)} SMs` },
        { label: "Utilization", value: percent(device.utilization_ratio, 1), caption: "share of the range with a kernel running", testid: "gpu-utilization" },
        { label: "Est. SM efficiency", value: percent(device.est_sm_efficiency_ratio, 1), caption: "share of SMs with at least one block" },
        { label: "Est. achieved occupancy", value: percent(device.est_achieved_occupancy_ratio, 1), caption: "share of warps while kernels run" },
        { label: "Kernel time on Tensor Cores", value: percent(device.tensor_core_ratio, 1), caption: "share of kernel time, by kernel name" },
      ]}
    />
  );
}
