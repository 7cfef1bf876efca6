// Device utilization during steps: busy time, SM efficiency, occupancy.
import type { ComponentChildren } from "preact";

import type { DeviceMetrics, TraceMetrics } from "../../api/views";
import { count, memory } from "../../base/quantities";
import { FigurePanel } from "../../charts/figure_panel";
import { LinkedTable } from "../../parts/linked_table";
import { TraceScreen } from "../../parts/trace_screen";
import { columns, tile } from "../../widgets/fields";
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
        <FigurePanel wide testid="gpu-utilization" block={utilizationFigure(trace)} definition={`Shares are of the ${shareOf}.`} />
      </div>
      <LinkedTable
        title="By device"
        testid="table-gpu-metrics"
        rows={trace.devices}
        fields={columns(
          "DeviceMetrics", "device", "utilization_ratio", "est_sm_efficiency_ratio", ["unknown_grid_ratio", { isHidden: true }],
          "est_achieved_occupancy_ratio", ["unknown_occupancy_ratio", { isHidden: true }], "tensor_core_ratio",
          ["unknown_tensor_core_ratio", { isHidden: true }], "kernel_count", "multiprocessor_count", "memory_bytes", "compute_capability", ["device_name", { isLongName: true }],
        )}
      />
    </>
  );
}

function DeviceTiles({ device }: { device: DeviceMetrics }) {
  return (
    <Tiles
      tiles={[
        { label: "Device", value: device.device_name ?? `GPU ${device.device}`, caption: `${memory(device.memory_bytes)}, ${count(device.multiprocessor_count)} SMs` },
        tile("DeviceMetrics", device, "utilization_ratio", { caption: "share of the range with a kernel running", testid: "gpu-utilization" }),
        tile("DeviceMetrics", device, "est_sm_efficiency_ratio", { caption: "share of SMs with at least one block" }),
        tile("DeviceMetrics", device, "est_achieved_occupancy_ratio", { caption: "share of warps while kernels run" }),
        tile("DeviceMetrics", device, "tensor_core_ratio", { caption: "share of kernel time, by kernel name" }),
      ]}
    />
  );
}
