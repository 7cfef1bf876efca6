// All metrics of a machine as one heat map: GPUs first, then cores, memory, disks, network.
import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";

import type { SystemHeatView } from "../../api/views";
import type { Heatmap } from "../../api/report";
import { countOf, duration, labelOf } from "../../base/quantities";
import { FigurePanel } from "../../charts/figure_panel";
import { useOption } from "../../parts/url_options";
import { useView } from "../../state/fetch";
import { EmptyState, ErrorNotice, Skeleton } from "../../widgets/resource_view";
import { Select } from "../../widgets/select";

const CORES = [["few", "first 32"], ["all", "all"], ["none", "none"]] as const;
type Cores = (typeof CORES)[number][0];

interface Props {
  node: string;
  /** Payload without a node filter: the first nodes, each with its first cores. */
  initial: SystemHeatView;
}

export function HeatMap({ node, initial }: Props) {
  const [cores, setCores] = useOption("heat-cores", CORES.map(([key]) => key));
  const tools = <Select label="Cores" value={cores} choices={CORES} onChange={(value) => { setCores(value as typeof cores); }} />;
  const block = useMemo(() => (cores === "all" ? null : heatMapFigure(initial, node, cores)), [initial, node, cores]);
  return <div class="panels">{block === null ? <LoadedHeatMap node={node} cores={cores} tools={tools} /> : <HeatMapPanel block={block} tools={tools} />}</div>;
}

function LoadedHeatMap({ node, cores, tools }: { node: string; cores: Cores; tools: ComponentChildren }) {
  const { data, error } = useView("system-heat", { name: node });
  const block = useMemo(() => (data === null ? null : heatMapFigure(data, node, cores)), [data, node, cores]);
  if (data === null) return error === null ? <Skeleton /> : <ErrorNotice text={error.message} />;
  return block === null ? <EmptyState text={data.missing ?? "no samples"} /> : <HeatMapPanel block={block} tools={tools} />;
}

function HeatMapPanel({ block, tools }: { block: Heatmap; tools: ComponentChildren }) {
  return <FigurePanel wide testid="heat-map" block={block} tools={tools} />;
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
    start: `${duration(Math.max(0, payload.start_after_ns))} after the start of the run`,
    column_s: payload.column_ns / 1e9,
    rows: rows.map((row) => ({
      name: row.name,
      unit: row.unit === "ratio" ? "%" : labelOf(row.unit),
      full: row.unit === "ratio" ? 100 * row.full : row.full,
      percent: row.shade_ratio.map((shade) => (shade === null ? null : 100 * shade)),
    })),
    more: hiddenCount === 0 ? null : `${countOf(hiddenCount, "core")} not shown`,
  };
}
