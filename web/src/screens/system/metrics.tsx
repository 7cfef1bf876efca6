// Hardware of a machine, and statistics of its metrics over the run.
import type { MetricView, NodeView, SystemView } from "../../api/views";
import { count, countOf, duration, memory, number, percent } from "../../base/quantities";
import { sentence } from "../../base/text";
import { LinkedTable } from "../../parts/linked_table";
import { rowKey } from "../../parts/row_key";
import { columns, innerColumns } from "../../widgets/fields";
import { Fold } from "../../widgets/fold";
import { Prose } from "../../widgets/prose";
import { QualityNotes, EmptyState } from "../../widgets/resource_view";

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
      <p class="muted" data-testid="samples">{hardware(nodeView)}</p>
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
      <Fold title="Statistics" testid="metric-statistics" about="mean, p50, p95 and extremes of each metric, and what it means">
        <LinkedTable
          title="Metrics"
          testid="table-metrics"
          rows={nodeView.metrics}
          keyOf={(row) => rowKey(row.metric, row.device)}
          fields={columns(
            "MetricView", ["title", { draw: ({ title, metric }) => <span class="name" title={metric}>{title}</span> }], "device",
            ...innerColumns("Statistics", "inherited", (row: MetricView) => row.statistics, "mean", "min", "p50", "p95", "max", "count"),
            ["doc", { draw: (row) => <span class="name brief" title={row.doc}><Prose text={row.doc} /></span> }],
          )}
        />
      </Fold>
    </>
  );
}

/** Mean load of GPUs and cores, and the peak of the memory, as a sentence; null without samples. */
export function usage({ metrics, cores_available, memory_bytes, memory_limit_bytes }: NodeView): string | null {
  const loads = (name: string): Load[] =>
    metrics.flatMap(({ metric, device, statistics }) => (metric === name && statistics !== null ? [{ device, mean: statistics.mean }] : []));
  const [gpus, cores, [cpu]] = [loads("gpu_busy_ratio"), loads("core_busy_ratio"), loads("cpu_busy_ratio")];
  const [[job], [outside]] = [loads("job_cpu_cores"), loads("outside_cpu_cores")];
  const peak = metrics.find(({ metric }) => metric === "memory_used_bytes")?.statistics?.max;
  const total = memory_limit_bytes ?? memory_bytes;
  const isContended = job !== undefined && outside !== undefined && outside.mean > job.mean;
  const clauses = [
    ...(isContended ? [`other processes use ${number(outside.mean)} of ${countOf(cores_available, "core")}, the job ${number(job.mean)}`] : []),
    ...(gpus.length === 0 ? [] : [`GPUs are busy for ${percent(gpus.reduce((sum, { mean }) => sum + mean, 0) / gpus.length)} of the time${busiest("GPU", gpus)}`]),
    ...(cpu === undefined ? [] : [`cores are busy for ${percent(cpu.mean)} of the time${busiest("core", cores)}`]),
    ...(job === undefined || outside === undefined || isContended ? [] : [`the job uses ${number(job.mean)} of ${countOf(cores_available, "core")}, other processes ${number(outside.mean)}`]),
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
  return loads.every((load) => percent(load.mean) === percent(mean)) ? "" : `, ${kind} ${device} for ${percent(mean)}`;
}

/** Processor, cores, memory, GPUs and samples. */
function hardware(node: NodeView): string {
  const { cores_available, cores_total, memory_bytes, memory_limit_bytes, gpus } = node;
  const names = [...new Set(gpus)].join(", ");
  const parts = [
    node.cpu_model,
    // Files of other tools do not state the cores.
    cores_total === 0 ? "" : `${countOf(cores_available, "core")}${cores_available === cores_total ? "" : ` of ${count(cores_total)} available to the job`}`,
    memory_limit_bytes === null ? `${memory(memory_bytes)} of memory` : `memory limit of the job ${memory(memory_limit_bytes)} of ${memory(memory_bytes)}`,
    gpus.length === 0 ? "no GPU" : `${countOf(gpus.length, "GPU")}${names === "" ? "" : ` (${names})`}`,
    `${countOf(node.sample_count, "sample")}, one every ${duration(node.sample_interval_ns)}, ${count(node.missed_sample_count)} missed`,
  ];
  return sentence(parts.filter((part) => part !== "").join("; "));
}
