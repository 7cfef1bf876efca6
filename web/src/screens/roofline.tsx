// Roofline: achieved performance relative to the limits of the device.
import type { RooflineGroup, TraceRoofline } from "../api/views";
import { count, duration, inUnit, memory, percent } from "../base/quantities";
import { sentence } from "../base/text";
import { FigurePanel } from "../charts/figure_panel";
import { LinkedTable } from "../parts/linked_table";
import { rowKey } from "../parts/row_key";
import { omittedRows, useRowLimit } from "../parts/row_limit";
import { SelectionPanel } from "../parts/selection_panel";
import { TraceScreen } from "../parts/trace_screen";
import { useText } from "../parts/url_options";
import { bar, field } from "../widgets/fields";
import { KeyValues } from "../widgets/key_values";
import { Tiles } from "../widgets/tiles";
import { rooflinePlot } from "./roofline/figure";

export default function Roofline() {
  const [top, rowLimitSelect] = useRowLimit();
  const [peaks, setPeaks] = useText("peaks");
  return (
    <TraceScreen
      view="roofline"
      title="Roofline"
      options={{ top, peaks }}
      tools={
        <>
          <label class="choice">
            <span>Peaks</span>
            <input
              type="text"
              placeholder="from the device model"
              value={peaks}
              title="Peak rates of the device, in the format of `--peaks`"
              onChange={(event) => { setPeaks(event.currentTarget.value.trim()); }}
            />
          </label>
          {rowLimitSelect}
        </>
      }
    >
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
          { label: "Model FLOPs utilization", value: percent(utilization?.mean_mfu_ratio ?? null, 1), caption: utilization === null ? "the trace has no steps" : `of ${utilization.share_of}`, testid: "mfu" },
          { label: "Device", value: hardware?.device_name ?? "unknown", caption: hardware === null ? null : (hardware.source ?? hardware.peaks_of) },
          { label: "Peak memory bandwidth", value: inUnit(hardware?.memory_bytes_per_s ?? null, "bytes_per_s") },
          { label: "Modelled", value: percent(trace.modelled_ratio, 1), caption: trace.share_of === null ? null : `of the ${trace.share_of}` },
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
        fields={[
          field("name", { label: "operator" }),
          field("saved_ns", { label: "saved" }),
          bar("saved_ratio", "share"),
          field("roofline_ratio", { label: "of the roofline" }),
          field("bound", { label: "bound by" }),
          field("input_dims", { label: "input shapes" }),
        ]}
      />
      <LinkedTable
        title="Call groups"
        testid="table-roofline"
        description={trace.share_of === null ? null : `Shares are of ${trace.share_of}.`}
        rows={trace.groups}
        keyOf={(row) => rowKey(row.name, row.input_dims, row.input_types, row.input_strides)}
        footnote={omittedRows(trace.groups.length, trace.group_count)}
        renderSelected={(row) => <RooflineDetails row={row} />}
        fields={[
          field("name", { label: "operator" }),
          field("device_ns", { label: "device time" }),
          bar("time_ratio", "share"),
          bar("roofline_ratio", "of the roofline"),
          field("bound", { label: "bound by" }),
          field("calls", { unit: "count" }),
          field("precision"),
          field("intensity_flop_per_byte", { label: "FLOP per byte", numeric: true, unit: "count" }),
          field("achieved_flop_per_s", { label: "achieved" }),
          field("achieved_bytes_per_s", { label: "bandwidth" }),
          field("family"),
          field("input_dims", { label: "input shapes" }),
        ]}
      />
      <FamilyTable rows={trace.families} />
      {utilization === null || utilization.steps.length === 0 ? null : <StepTable utilization={utilization} />}
    </>
  );
}

function FamilyTable({ rows }: { rows: TraceRoofline["families"] }) {
  return (
    <LinkedTable
      id="families"
      title="Families"
      testid="table-roofline-families"
      rows={rows}
      fields={[
        field("family"),
        field("device_ns", { label: "device time" }),
        bar("time_ratio", "share"),
        field("total_flop", { label: "work" }),
        field("total_bytes", { label: "moved" }),
        bar("roofline_ratio", "of the roofline"),
      ]}
    />
  );
}

function StepTable({ utilization }: { utilization: NonNullable<TraceRoofline["utilization"]> }) {
  return (
    <LinkedTable
      id="steps"
      title="Utilization by step"
      description={[`Of ${utilization.share_of}.`, ...utilization.notes.map(sentence)].join(" ")}
      rows={utilization.steps}
      fields={[
        field("step"),
        field("step_ns", { label: "duration" }),
        field("matrix_flop", { label: "matrix work" }),
        bar("mfu_ratio", "utilization"),
      ]}
    />
  );
}

function RooflineDetails({ row }: { row: RooflineGroup }) {
  return (
    <SelectionPanel name={row.name}>
      <KeyValues
        entries={[
          ["Input shapes", row.input_dims ?? "not recorded"],
          ["Types", row.input_types ?? "not recorded"],
          ["Strides", row.input_strides ?? "not recorded"],
          ["Other arguments", row.concrete_inputs ?? "not recorded"],
          ["Precision", row.precision ?? "unknown"],
          ["Work per call", `${inUnit(row.call_flop, "flop")}, ${memory(row.call_bytes)}`],
          ["Mean and median", `${duration(row.mean_ns)}, ${duration(row.p50_ns)}`],
          ["Min and max", `${duration(row.min_ns)} to ${duration(row.max_ns)}`],
          ["Time at the roofline", duration(row.roofline_ns)],
          ["Share of peak compute", percent(row.peak_compute_ratio, 1)],
          ["Share of peak bandwidth", percent(row.peak_bandwidth_ratio, 1)],
          ["Calls", count(row.calls)],
          ...([["Estimate", row.estimate], ["Anomaly", row.anomaly], ["Not modelled", row.reason]] as const).flatMap(
            ([name, text]) => (text === null ? [] : [[name, text] as const]),
          ),
        ]}
      />
    </SelectionPanel>
  );
}
