// Device memory of one trace: curve, peak and allocations.
import type { DeviceMemoryView, MemoryPeak, MemoryTimelineView, TraceMemory } from "../api/views";
import { count, duration, memory } from "../base/quantities";
import { FigurePanel } from "../charts/figure_panel";
import type { Plot } from "../charts/plot";
import { LinkedTable } from "../parts/linked_table";
import { rowKey } from "../parts/row_key";
import { TraceScreen } from "../parts/trace_screen";
import { omittedRows, useSelect } from "../parts/url_controls";
import { useView } from "../state/fetch";
import { columns, tile } from "../widgets/fields";
import { Panel } from "../widgets/panel";
import { QualityNotes, EmptyState, ResourceView } from "../widgets/resource_view";
import { ShareBar } from "../widgets/share_bar";
import { Tiles } from "../widgets/tiles";

export default function Memory() {
  return (
    <TraceScreen view="memory" title="Memory" rowLimit withoutTrace={<WithoutTrace />}>
      {(trace, { timelines }) => (
        <>
          {trace.devices.length === 0 ? null : <Devices trace={trace} />}
          <Timelines timelines={timelines} />
        </>
      )}
    </TraceScreen>
  );
}

function WithoutTrace() {
  return (
    <ResourceView resource={useView("memory", {})}>
      {({ timelines, missing }) => (missing === null ? <Timelines timelines={timelines} /> : <EmptyState text={missing} />)}
    </ResourceView>
  );
}

/** Memory by category of each imported memory timeline. */
function Timelines({ timelines }: { timelines: readonly MemoryTimelineView[] }) {
  return (
    <>
      {timelines.map((timeline, index) => (
        <section key={timeline.name} aria-label={timeline.name}>
          <h2 class="section-title">{timeline.name}</h2>
          <div class="panels">
            <FigurePanel wide testid={`category-curves-${index}`} block={categoryFigure(timeline)} />
          </div>
          <LinkedTable
            id={`categories-${index}`}
            title="Memory by category"
            testid={`table-memory-categories-${index}`}
            description={`The peak is ${memory(timeline.peak_bytes)}, ${duration(timeline.peak_after_ns)} after the start.`}
            definition={`Shares are of the ${timeline.share_of}.`}
            rows={timeline.categories}
            fields={columns("CategoryMemory", "category", "at_peak_bytes", "share_ratio", "largest_bytes", "end_bytes")}
          />
        </section>
      ))}
    </>
  );
}

function categoryFigure({ curve_after_ns: x, curves, peak_bytes, during }: MemoryTimelineView): Plot {
  return {
    kind: "plot",
    title: "Memory by category over time",
    x: { name: during === null ? "after the first change" : "after the start of the trace", unit: "ns" },
    y: { name: "memory", unit: "bytes" },
    series: curves.map(({ category, curve_bytes }) => ({ name: category, x, y: curve_bytes, draw: "step" as const })),
    levels: [{ name: "peak of the sum", value: peak_bytes }],
  };
}

/** Sort devices, GPUs first: their memory is the scarce one. */
export function gpusFirst(devices: readonly DeviceMemoryView[]): DeviceMemoryView[] {
  return [...devices].sort((a, b) => Number(a.device === "CPU") - Number(b.device === "CPU"));
}

function Devices({ trace }: { trace: TraceMemory }) {
  const devices = gpusFirst(trace.devices);
  const [name, deviceSelect] = useSelect("device", "Device", devices.map((candidate) => candidate.device));
  const device = devices.find((candidate) => candidate.device === name);
  if (device === undefined) return null;
  return (
    <>
      {deviceSelect === null ? null : <p class="tools spaced">{deviceSelect}</p>}
      <QualityNotes quality={[]} notes={device.notes} />
      <Device device={device} />
    </>
  );
}

