// All metrics of a machine as one heat map: GPUs first, then cores, memory, disks, network.
import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";

import type { Heatmap } from "../../api/report";
import type { SystemHeatView } from "../../api/views";
import { countOf, duration } from "../../base/quantities";
import { TimePanel } from "../../parts/time_panel";
import { useSelect } from "../../parts/url_controls";
import { useView } from "../../state/fetch";
import { EmptyState, ResourceView } from "../../widgets/resource_view";

const CORES = [["few", "first 32"], ["all", "all"], ["none", "none"]] as const;
type Cores = (typeof CORES)[number][0];

interface Props {
  node: string;
  /** Payload without a node filter: the first nodes, each with its first cores. */
  initial: SystemHeatView;
}

export function HeatMap({ node, initial }: Props) {
  const [cores, tools] = useSelect("heat-cores", "Cores", CORES);
  const props = { node, cores, tools };
  const isComplete = cores !== "all" && initial.nodes.some((nodeHeat) => nodeHeat.node === node);
  return <div class="panels">{isComplete ? <HeatMapPanel {...props} payload={initial} /> : <LoadedHeatMap {...props} />}</div>;
}

interface PanelProps {
  node: string;
  cores: Cores;
  tools: ComponentChildren;
}

function LoadedHeatMap(props: PanelProps) {
  const resource = useView("system-heat", { name: props.node });
  return <ResourceView resource={resource}>{(payload) => <HeatMapPanel {...props} payload={payload} />}</ResourceView>;
}

function HeatMapPanel({ node, cores, tools, payload }: PanelProps & { payload: SystemHeatView }) {
  const block = useMemo(() => heatMapFigure(payload, node, cores), [payload, node, cores]);
  if (block === null) return <EmptyState text={payload.missing ?? "no samples"} />;
  const axis = { origin: payload.start_after_ns, unit: payload.column_ns, isColumns: true };
  return <TimePanel wide testid="heat-map" block={block} tools={tools} axis={axis} />;
}

const DEFAULT_CORES = 32;

/** Return the heat map of one node, or null. */
export function heatMapFigure(payload: SystemHeatView, node: string, cores: Cores): Heatmap | null {
  const nodeHeat = payload.nodes.find((candidate) => candidate.node === node);
  if (nodeHeat === undefined) return null;
  const maxCores = { few: DEFAULT_CORES, all: Infinity, none: 0 }[cores];
  let coreCount = 0;
  const rows = nodeHeat.rows.filter((row) => {
    if (!row.metric.startsWith("core_")) return true;
    coreCount += 1;
    return coreCount <= maxCores;
  });
  const hiddenCount = nodeHeat.rows.length - rows.length + nodeHeat.left_out_count;
  return {
    kind: "heatmap",
    title: `Metrics of ${node.slice(0, 80)}`,
    start: payload.start_after_ns > 0 ? `${duration(payload.start_after_ns)} after the start of the run` : "with the run",
    column_ns: payload.column_ns,
    rows,
    more: hiddenCount === 0 ? null : `${countOf(hiddenCount, "core")} not shown`,
  };
}
