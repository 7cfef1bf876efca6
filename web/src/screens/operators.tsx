// Operators of one trace: calls and time.
import type { OperatorGroup, OperatorShape, OperatorStack, TraceOperators } from "../api/views";
import { MISSING, count, duration, percent } from "../base/quantities";
import { FigurePanel } from "../charts/figure_panel";
import { LinkedTable } from "../parts/linked_table";
import { rowKey } from "../parts/row_key";
import { omittedRows, useRowLimit } from "../parts/row_limit";
import { SelectionPanel } from "../parts/selection_panel";
import { StackFrames } from "../parts/stack_frames";
import { TraceScreen } from "../parts/trace_screen";
import { useOption } from "../parts/url_options";
import { bar, field, type Field } from "../widgets/fields";
import { KeyValues } from "../widgets/key_values";
import { RatioBar } from "../widgets/ratio_bar";
import { Select } from "../widgets/select";
import { Tiles } from "../widgets/tiles";
import { operatorPies } from "./operators/figures";

type Row = OperatorGroup & Partial<Pick<OperatorShape, "input_dims"> & Pick<OperatorStack, "stack">>;

const GROUPS = [["name", "Name"], ["shape", "Name and shapes"], ["stack", "Name and stack"]] as const;

export default function Operators() {
  const [by, setBy] = useOption("by", GROUPS.map(([key]) => key));
  const [top, rowLimitSelect] = useRowLimit();
  return (
    <TraceScreen
      view="operators"
      title="Operators"
      options={{ by, top }}
      tools={
        <>
          <Select label="Group by" value={by} choices={GROUPS} onChange={setBy} />
          {rowLimitSelect}
        </>
      }
    >
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
          { label: "Calls", value: count(trace.call_count), testid: "operator-calls" },
          { label: "Groups", value: count(trace.group_count) },
          { label: "Host self time", value: duration(trace.host_self_ns), caption: "of all calls" },
          { label: "Device self time", value: duration(trace.device_self_ns), caption: "work launched directly" },
        ]}
      />
      <LinkedTable
        title="Operators"
        testid="table-operators"
        description={`Shares are of ${shareOf}.`}
        rows={rows}
        fields={operatorFields(rows)}
        keyOf={keyOf}
        footnote={omittedRows(rows.length, trace.group_count)}
        renderSelected={(row) => <OperatorDetails row={row} />}
      />
      <div class="panels halves">
        {operatorPies(rows).map((pie) => <FigurePanel key={pie.title} block={pie} />)}
      </div>
    </>
  );
}

/** Columns with data in these rows. */
export function operatorFields(rows: readonly Row[]): Field<Row>[] {
  const hasDeviceTime = rows.some((row) => row.device_self_ns !== null);
  const hasShapes = rows.some((row) => row.input_dims !== undefined);
  const hasStacks = rows.some((row) => row.stack !== undefined);
  return [
    field<Row>("name", { label: "operator" }),
    field<Row>("calls", { unit: "count" }),
    ...(hasDeviceTime
      ? [
          field<Row>("device_self_ns"),
          bar<Row>("device_self_ratio", "share"),
          field<Row>("device_total_ns"),
        ]
      : []),
    field<Row>("host_self_ns"),
    field<Row>("host_self_ratio", { label: "share", ...(hasDeviceTime ? {} : { draw: (row: Row) => <RatioBar ratio={row.host_self_ratio} /> }) }),
    field<Row>("host_total_ns"),
    ...(hasDeviceTime
      ? [
          field<Row>("tensor_core_eligible", { label: "Tensor Core eligible" }),
          field<Row>("tensor_core_total_ratio", { label: "on Tensor Cores" }),
        ]
      : []),
    ...(hasShapes ? [field<Row>("input_dims", { label: "input shapes" })] : []),
    ...(hasStacks ? [field<Row>("stack", { label: "called from", draw: (row) => <span class="name">{(row.stack ?? MISSING).split(";")[0]?.slice(0, 300)}</span> })] : []),
  ];
}

function OperatorDetails({ row }: { row: Row }) {
  return (
    <SelectionPanel name={row.name}>
      <KeyValues
        entries={[
          ["Calls", count(row.calls)],
          ...(row.device_self_ns === null
            ? []
            : ([
                ["Device self", `${duration(row.device_self_ns)} (${percent(row.device_self_ratio, 1)})`],
                ["Device total", duration(row.device_total_ns)],
                ["Tensor Core share, self", percent(row.tensor_core_self_ratio, 1)],
                ["Tensor Core share, total", percent(row.tensor_core_total_ratio, 1)],
              ] as const)),
          ["Host self", `${duration(row.host_self_ns)} (${percent(row.host_self_ratio, 1)})`],
          ["Host total", duration(row.host_total_ns)],
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
