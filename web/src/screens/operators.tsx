// Operators of one trace: calls and time.
import type { OperatorGroup, OperatorShape, OperatorStack, Recomputation, TraceOperators } from "../api/views";
import { MISSING, duration, percent } from "../base/quantities";
import { LinkedTable } from "../parts/linked_table";
import { rowKey } from "../parts/row_key";
import { SelectionPanel } from "../parts/selection_panel";
import { StackFrames } from "../parts/stack_frames";
import { TraceScreen } from "../parts/trace_screen";
import { omittedRows, useSelect } from "../parts/url_controls";
import { columns, entries, tile, type Field } from "../widgets/fields";
import { KeyValues } from "../widgets/key_values";
import { Tiles } from "../widgets/tiles";

type Row = OperatorGroup & Partial<Pick<OperatorShape, "input_dims"> & Pick<OperatorStack, "stack">>;

const GROUPS = [["name", "Name"], ["shape", "Name and shapes"], ["stack", "Name and stack"]] as const;

export default function Operators() {
  const [by, groupSelect] = useSelect("by", "Group by", GROUPS);
  return (
    <TraceScreen view="operators" title="Operators" options={{ by }} tools={groupSelect} rowLimit>
      {(trace, payload) => <Content trace={trace} shareOf={payload.share_of} />}
    </TraceScreen>
  );
}

function rowsOf(trace: TraceOperators): Row[] {
  return [trace.operators, trace.shapes, trace.stacks].find((rows) => rows.length > 0) ?? [];
}

function Content({ trace, shareOf }: { trace: TraceOperators; shareOf: string }) {
  const rows = rowsOf(trace);
  if (rows.length === 0) return null;
  const keyOf = (row: Row): string => rowKey(row.name, row.input_dims ?? "", row.stack ?? "");
  return (
    <>
      <Tiles
        tiles={[
          tile("TraceOperators", trace, "call_count", { testid: "operator-calls" }),
          tile("TraceOperators", trace, "group_count"),
          tile("TraceOperators", trace, "host_self_ns", { caption: "of all calls" }),
          ...(trace.device_self_ns === null ? [] : [tile("TraceOperators", trace, "device_self_ns", { caption: "work launched directly" })]),
        ]}
      />
      <LinkedTable
        title="Operators"
        testid="table-operators"
        definition={`Shares are of ${shareOf}.`}
        rows={rows}
        fields={operatorFields(rows)}
        keyOf={keyOf}
        footnote={omittedRows(rows.length, trace.group_count)}
        renderSelected={(row) => <OperatorDetails row={row} />}
      />
      {trace.replayed.length === 0 ? null : (
        <LinkedTable
          id="replayed"
          title="Operators captured into graphs"
          rows={trace.replayed}
          fields={columns("ReplayedOperator", "name", "work_count", "device_ns", "device_ratio")}
        />
      )}
      {trace.recomputation === null || trace.recomputation.call_count === 0 ? null : <RecomputationTable recomputation={trace.recomputation} />}
    </>
  );
}

function RecomputationTable({ recomputation }: { recomputation: Recomputation }) {
  const { device_ratio: deviceShare, host_ratio: hostShare } = recomputation;
  return (
    <LinkedTable
      id="recomputed"
      title="Recomputed operators"
      testid="table-recomputed"
      description={`Forward operators that activation checkpointing runs again in the backward pass: ${percent(deviceShare, 1)} of device time, ${percent(hostShare, 1)} of host time.`}
      rows={recomputation.operators}
      fields={columns("RecomputedOperator", "name", "calls", "device_ns", "host_ns")}
    />
  );
}

/** Columns with data in these rows. */
export function operatorFields(rows: readonly Row[]): Field<Row>[] {
  const hasDeviceTime = rows.some((row) => row.device_self_ns !== null);
  return [
    ...columns(
      "OperatorGroup", ["name", { isLongName: true }], "calls",
      hasDeviceTime && "device_self_ns", hasDeviceTime && "device_self_ratio", hasDeviceTime && "device_total_ns",
      "host_self_ns", "host_self_ratio", "host_total_ns",
      hasDeviceTime && "tensor_core_eligible", hasDeviceTime && "tensor_core_total_ratio",
      hasDeviceTime && "unknown_tensor_core_ratio",
    ),
    ...columns<"OperatorShape", Row>("OperatorShape", rows.some((row) => row.input_dims !== undefined) && "input_dims"),
    ...columns<"OperatorStack", Row>(
      "OperatorStack",
      rows.some((row) => row.stack !== undefined) && ["stack", { draw: (row) => <span class="name">{(row.stack ?? MISSING).split(";")[0]?.slice(0, 300)}</span> }],
    ),
  ];
}

function OperatorDetails({ row }: { row: Row }) {
  return (
    <SelectionPanel name={row.name}>
      <KeyValues
        entries={[
          ...entries(
            "OperatorGroup", row, "calls",
            ...(row.device_self_ns === null
              ? []
              : [
                  ["device_self_ns", `${duration(row.device_self_ns)} (${percent(row.device_self_ratio, 1)})`] as const,
                  ...(["device_total_ns", "tensor_core_self_ratio", "tensor_core_total_ratio", "unknown_tensor_core_ratio"] as const),
                ]),
            ["host_self_ns", `${duration(row.host_self_ns)} (${percent(row.host_self_ratio, 1)})`],
            "host_total_ns",
          ),
          ...(row.input_dims === undefined ? [] : [["Input shapes", row.input_dims ?? "not recorded"] as const]),
        ]}
      />
      {row.stack === undefined || row.stack === null ? null : (
        <>
          <h3>Called from</h3>
          <StackFrames label="Stack, innermost first" frames={row.stack.split(";")} />
        </>
      )}
    </SelectionPanel>
  );
}
