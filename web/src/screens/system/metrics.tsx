// Hardware of a machine, and statistics of its metrics over the run.
import type { MetricView, NodeView, SystemView } from "../../api/views";
import { count, duration, memory } from "../../base/quantities";
import { LinkedTable } from "../../parts/linked_table";
import { rowKey } from "../../parts/row_key";
import { useView } from "../../state/fetch";
import { columns, innerColumns, tile } from "../../widgets/fields";
import { Prose } from "../../widgets/prose";
import { ResourceView, QualityNotes, EmptyState } from "../../widgets/resource_view";
import { Tiles, type Tile } from "../../widgets/tiles";

/** Metrics of one node; on long runs they take a while to load. */
export function Metrics({ node }: { node: string }) {
  const resource = useView("system");
  return (
    <section aria-label="Node">
      <header class="head section-title"><h2>Node</h2></header>
      <ResourceView resource={resource}>{(payload) => <NodeMetrics payload={payload} node={node} />}</ResourceView>
    </section>
  );
}

function NodeMetrics({ payload, node }: { payload: SystemView; node: string }) {
  const nodeView = payload.nodes.find((candidate) => candidate.node === node);
  if (nodeView === undefined) return <EmptyState text={payload.missing ?? "no data for this node"} />;
  return (
    <>
      <Tiles tiles={nodeTiles(nodeView)} />
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
          ["doc", { draw: (row) => <span class="name" title={row.doc}><Prose text={row.doc} /></span> }],
        )}
      />
    </>
  );
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
