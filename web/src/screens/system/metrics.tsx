// Hardware of a machine, and statistics of its metrics over the run.
import type { MetricView, NodeView, SystemView } from "../../api/views";
import { count, duration, memory, percent } from "../../base/quantities";
import { sentence } from "../../base/text";
import { LinkedTable } from "../../parts/linked_table";
import { rowKey } from "../../parts/row_key";
import { columns, innerColumns, tile } from "../../widgets/fields";
import { Prose } from "../../widgets/prose";
import { QualityNotes, EmptyState } from "../../widgets/resource_view";
import { Tiles, type Tile } from "../../widgets/tiles";

interface Props {
  payload: SystemView;
  node: string;
}

/** Load of one node, and its hardware. */
export function Machine({ payload, node }: Props) {
  const nodeView = payload.nodes.find((candidate) => candidate.node === node);
  if (nodeView === undefined) return <EmptyState text={payload.missing ?? "no data for this node"} />;
  const text = usage(nodeView);
  return (
    <>
      {text === null ? null : <h2 class="answer" data-testid="machine">{text}</h2>}
      <Tiles tiles={nodeTiles(nodeView)} />
    </>
  );
}

/** Statistics of the metrics of one node. */
export function Metrics({ payload, node }: Props) {
  const nodeView = payload.nodes.find((candidate) => candidate.node === node);
  if (nodeView === undefined) return null;
  return (
    <>
      <QualityNotes
        quality={[]}
        notes={Object.entries(nodeView.metrics_missing).map(([name, reason]) => `no ${name} metrics: ${reason}`)}
        range={payload.range}
      />
      <LinkedTable
        title="Metrics"
        testid="table-metrics"
        rows={nodeView.metrics}
        keyOf={(row) => rowKey(row.metric, row.device)}
        fields={columns(
          "MetricView", "metric", "device",
          ...innerColumns("Statistics", "inherited", (row: MetricView) => row.statistics, "mean", "min", "p50", "p95", "max", "count"),
          ["doc", { draw: (row) => <span class="name brief" title={row.doc}><Prose text={row.doc} /></span> }],
        )}
      />
    </>
  );
}

/** Mean load of GPUs and cores, and the peak of the memory, as a sentence; null without samples. */
export function usage({ metrics, memory_bytes, memory_limit_bytes }: NodeView): string | null {
  const loads = (name: string): Load[] =>
    metrics.flatMap(({ metric, device, statistics }) => (metric === name && statistics !== null ? [{ device, mean: statistics.mean }] : []));
  const [gpus, cores, [cpu]] = [loads("gpu_busy_ratio"), loads("core_busy_ratio"), loads("cpu_busy_ratio")];
  const peak = metrics.find(({ metric }) => metric === "memory_used_bytes")?.statistics?.max;
  const total = memory_limit_bytes ?? memory_bytes;
  const clauses = [
    ...(gpus.length === 0 ? [] : [`GPUs are busy for ${percent(gpus.reduce((sum, { mean }) => sum + mean, 0) / gpus.length)} of the time${busiest("GPU", gpus)}`]),
    ...(cpu === undefined ? [] : [`cores are busy for ${percent(cpu.mean)} of the time${busiest("core", cores)}`]),
    ...(peak === undefined ? [] : [`memory use peaks at ${memory(peak)}${total === null ? "" : ` of ${memory(total)}`}`]),
  ];
  return clauses.length === 0 ? null : sentence(clauses.join("; "));
}

interface Load {
  device: string;
  mean: number;
}

function busiest(kind: string, loads: readonly Load[]): string {
  if (loads.length < 2) return "";
  const { device, mean } = loads.reduce((best, load) => (load.mean > best.mean ? load : best));
  return `, ${kind} ${device} for ${percent(mean)}`;
}

function nodeTiles(node: NodeView): Tile[] {
  return [
    tile("NodeView", node, "cpu_model"),
    // Files of other tools do not state the cores.
    ...(node.cores_total
      ? [tile("NodeView", node, "cores_available", { caption: `available to the job, ${count(node.cores_total)} in total` })]
      : []),
    tile("NodeView", node, "memory_bytes", {
      value: memory(node.memory_limit_bytes ?? node.memory_bytes),
      caption: node.memory_limit_bytes === null ? "of the node" : `limit of the job, ${memory(node.memory_bytes)} in total`,
    }),
    tile("NodeView", node, "gpus", { value: count(node.gpus.length), caption: [...new Set(node.gpus)].join(", ") || "none found" }),
    tile("NodeView", node, "sample_count", {
      caption: `every ${duration(node.sample_interval_ns)}; ${count(node.missed_sample_count)} missed`,
      testid: "samples",
    }),
  ];
}
