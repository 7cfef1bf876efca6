// Host memory of the job on a machine over time, with its limit and the forecast, and by process.
import type { HostMemoryView, NodeMemoryUse } from "../../api/views";
import type { Plot, Series } from "../../charts/plot";
import { LinkedTable } from "../../parts/linked_table";
import { TimePanel } from "../../parts/time_panel";
import { useView } from "../../state/fetch";
import { columns } from "../../widgets/fields";
import { ResourceView } from "../../widgets/resource_view";

export function HostMemory({ node }: { node: string }) {
  return <ResourceView resource={useView("host-memory")}>{(payload) => <Content payload={payload} node={node} />}</ResourceView>;
}

function Content({ payload, node }: { payload: HostMemoryView; node: string }) {
  const memory = payload.nodes.find((candidate) => candidate.node === node);
  if (memory === undefined) return null;
  return (
    <section aria-label="Host memory">
      <header class="head section-title"><h2>Host memory</h2></header>
      {memory.lines.map((line) => <p key={line}>{line}</p>)}
      <div class="panels">
        <TimePanel wide block={memoryPlot(payload, memory)} />
        <LinkedTable
          id="processes"
          title="Processes"
          testid="table-process-memory"
          rows={memory.processes}
          fields={columns("ProcessUse", "name", "anonymous_bytes", "peak_bytes", "private_bytes", "shared_bytes", "file_bytes", "growth_share_ratio")}
        />
      </div>
    </section>
  );
}

/** Memory over time; the limit is drawn where the job is near it or grows towards it. */
export function memoryPlot(payload: HostMemoryView, memory: NodeMemoryUse): Plot {
  const start = payload.start_after_ns;
  const series: Series[] = memory.series.map(({ name, largest }) => ({
    name,
    x: largest.map((_, bin) => start + (bin + 0.5) * payload.piece_ns),
    y: largest,
  }));
  const { limit_bytes: limit, forecast } = memory;
  const last = series[0]?.x.at(-1);
  const isLimitNear = limit !== null && (memory.is_growing || memory.peak_bytes > 0.5 * limit);
  if (forecast !== null && memory.free_bytes !== null && last !== undefined) {
    // The line of the trend, as far again as the job has run, or until the limit is full. Where a job
    // has ended, its latest samples are not of the trend.
    const from = forecast.trend_end_after_ns;
    const full = last + forecast.full_in_ns;
    const end = Math.min(full, last + (last - start));
    const growth = memory.free_bytes * ((end - from) / Math.max(1, full - from));
    series.push({ name: "forecast", x: [from, end], y: [forecast.trend_end_bytes, forecast.trend_end_bytes + growth] });
  }
  return {
    kind: "plot",
    title: "Memory of the job",
    x: { name: "time", unit: "ns" },
    y: { name: "memory", unit: "bytes", min: 0 },
    series,
    isSampled: true,
    levels: isLimitNear ? [{ name: "limit", value: limit }] : [],
  };
}
