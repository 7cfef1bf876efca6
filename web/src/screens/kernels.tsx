// Kernels of one trace by name, or by launch properties.
import type { GraphReplays, KernelGroup, KernelLaunches, TraceKernels } from "../api/views";
import { MISSING, count, duration, inUnit, memory, percent } from "../base/quantities";
import { FigurePanel } from "../charts/figure_panel";
import { useCarryOver } from "../parts/carry_over";
import { LinkedTable } from "../parts/linked_table";
import { rowKey } from "../parts/row_key";
import { omittedRows, useRowLimit } from "../parts/row_limit";
import { SelectionPanel } from "../parts/selection_panel";
import { TraceScreen } from "../parts/trace_screen";
import { useOption } from "../parts/url_options";
import { bar, field, type Field } from "../widgets/fields";
import { KeyValues } from "../widgets/key_values";
import { Select } from "../widgets/select";
import { Tiles } from "../widgets/tiles";
import { kernelPies } from "./kernels/figures";

type Row = KernelGroup & Partial<KernelLaunches>;

const GROUPS = [["name", "Name"], ["properties", "Launch properties"]] as const;

export default function Kernels() {
  const [by, setBy] = useOption("by", GROUPS.map(([key]) => key));
  const [top, rowLimitSelect] = useRowLimit();
  const [carryOver, carryOverSelect] = useCarryOver();
  return (
    <TraceScreen
      view="kernels"
      title="Kernels"
      options={{ by, top, carry_over: carryOver }}
      tools={
        <>
          <Select label="Group by" value={by} choices={GROUPS} onChange={setBy} />
          {rowLimitSelect}
          {carryOverSelect}
        </>
      }
    >
      {(trace, payload) => <Content trace={trace} shareOf={payload.share_of} />}
    </TraceScreen>
  );
}

function Content({ trace, shareOf }: { trace: TraceKernels; shareOf: string }) {
  const rows: Row[] = trace.kernels.length > 0 ? trace.kernels : trace.launches;
  if (rows.length === 0) return null;
  return (
    <>
      <Tiles
        tiles={[
          { label: "Launches", value: count(trace.call_count), testid: "kernel-launches" },
          { label: "Total kernel time", value: duration(trace.total_ns), caption: "sum of durations, including overlaps", testid: "kernel-time" },
          { label: "On Tensor Cores", value: percent(trace.tensor_core_ratio, 1), caption: "of kernel time, by kernel name" },
          { label: "Communication", value: percent(trace.communication_ratio, 1), caption: "of kernel time" },
        ]}
      />
      <LinkedTable
        title="Kernels"
        testid="table-kernels"
        description={`Shares are of ${shareOf}.`}
        rows={rows}
        fields={kernelFields(rows)}
        keyOf={(row) => rowKey(row.name, launchKey(row))}
        footnote={omittedRows(rows.length, trace.group_count)}
        renderSelected={(row) => <KernelDetails row={row} />}
      />
      <div class="panels halves">
        {kernelPies(rows, trace).map((pie) => <FigurePanel key={pie.title} block={pie} />)}
      </div>
      {trace.graphs.length === 0 ? null : <GraphTable graphs={trace.graphs} />}
    </>
  );
}

function launchKey(row: Row): string {
  return [row.operator, row.grid?.join("x"), row.block?.join("x"), row.registers_per_thread, row.shared_memory_bytes]
    .map((property) => property ?? "")
    .join(" ")
    .trim();
}

export function kernelFields(rows: readonly Row[]): Field<Row>[] {
  const hasLaunchProperties = rows.some((row) => row.operator !== undefined);
  return [
    field<Row>("name", { label: "kernel" }),
    field<Row>("calls", { unit: "count" }),
    field<Row>("total_ns"),
    bar<Row>("share_ratio", "share"),
    field<Row>("mean_ns"),
    ...(hasLaunchProperties
      ? [
          field<Row>("operator"),
          field<Row>("grid", { value: (row) => row.grid?.join(" x ") ?? null }),
          field<Row>("block", { value: (row) => row.block?.join(" x ") ?? null }),
          field<Row>("registers_per_thread", { label: "registers", unit: "count" }),
          field<Row>("shared_memory_bytes", { label: "shared memory" }),
        ]
      : []),
    field<Row>("min_ns"),
    field<Row>("max_ns"),
    field<Row>("mean_blocks_per_multiprocessor", { label: "blocks per SM", unit: "count", description: "Mean, weighted by duration" }),
    field<Row>("mean_occupancy_percent", { label: "occupancy", description: "Estimated, mean weighted by duration" }),
    field<Row>("precision", { description: "Derived from the kernel name" }),
    field<Row>("tensor_cores", { label: "Tensor Cores", description: "Derived from the kernel name" }),
  ];
}

function KernelDetails({ row }: { row: Row }) {
  return (
    <SelectionPanel name={row.name}>
      <KeyValues
        entries={[
          ["Launches", count(row.calls)],
          ["Total", `${duration(row.total_ns)} (${percent(row.share_ratio, 1)})`],
          ["Mean", duration(row.mean_ns)],
          ["Min and max", `${duration(row.min_ns)} to ${duration(row.max_ns)}`],
          ["Precision, by name", row.precision ?? "unknown"],
          ["Tensor Cores, by name", row.tensor_cores ? "yes" : "no"],
          ["Blocks per SM", count(row.mean_blocks_per_multiprocessor)],
          ["Estimated occupancy", inUnit(row.mean_occupancy_percent, "percent")],
          ...(row.operator === undefined
            ? []
            : ([
                ["Operator", row.operator ?? "unknown"],
                ["Grid and block", `${row.grid?.join(" x ") ?? MISSING}, ${row.block?.join(" x ") ?? MISSING}`],
                ["Registers per thread", count(row.registers_per_thread ?? null)],
                ["Shared memory", memory(row.shared_memory_bytes ?? null)],
              ] as const)),
        ]}
      />
    </SelectionPanel>
  );
}

function GraphTable({ graphs }: { graphs: GraphReplays[] }) {
  return (
    <LinkedTable
      id="graphs"
      title="CUDA graphs"
      description="Their kernels are included in the table above."
      rows={graphs}
      fields={[
        field("graph", { unit: "count" }),
        field("replays", { unit: "count" }),
        field("kernel_count", { label: "kernels" }),
        field("distinct_kernel_count", { label: "distinct kernels" }),
        field("total_ns"),
        bar("share_ratio", "share"),
      ]}
    />
  );
}
