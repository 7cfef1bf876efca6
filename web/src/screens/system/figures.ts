// Plots of metrics, grouped by kind.
import type { MetricSeries, SystemSeriesView } from "../../api/views";
import { duration } from "../../base/quantities";
import { capitalize, words } from "../../base/text";
import type { Plot } from "../../charts/plot";

export type Kind = "all" | "gpu" | "cpu" | "memory" | "io" | "process";

/** Plot of each metric: the first matching pattern. Plots are shown in this order. */
const PLOT_GROUPS: readonly (readonly [RegExp, string, Kind])[] = [
  [/^gpu_busy/, "GPU busy", "gpu"],
  [/^gpu_memory_busy/, "GPU memory busy", "gpu"],
  [/^gpu_memory_used/, "GPU memory in use", "gpu"],
  [/^gpu_power/, "GPU power", "gpu"],
  [/^gpu_temperature/, "GPU temperature", "gpu"],
  [/^gpu_.*clock/, "GPU clocks", "gpu"],
  [/^gpu_pcie/, "PCIe", "gpu"],
  [/^gpu_/, "Other GPU metrics", "gpu"],
  [/^cpu_/, "CPU", "cpu"],
  [/^core_busy/, "Cores busy", "cpu"],
  [/^core_iowait/, "I/O wait by core", "cpu"],
  [/_cpu_cores$/, "Cores in use", "cpu"],
  [/^cgroup_throttled/, "Throttling", "cpu"],
  [/^(memory|swap|job_memory|shared_memory|cgroup_memory|address_space)_/, "Memory", "memory"],
  [/^(cgroup_oom|job_process)/, "Processes of the job", "memory"],
  [/^disk_/, "Disks", "io"],
  [/^network_/, "Network", "io"],
  [/^process_.*_bytes$/, "Process memory", "process"],
  [/^process_(cycles|instructions)_per_s/, "Cycles and instructions", "process"],
  [/^process_instructions_per_cycle/, "Instructions per cycle", "process"],
  [/^process_.*_misses_per_s/, "Cache and iTLB misses", "process"],
  [/^process_.*_misses_per_1000/, "Misses per 1,000 instructions", "process"],
  [/^process_/, "Processes", "process"],
];

/** Parse a list of cores, such as "0-3,8"; null for all cores or invalid text. */
export function parseCores(text: string): ReadonlySet<string> | null {
  const cores = new Set<string>();
  for (const range of text.split(",").map((part) => part.trim()).filter(Boolean)) {
    const [first = NaN, last = first] = range.split("-").map(Number);
    if (!Number.isInteger(first) || !Number.isInteger(last) || last - first > 4096) return null;
    for (let core = first; core <= last; core += 1) cores.add(String(core));
  }
  return cores.size === 0 ? null : cores;
}

interface PlotGroup {
  title: string;
  kind: Kind;
  index: number;
}

function groupOf(series: MetricSeries): PlotGroup {
  // CPU cores used by single processes are shown with the processes.
  const index = series.metric.startsWith("process_cpu") ? PLOT_GROUPS.length - 1 : PLOT_GROUPS.findIndex(([pattern]) => pattern.test(series.metric));
  const [, title, kind] = PLOT_GROUPS[index] ?? [/./, capitalize(words(series.metric)), "all" as const];
  return { title, kind, index: index < 0 ? PLOT_GROUPS.length : index };
}

export function metricPlots(
  payload: SystemSeriesView,
  seriesList: readonly MetricSeries[],
  kind: Kind,
  cores: ReadonlySet<string> | null,
): Plot[] {
  const groups = new Map<string, { plotGroup: PlotGroup; series: MetricSeries[] }>();
  for (const series of seriesList) {
    const plotGroup = groupOf(series);
    if (kind !== "all" && plotGroup.kind !== kind) continue;
    if (series.metric.startsWith("core_") && cores !== null && !cores.has(series.device)) continue;
    const key = `${plotGroup.title} ${series.unit}`;
    const group = groups.get(key) ?? { plotGroup, series: [] };
    group.series.push(series);
    groups.set(key, group);
  }
  const sorted = [...groups.values()].sort((a, b) => a.plotGroup.index - b.plotGroup.index);
  const titles = sorted.map(({ plotGroup }) => plotGroup.title);
  return sorted.map(({ plotGroup, series }) => plotOf(payload, series, titleOf(plotGroup.title, series, titles)));
}

/** True if no series has two values: the plot tells less than a sentence. */
export function isFlat({ series }: Plot): boolean {
  return series.every(({ y }) => new Set(y.filter((value) => value !== null)).size < 2);
}

/** Append the metric to titles that several plots share, where a plot has one. */
function titleOf(title: string, series: readonly MetricSeries[], titles: readonly string[]): string {
  const isAmbiguous = titles.filter((candidate) => candidate === title).length > 1;
  const [metric = "", ...rest] = new Set(series.map((one) => one.metric));
  return isAmbiguous && rest.length === 0 ? `${title}: ${shortMetric(metric).replace(/^(process|job|memory) /, "")}` : title;
}

function plotOf(payload: SystemSeriesView, seriesList: readonly MetricSeries[], title: string): Plot {
  const unit = seriesList[0]?.unit ?? "none";
  const metrics = new Set(seriesList.map((series) => series.metric));
  const x = Array.from({ length: payload.piece_count }, (_, index) => payload.start_after_ns + index * payload.piece_ns);
  return {
    kind: "plot",
    title,
    x: { name: "after the start of the run", unit: "ns", min: Math.max(0, payload.start_after_ns) },
    y: { name: "mean", unit, ...(unit === "ratio" ? { max: 1 } : {}) },
    series: seriesList.map((series) => ({
      name: [metrics.size > 1 || series.device === "" ? shortMetric(series.metric) : "", series.device].filter(Boolean).join(" "),
      x,
      y: series.mean,
    })),
    isSampled: ![...metrics].some((metric) => metric.endsWith("_per_s")),
    note: `Mean per ${duration(payload.piece_ns)}.`,
  };
}

/** Name of a metric without its unit. */
function shortMetric(metric: string): string {
  return words(metric.replace(/_(ratio|bytes|bytes_per_s|per_s|per_1000_instructions|watt|megahertz|celsius)$/, ""));
}