function Device({ device }: { device: DeviceMemoryView }) {
  return (
    <>
      <Tiles
        tiles={[
          tile("DeviceMemoryView", device, "peak_bytes", { caption: `${duration(device.peak_after_ns)} after the start of the trace`, testid: "memory-peak" }),
          tile("DeviceMemoryView", device, "peak_reserved_bytes", { caption: "by the framework's allocator" }),
          tile("DeviceMemoryView", device, "start_bytes", { caption: device.absolute ? "allocated before the trace" : "unknown: the curve shows changes" }),
          tile("DeviceMemoryView", device, "end_bytes"),
          tile("DeviceMemoryView", device, "event_count", { caption: `${count(device.outside_count)} outside of operators` }),
        ]}
      />
      <div class="panels">
        <FigurePanel wide testid="memory-curve" block={memoryFigure(device)} />
        {device.peak === null ? null : <Peak peak={device.peak} />}
      </div>
      <LinkedTable
        id="operators"
        title="Allocations by operator"
        testid="table-memory-operators"
        definition="Including child operators, except for self columns."
        rows={device.operators}
        keyOf={(row) => rowKey(row.name)}
        footnote={omittedRows(device.operators.length, device.operator_count)}
        fields={columns(
          "OperatorMemory", ["name", { isLongName: true }], "calls", "self_size_increase_bytes", "size_increase_bytes",
          "self_allocation_count", "allocation_count", "self_allocation_bytes", "allocation_bytes",
        )}
      />
      {device.blocks.length === 0 ? null : <LinkedTable
        id="blocks"
        title="Largest blocks"
        testid="table-memory-blocks"
        definition="Allocations with their release. Times are relative to the start of the trace; events outside of it have none."
        rows={device.blocks}
        footnote={omittedRows(device.blocks.length, device.block_count)}
        fields={columns("MemoryBlockRow", ["operator", { isLongName: true }], "size_bytes", "allocated_after_ns", "released_after_ns", "lifetime_ns")}
      />}
    </>
  );
}

function memoryFigure(device: DeviceMemoryView): Plot {
  const x = device.curve_after_ns;
  const reserved = device.reserved_curve_bytes;
  return {
    kind: "plot",
    title: `Memory of ${device.device} over time`,
    x: { name: "after the start of the trace", unit: "ns", min: 0 },
    y: { name: device.absolute ? "memory" : "change in memory", unit: "bytes" },
    series: [
      { name: "allocated", x, y: device.allocated_curve_bytes, draw: "step", filled: true },
      ...(reserved === null ? [] : [{ name: "reserved", x, y: reserved, draw: "step" as const }]),
    ],
    levels: [{ name: "peak", value: device.peak_bytes }],
  };
}

function Peak({ peak }: { peak: MemoryPeak }) {
  if (peak.missing !== null && peak.holders.length === 0) return <EmptyState title="Memory peak" text={peak.missing} />;
  const [low, high] = [peak.twice_low_bytes, peak.twice_high_bytes];
  return (
    <>
      {low === null || high === null ? null : (
        <p data-testid="twice-as-large">
          {`A batch twice as large would need ${low === high ? memory(low) : `${memory(low)} to ${memory(high)}`} at the peak, now ${memory(peak.allocated_bytes)}.`}
        </p>
      )}
      {peak.purposes.length === 0 ? null : (
        <Panel title="Memory at the peak by purpose" definition={`Shares are of the ${memory(peak.allocated_bytes)} ${peak.share_of}.`} wide>
          <ShareBar
            label="Memory at the peak by purpose"
            segments={peak.purposes.map(({ purpose, held_bytes, held_ratio }) => ({ name: purpose, ratio: held_ratio ?? 0, amount: memory(held_bytes) }))}
          />
        </Panel>
      )}
      <LinkedTable
        id="holders"
        title="Memory at the peak by operator"
        testid="table-memory-holders"
        description={`${count(peak.block_count)} blocks of the trace, plus ${memory(peak.before_bytes)} allocated before it.`}
        definition={`Shares are of ${peak.share_of}.`}
        rows={peak.holders}
        footnote={omittedRows(peak.holders.length, peak.holder_count)}
        fields={columns("MemoryHolder", ["operator", { isLongName: true }], "held_bytes", "held_ratio", "block_count")}
      />
    </>
  );
}
