// Which metrics share a picture, and the pictures.
import type { MetricSeries, SystemSeriesView } from "../../api/views";
import { duration } from "../../base/quantities";
import { capitalize, words } from "../../base/text";
import type { Plot } from "../../charts/plot";

export type Kind = "all" | "gpu" | "cpu" | "memory" | "io" | "process";

/** Metrics by their picture: the first fitting line. Pictures stand in this order. */
const PICTURES: readonly (readonly [RegExp, string, Kind])[] = [
  [/^gpu_busy/, "GPU busy", "gpu"],
  [/^gpu_memory_busy/, "GPU memory accessed", "gpu"],
  [/^gpu_memory_used/, "GPU memory in use", "gpu"],
  [/^gpu_power/, "GPU power", "gpu"],
  [/^gpu_temperature/, "GPU temperature", "gpu"],
  [/^gpu_.*clock/, "GPU clocks", "gpu"],
  [/^gpu_pcie/, "PCIe", "gpu"],
  [/^gpu_/, "GPU, other", "gpu"],
  [/^cpu_/, "CPU", "cpu"],
  [/^core_busy/, "Cores busy", "cpu"],
  [/^core_iowait/, "Cores waiting for I/O", "cpu"],
  [/_cpu_cores$/, "Cores kept busy", "cpu"],
  [/^cgroup_/, "Throttling", "cpu"],
  [/^(memory|swap)_/, "Memory", "memory"],
  [/^disk_/, "Disks", "io"],
  [/^network_/, "Network", "io"],
  [/^process_memory/, "Memory of processes", "process"],
  [/^process_/, "Processes", "process"],
];

/** "0-3,8" as numbers; null for all of them, or where it cannot be read. */
export function coresOf(text: string): ReadonlySet<string> | null {
  const cores = new Set<string>();
  for (const part of text.split(",").map((range) => range.trim()).filter(Boolean)) {
    const [first = NaN, last = first] = part.split("-").map(Number);
    if (!Number.isInteger(first) || !Number.isInteger(last) || last - first > 4096) return null;
    for (let core = first; core <= last; core += 1) cores.add(String(core));
  }
  return cores.size === 0 ? null : cores;
}

interface Picture {
  title: string;
  kind: Kind;
  index: number;
}

function pictureOf(series: MetricSeries): Picture {
  // Of one process, cores kept busy belong to the processes.
  const index = series.metric.startsWith("process_cpu") ? PICTURES.length - 1 : PICTURES.findIndex(([pattern]) => pattern.test(series.metric));
  const [, title, kind] = PICTURES[index] ?? [/./, capitalize(words(series.metric)), "all" as const];
  return { title, kind, index: index < 0 ? PICTURES.length : index };
}

export function metricPlots(
  payload: SystemSeriesView,
  all: readonly MetricSeries[],
  kind: Kind,
  cores: ReadonlySet<string> | null,
): Plot[] {
  const groups = new Map<string, { picture: Picture; series: MetricSeries[] }>();
  for (const series of all) {
    const picture = pictureOf(series);
    if (kind !== "all" && picture.kind !== kind) continue;
    if (series.metric.startsWith("core_") && cores !== null && !cores.has(series.device)) continue;
    const key = `${picture.title} ${series.unit}`;
    const group = groups.get(key) ?? { picture, series: [] };
    group.series.push(series);
    groups.set(key, group);
  }
  const sorted = [...groups.values()].sort((a, b) => a.picture.index - b.picture.index);
  const titles = sorted.map(({ picture }) => picture.title);
  return sorted.map(({ picture, series }) => plotOf(payload, series, titleOf(picture.title, series, titles)));
}

/** With its unit where several pictures would be called the same. */
function titleOf(title: string, series: readonly MetricSeries[], titles: readonly string[]): string {
  const twice = titles.filter((candidate) => candidate === title).length > 1;
  return twice ? `${title}: ${words(series[0]?.metric ?? "")}` : title;
}

function plotOf(payload: SystemSeriesView, all: readonly MetricSeries[], title: string): Plot {
  const unit = all[0]?.unit ?? "none";
  const metrics = new Set(all.map((series) => series.metric));
  const x = Array.from({ length: payload.piece_count }, (_, index) => payload.start_after_ns + index * payload.piece_ns);
  return {
    kind: "plot",
    title,
    x: { name: "after the start of the run", unit: "ns", min: Math.max(0, payload.start_after_ns) },
    y: { name: "mean", unit, ...(unit === "ratio" ? { max: 1 } : {}) },
    series: all.map((series) => ({
      name: [metrics.size > 1 || series.device === "" ? shortMetric(series.metric) : "", series.device].filter(Boolean).join(" "),
      x,
      y: series.mean,
    })),
    note: `Means of ${duration(payload.piece_ns)}.`,
  };
}

/** A metric without its unit. */
function shortMetric(metric: string): string {
  return words(metric.replace(/_(ratio|bytes|bytes_per_s|watt|megahertz|celsius)$/, ""));
}
