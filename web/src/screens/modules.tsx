// Modules of the model as a tree: time with and without submodules.
import type { Module, TraceModules } from "../api/views";
import { duration, percent } from "../base/quantities";
import { FlameGraph } from "../parts/flame_graph";
import { LinkedTable } from "../parts/linked_table";
import { rowKey } from "../parts/row_key";
import { SelectionPanel } from "../parts/selection_panel";
import { TimelineLink } from "../parts/timeline_link";
import { TraceScreen } from "../parts/trace_screen";
import { omittedRows, useSelect } from "../parts/url_controls";
import { useView } from "../state/fetch";
import { columns, entries, tile, type Field } from "../widgets/fields";
import { KeyValues } from "../widgets/key_values";
import { Panel } from "../widgets/panel";
import { ResourceView, EmptyState } from "../widgets/resource_view";
import { Tiles } from "../widgets/tiles";

const DEPTHS = ["all", "0", "1", "2", "3", "4"].map((level) => [level, level === "all" ? "all levels" : `level ${level}`] as const);

export default function Modules() {
  const [depth, depthSelect] = useSelect("depth", "Depth", DEPTHS);
  return (
    <TraceScreen view="modules" title="Modules" tools={depthSelect} rowLimit>
      {(trace, payload) => (
        <Content trace={trace} shareOf={payload.share_of} maxDepth={depth === "all" ? Infinity : Number(depth)} />
      )}
    </TraceScreen>
  );
}

function Content({ trace, shareOf, maxDepth }: { trace: TraceModules; shareOf: string; maxDepth: number }) {
  const rows = trace.modules.filter((row) => row.depth <= maxDepth);
  if (trace.modules.length === 0) return null;
  return (
    <>
      <Tiles
        tiles={[
          tile("TraceModules", trace, "module_count", { caption: trace.source === null ? null : `as recorded by ${trace.source}` }),
          tile("TraceModules", trace, "operator_device_ns"),
          tile("TraceModules", trace, "outside_device_ns", { caption: "of that device time" }),
          ...(trace.no_operator_device_ns ? [tile("TraceModules", trace, "no_operator_device_ns")] : []),
        ]}
      />
      <ModuleFlameGraph key={trace.trace} trace={trace} />
      <LinkedTable
        title="Modules"
        testid="table-modules"
        description="Unsorted, the table is a tree: each module is followed by its submodules."
        definition={`Shares are of ${shareOf}.`}
        rows={rows}
        fields={moduleFields(rows)}
        keyOf={(row) => rowKey(row.name.trim(), row.depth)}
        footnote={omittedRows(trace.modules.length, trace.module_count)}
        renderSelected={(row) => <ModuleDetails row={row} />}
      />
    </>
  );
}

const DEVICE_FIRST = ["device", "host"] as const;
const HOST_FIRST = ["host", "device"] as const;

/** Down to operators, regardless of the row limit of the table. */
function ModuleFlameGraph({ trace }: { trace: TraceModules }) {
  const [by, timeSelect] = useSelect("time", "Time", trace.operator_device_ns === null ? HOST_FIRST : DEVICE_FIRST);
  const resource = useView("modules-flame", { trace: trace.trace, by });
  return (
    <Panel
      title="Modules and their operators"
      definition={resource.data?.time_of}
      testid="modules-flame"
      wide
      tools={timeSelect}
    >
      <ResourceView resource={resource}>
        {({ traces: [graph] }) => {
          if (graph === undefined) return null;
          if (graph.roots.length === 0) return <EmptyState text={graph.missing ?? "no module has any time"} />;
          return (
            <FlameGraph
              roots={graph.roots}
              left_out_ns={graph.left_out_ns}
              note={graph.outside_ns > 0 ? `Operators outside of modules, not shown: ${duration(graph.outside_ns)}.` : null}
              label="Flame graph of modules and their operators"
              outermost="the outermost modules"
              tools={(node) => <TimelineLink name={node.name} />}
            />
          );
        }}
      </ResourceView>
    </Panel>
  );
}

export function moduleFields(rows: readonly Module[]): Field<Module>[] {
  const hasDeviceTime = rows.some((row) => row.device_total_ns !== null);
  const hasBackward = rows.some((row) => row.backward_host_ns !== null);
  return columns(
    "Module",
    ["name", { value: (row) => row.name.trim(), indent: (row) => row.depth, isLongName: true }],
    "depth", "occurrences", "operator_count",
    hasDeviceTime && "device_total_ns", hasDeviceTime && "device_ratio", hasDeviceTime && "device_self_ns",
    "host_total_ns", "host_self_ns",
    hasBackward && "backward_host_ns", hasBackward && hasDeviceTime && "backward_device_ns",
  );
}

function ModuleDetails({ row }: { row: Module }) {
  const name = row.name.trim();
  return (
    <SelectionPanel name={name}>
      <KeyValues
        entries={entries(
          "Module", row, "occurrences", "operator_count",
          ["device_total_ns", `${duration(row.device_total_ns)} (${percent(row.device_ratio, 1)})`],
          "device_self_ns", "host_total_ns", "host_self_ns", "backward_host_ns", "backward_device_ns",
        )}
      />
    </SelectionPanel>
  );
}
