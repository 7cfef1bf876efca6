// Roofline: achieved performance relative to the limits of the device.
import type { RooflineGroup, TraceRoofline } from "../api/views";
import { duration, inUnit, memory } from "../base/quantities";
import { sentence } from "../base/text";
import { FigurePanel } from "../charts/figure_panel";
import { LinkedTable } from "../parts/linked_table";
import { rowKey } from "../parts/row_key";
import { SelectionPanel } from "../parts/selection_panel";
import { TraceScreen } from "../parts/trace_screen";
import { omittedRows, useTextInput } from "../parts/url_controls";
import { columns, entries, tile } from "../widgets/fields";
import { KeyValues } from "../widgets/key_values";
import { Tiles } from "../widgets/tiles";
import { rooflinePlot } from "./roofline/figure";

export default function Roofline() {
  const [peaks, peaksInput] = useTextInput("peaks", "Peaks", {
    placeholder: "from the device model",
    help: "Peak rates of the device, in the format of `--peaks`",
  });
  return (
    <TraceScreen view="roofline" title="Roofline" options={{ peaks }} tools={peaksInput} rowLimit>
      {(trace) => (trace.groups.length === 0 ? null : <Content trace={trace} />)}
    </TraceScreen>
  );
}

function Content({ trace }: { trace: TraceRoofline }) {
  const { hardware, utilization } = trace;
  return (
    <>
      <Tiles
        tiles={[
          tile("Utilization", utilization, "mean_mfu_ratio", { caption: utilization === null ? "the trace has no steps" : utilization.mean_mfu_ratio === null ? utilization.notes.join("; ") : `of ${utilization.share_of}`, testid: "mfu" }),
          tile("DeviceView", hardware, "device_name", { caption: hardware === null ? null : (hardware.source ?? hardware.peaks_of) }),
          tile("DeviceView", hardware, "memory_bytes_per_s"),
          tile("TraceRoofline", trace, "modelled_ratio", { caption: trace.share_of === null ? null : `of the ${trace.share_of}` }),
        ]}
      />
      <div class="panels">
        {hardware === null ? null : <FigurePanel wide testid="roofline-plot" block={rooflinePlot(hardware, trace.groups)} />}
      </div>
      <LinkedTable
        id="gaps"
        title="Potential savings at the roofline"
        testid="table-roofline-gaps"
        rows={trace.gaps}
        keyOf={(row) => rowKey(row.name, row.input_dims)}
        fields={columns("RooflineGap", "name", "saved_ns", "saved_ratio", "roofline_ratio", "bound", "input_dims")}
      />
      <LinkedTable
        title="Call groups"
        testid="table-roofline"
        definition={trace.share_of === null ? null : `Shares are of ${trace.share_of}.`}
        rows={trace.groups}
        keyOf={(row) => rowKey(row.name, row.input_dims, row.input_types, row.input_strides)}
        footnote={omittedRows(trace.groups.length, trace.group_count)}
        renderSelected={(row) => <RooflineDetails row={row} />}
        fields={columns(
          "RooflineGroup", ["name", { isLongName: true }], "device_ns", "time_ratio", ["roofline_ratio", { display: "" }], "bound", "calls",
          "intensity_flop_per_byte", "achieved_flop_per_s", "achieved_bytes_per_s",
          ["input_dims", { draw: ({ input_dims }) => <span class="name briefest" title={input_dims ?? undefined}>{input_dims}</span> }],
        )}
      />
      <LinkedTable
        id="families"
        title="Families"
        testid="table-roofline-families"
        rows={trace.families}
        fields={columns("FamilyTotals", "family", "device_ns", "time_ratio", "total_flop", "total_bytes", "roofline_ratio")}
      />
      {utilization === null || utilization.mean_mfu_ratio === null ? null : <StepTable utilization={utilization} />}
    </>
  );
}

function StepTable({ utilization }: { utilization: NonNullable<TraceRoofline["utilization"]> }) {
  return (
    <LinkedTable
      id="steps"
      title="Utilization by step"
      description={utilization.notes.length === 0 ? null : utilization.notes.map(sentence).join(" ")}
      definition={`Utilization is of ${utilization.share_of}.`}
      rows={utilization.steps}
      fields={columns("StepUtilization", "step", "step_ns", "matrix_flop", "mfu_ratio")}
    />
  );
}

function RooflineDetails({ row }: { row: RooflineGroup }) {
  return (
    <SelectionPanel name={row.name}>
      <KeyValues
        entries={entries(
          "RooflineGroup", row,
          ...(["input_dims", "input_types", "input_strides", "concrete_inputs"] as const).map((name) => [name, row[name] ?? "not recorded"] as const),
          ["precision", row.precision ?? "unknown"],
          "family",
          ["Work per call", `${inUnit(row.call_flop, "flop")}, ${memory(row.call_bytes)}`],
          ["Mean and median", `${duration(row.mean_ns)}, ${duration(row.p50_ns)}`],
          ["Min and max", `${duration(row.min_ns)} to ${duration(row.max_ns)}`],
          "roofline_ns", "peak_compute_ratio", "peak_bandwidth_ratio", "calls",
          ...(["estimate", "anomaly", "reason"] as const).filter((name) => row[name] !== null),
        )}
      />
    </SelectionPanel>
  );
}
