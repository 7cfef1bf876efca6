// Plots of metrics: one of each subject, and one of each other metric.
import type { MetricSeries, SystemSeriesView } from "../../api/views";
import { capitalize } from "../../base/text";
import type { Plot } from "../../charts/plot";

export type Section = "main" | "process" | "core" | "rest";

export interface MetricPlot extends Plot {
  section: Section;
}

/** Plots of several metrics, in their order. */
const SUBJECTS: readonly (readonly [RegExp, string])[] = [
  [/^gpu_busy/, "GPU busy"],
  [/^gpu_memory_used/, "GPU memory in use"],
  [/^cpu_(?!iowait_max)/, "CPU"],
  [/^(job|outside|stolen|own)_cpu_cores$/, "Cores in use"],
  [/^(memory_used|swap_used)_/, "Memory of the machine"],
  [/^disk_/, "Disks"],
  [/^network_(received|sent)_/, "Network"],
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

function sectionOf(metric: string): Section {
  const [prefix] = metric.split("_");
  return prefix === "process" || prefix === "core" ? prefix : "rest";
}

export function metricPlots(payload: SystemSeriesView, seriesList: readonly MetricSeries[], cores: ReadonlySet<string> | null): MetricPlot[] {
  const groups = new Map<string, { title: string; order: number; section: Section; series: MetricSeries[] }>();
  for (const series of seriesList) {
    const { metric, unit, device } = series;
    const section = sectionOf(metric);
    if (section === "core" && cores !== null && !cores.has(device)) continue;
    const subject = SUBJECTS.findIndex(([pattern]) => pattern.test(metric));
    const [, title] = SUBJECTS[subject] ?? [null, capitalize(series.title.replace(/,?( of| by)? process$/, ""))];
    const key = `${title} ${unit}`;
    const group = groups.get(key) ?? { title, order: subject < 0 ? SUBJECTS.length : subject, section: subject < 0 ? section : "main", series: [] };
    group.series.push(series);
    groups.set(key, group);
  }
  return [...groups.values()].sort((a, b) => a.order - b.order).map(({ title, section, series }) => ({ ...plotOf(payload, series, title), section }));
}

/** True if no series has two values: the plot tells less than a sentence. */
export function isFlat({ series }: Plot): boolean {
  return series.every(({ y }) => new Set(y.filter((value) => value !== null)).size < 2);
}

/** Title of a metric in the plot of its subject. */
function inSubject(title: string): string {
  return title.replace(/^(cores (used|taken) by|disk|network) (the )?/, "");
}

function plotOf(payload: SystemSeriesView, seriesList: readonly MetricSeries[], title: string): Plot {
  const unit = seriesList[0]?.unit ?? "none";
  const metrics = new Set(seriesList.map((series) => series.metric));
  const x = Array.from({ length: payload.piece_count }, (_, index) => payload.start_after_ns + index * payload.piece_ns);
  return {
    kind: "plot",
    title,
    isSmall: true,
    x: { name: "after the start of the run", unit: "ns", min: Math.max(0, payload.start_after_ns) },
    y: { name: "mean", unit, ...(unit === "ratio" ? { max: 1 } : {}) },
    series: seriesList.map((series) => ({
      name: [metrics.size > 1 || series.device === "" ? inSubject(series.title) : "", series.device].filter(Boolean).join(" "),
      x,
      y: series.mean,
    })),
    isSampled: ![...metrics].some((metric) => metric.endsWith("_per_s")),
  };
}
