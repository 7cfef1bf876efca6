// Host memory of the job on a machine over time, with its limit and the forecast, and by process.
import type { HostMemoryView, NodeMemoryUse } from "../../api/views";
import type { Plot, Series } from "../../charts/plot";
import { LinkedTable } from "../../parts/linked_table";
import { columns } from "../../widgets/fields";

export const JOB_MEMORY = "Memory of the job";

export function ProcessMemory({ use }: { use: NodeMemoryUse }) {
  return (
    <LinkedTable
      id="processes"
      title="Processes"
      testid="table-process-memory"
      rows={use.processes}
      fields={columns("ProcessUse", "name", "anonymous_bytes", "peak_bytes", "private_bytes", "shared_bytes", "file_bytes", "growth_share_ratio")}
    />
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
    title: JOB_MEMORY,
    isSmall: true,
    x: { name: "time", unit: "ns" },
    y: { name: "memory", unit: "bytes", min: 0 },
    series,
    isSampled: true,
    levels: isLimitNear ? [{ name: "limit", value: limit }] : [],
  };
}
