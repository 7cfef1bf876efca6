// Kernels of one trace by name, or by launch properties.
import type { GraphReplays, KernelDurationClass, KernelGroup, KernelLaunches, TraceKernels } from "../api/views";
import { MISSING, count, duration, percent } from "../base/quantities";
import { LinkedTable } from "../parts/linked_table";
import { rowKey } from "../parts/row_key";
import { SelectionPanel } from "../parts/selection_panel";
import { TraceScreen } from "../parts/trace_screen";
import { omittedRows, useSelect } from "../parts/url_controls";
import { column, columns, entries, tile, type Field } from "../widgets/fields";
import { KeyValues } from "../widgets/key_values";
import { Tiles } from "../widgets/tiles";

type Row = KernelGroup & Partial<KernelLaunches>;

const GROUPS = [["name", "Name"], ["properties", "Launch properties"]] as const;

export default function Kernels() {
  const [by, groupSelect] = useSelect("by", "Group by", GROUPS);
  return (
    <TraceScreen view="kernels" title="Kernels" options={{ by }} tools={groupSelect} rowLimit carryOver communication>
      {(trace, payload) => <Content trace={trace} shareOf={payload.share_of} communicationOf={payload.communication_of} />}
    </TraceScreen>
  );
}

function Content({ trace, shareOf, communicationOf }: { trace: TraceKernels; shareOf: string; communicationOf: string }) {
  const rows: Row[] = trace.kernels.length > 0 ? trace.kernels : trace.launches;
  if (rows.length === 0) return null;
  return (
    <>
      <Tiles
        tiles={[
          tile("TraceKernels", trace, "call_count", { testid: "kernel-launches" }),
          tile("TraceKernels", trace, "total_ns", { caption: "sum of durations, including overlaps", testid: "kernel-time" }),
          tile("TraceKernels", trace, "tensor_core_ratio", { caption: "of kernel time, by kernel name", testid: "tensor-core-share" }),
          tile("TraceKernels", trace, "unknown_tensor_core_ratio", { caption: "of kernel time: names do not show it" }),
          tile("TraceKernels", trace, "communication_ratio", { caption: "of kernel time", testid: "kernel-communication" }),
          tile("TraceKernels", trace, "short_count", { caption: `of ${count(trace.call_count)}, ${duration(trace.short_ns)} in total` }),
        ]}
      />
      <LinkedTable
        title="Kernels"
        testid="table-kernels"
        definition={`Shares are of ${shareOf}. Communication: ${communicationOf}`}
        rows={rows}
        fields={kernelFields(rows)}
        keyOf={(row) => rowKey(row.name, launchKey(row))}
        footnote={omittedRows(rows.length, trace.group_count)}
        renderSelected={(row) => <KernelDetails row={row} />}
      />
      <LinkedTable
        id="durations"
        title="Kernels by duration"
        testid="table-durations"
        definition={`Shares of time are of ${shareOf}.`}
        rows={trace.durations}
        keyOf={(row) => String(row.from_ns)}
        fields={columns(
          "KernelDurationClass", ["from_ns", { isHidden: true }], ["to_ns", { isHidden: true }], "total_ns", "share_ratio", "calls", "calls_ratio",
          column("duration", "duration", "none", durationClass, { isLongName: true }),
        )}
      />
      {trace.graphs.length === 0 ? null : <GraphTable graphs={trace.graphs} />}
      {trace.graph_kernels.length === 0 ? null : (
        <LinkedTable
          id="graph-kernels"
          title="Kernels of graphs"
          description="Operators are those of the capture, if a trace of the run has it."
          rows={trace.graph_kernels}
          fields={columns("GraphKernel", "number", ["name", { isLongName: true }], "operator", "calls", "total_ns", "share_ratio")}
        />
      )}
    </>
  );
}

function durationClass({ from_ns, to_ns }: KernelDurationClass): string {
  if (to_ns === null) return `${duration(from_ns)} and longer`;
  return from_ns === 0 ? `below ${duration(to_ns)}` : `${duration(from_ns)} to ${duration(to_ns)}`;
}

function launchKey(row: Row): string {
  return [row.operator, row.grid?.join("x"), row.block?.join("x"), row.registers_per_thread, row.shared_memory_bytes]
    .map((property) => property ?? "")
    .join(" ")
    .trim();
}

export function kernelFields(rows: readonly Row[]): Field<Row>[] {
  const hasLaunchProperties = rows.some((row) => row.operator !== undefined);
  return columns<"KernelLaunches", Row>(
    "KernelLaunches", ["name", { isLongName: true }], "total_ns", "share_ratio", "calls", "mean_ns",
    ...(hasLaunchProperties
      ? [
          "operator" as const,
          ["grid", { value: (row: Row) => row.grid?.join(" x ") ?? null }] as const,
          ["block", { value: (row: Row) => row.block?.join(" x ") ?? null }] as const,
          "registers_per_thread" as const,
          "shared_memory_bytes" as const,
        ]
      : []),
    "min_ns", "max_ns", "mean_blocks_per_multiprocessor", "mean_occupancy_percent", "precision", "tensor_cores",
  );
}

function KernelDetails({ row }: { row: Row }) {
  return (
    <SelectionPanel name={row.name}>
      <KeyValues
        entries={[
          ...entries(
            "KernelGroup", row, "calls",
            ["total_ns", `${duration(row.total_ns)} (${percent(row.share_ratio, 1)})`],
            "mean_ns",
            ["Min and max", `${duration(row.min_ns)} to ${duration(row.max_ns)}`],
            ["precision", row.precision ?? "unknown"],
            "tensor_cores", "mean_blocks_per_multiprocessor", "mean_occupancy_percent",
          ),
          ...(row.operator === undefined
            ? []
            : entries(
                "KernelLaunches", row,
                ["operator", row.operator ?? "unknown"],
                ["Grid and block", `${row.grid?.join(" x ") ?? MISSING}, ${row.block?.join(" x ") ?? MISSING}`],
                "registers_per_thread", "shared_memory_bytes",
              )),
        ]}
      />
    </SelectionPanel>
  );
}

function GraphTable({ graphs }: { graphs: GraphReplays[] }) {
  return (
    <LinkedTable
      id="graphs"
      title="Graphs"
      description="Replays of CUDA and HIP graphs. Their kernels are included in the table above."
      rows={graphs}
      fields={columns("GraphReplays", "number", "graph", "replays", "kernel_count", "distinct_kernel_count", "total_ns", "share_ratio")}
    />
  );
}
