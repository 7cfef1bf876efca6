// Dashboard: utilization of machines and devices as figures.
import { useMemo } from "preact/hooks";

import type { Pie } from "../../api/report";
import type { ActiveShare, Dashboard as Payload, KernelTime, KernelTotal, StepDurations, UtilizationOverTime } from "../../api/views";
import { count, duration } from "../../base/quantities";
import { capitalize } from "../../base/text";
import { FigurePanel } from "../../charts/figure_panel";
import { durationHistogram, pieOf, singleLine } from "../../charts/from_payload";
import type { Plot } from "../../charts/plot";
import type { Stacks } from "../../charts/stacks";
import { AnnotationHistograms } from "../../parts/annotation_histograms";
import { annotationNames } from "../../parts/annotation_names";
import { TimePanel } from "../../parts/time_panel";
import { useView } from "../../state/fetch";
import { link } from "../../state/url";
import { labelOf, textOf } from "../../widgets/fields";
import { Panel } from "../../widgets/panel";
import { Prose } from "../../widgets/prose";
import { RankedBars } from "../../widgets/ranked_bars";
import { ResourceView } from "../../widgets/resource_view";
import { Usage } from "./usage";

export default function Dashboard() {
  return (
    <>
      <Usage />
      <ResourceView resource={useView("dashboard")} isSecond>{(payload) => <Figures payload={payload} />}</ResourceView>
      <Annotations />
    </>
  );
}

function Figures({ payload }: { payload: Payload }) {
  const { gpu_active, cpu_active, gpu_utilization, cpu_utilization, step_durations } = payload;
  const figures = useMemo(
    () => ({
      gpu: gpu_active === null ? null : activeShareFigure("GPU active time", "any GPU active", gpu_active),
      cpu: cpu_active === null ? null : activeShareFigure("CPU active time", "any core active", cpu_active),
      gpus: gpu_utilization === null ? null : utilizationFigure("GPU", gpu_utilization),
      cpus: cpu_utilization === null ? null : utilizationFigure("CPU", cpu_utilization),
      stepHistogram: step_durations === null ? null : stepHistogram(step_durations),
      kernelTimes: allKernelsFigure("Time of all kernels", "total_ns", payload.all_kernels),
      kernelLaunches: allKernelsFigure("Launches of all kernels", "launch_count", payload.all_kernels),
      pies: (
        [
          ["Kernel precision", payload.precision],
          ["GPU activity", payload.activity],
          ["Memory operations", payload.memory_operations],
        ] as const
      ).flatMap(([title, pie]) => (pie === null ? [] : [pieOf(title, pie)])),
    }),
    [payload],
  );
  const standalonePies = [figures.gpus === null ? figures.gpu : null, figures.cpus === null ? figures.cpu : null];
  const pies = [...standalonePies.filter((pie) => pie !== null), ...figures.pies];
  return (
    <>
      <PieWithPlot name="gpu" pie={figures.gpu} plot={figures.gpus} />
      <PieWithPlot name="cpu" pie={figures.cpu} plot={figures.cpus} />
      {pies.length === 0 ? null : (
        <div class="panels pies">
          {pies.map((pie) => <FigurePanel key={pie.title} testid={PIE_NAMES[pie.title] ?? "pie"} block={pie} />)}
        </div>
      )}
      <div class="panels">
        {figures.stepHistogram === null ? null : <FigurePanel wide testid="step-histogram" block={figures.stepHistogram} description={stepStatisticsText(step_durations)} />}
        <KernelRanking title="Kernels by time" rows={payload.kernels_by_time} total={payload.kernel_count} by="total_ns" detail="share_ratio" />
        <KernelRanking title="Kernels by launches" rows={payload.kernels_by_launches} total={payload.kernel_count} by="launch_count" detail="total_ns" />
        {payload.all_kernels.length === 0 ? null : (
          <>
            <FigurePanel testid="all-kernel-times" block={figures.kernelTimes} />
            <FigurePanel testid="all-kernel-launches" block={figures.kernelLaunches} />
          </>
        )}
      </div>
      <MissingParts parts={payload.missing_parts} />
    </>
  );
}

const PIE_NAMES: Record<string, string> = { "GPU active time": "gpu-active", "CPU active time": "cpu-active" };

/** Active share as a pie, next to utilization over time. */
function PieWithPlot({ name, pie, plot }: { name: string; pie: Pie | null; plot: Plot | null }) {
  if (plot === null) return null;
  return (
    <div class={pie === null ? "panels" : "panels side-by-side"}>
      {pie === null ? null : <FigurePanel testid={`${name}-active`} block={pie} />}
      <TimePanel wide={pie === null} testid={`${name}-utilisation`} block={plot} />
    </div>
  );
}

function activeShareFigure(title: string, name: string, share: ActiveShare): Pie {
  return {
    kind: "pie",
    title,
    share_of: share.share_of,
    slices: [
      { name, share_ratio: share.active_ratio },
      { name: "idle", share_ratio: 1 - share.active_ratio },
    ],
  };
}

/** Utilization of every node or device in one chart. */
function utilizationFigure(kind: string, utilization: UtilizationOverTime): Plot {
  const { start_after_ns, piece_ns, series } = utilization;
  return {
    kind: "plot",
    title: `${kind} utilization over time`,
    x: { name: "after the start of the run", unit: "ns", min: start_after_ns },
    y: { name: "utilization", unit: "ratio", max: 1 },
    series: series.map(({ name, busy_ratio }) => ({
      name,
      x: busy_ratio.map((_, index) => start_after_ns + index * piece_ns),
      y: busy_ratio,
      filled: series.length === 1,
    })),
    note: `Mean per ${duration(piece_ns)}: ${utilization.definition}.`,
  };
}

function stepHistogram(durations: StepDurations) {
  return durationHistogram({
    title: durations.source === "watched" ? "Step durations" : "Traced step durations",
    noun: "steps",
    edges_ns: durations.edges_ns,
    series: [{ name: "all ranks", counts: durations.counts, above_count: durations.above_count }],
    marks_ns: [
      { name: "mean", value: durations.mean_ns },
      { name: "p50", value: durations.p50_ns },
      { name: "p95", value: durations.p95_ns },
    ],
  });
}

function stepStatisticsText(durations: StepDurations | null): string | null {
  if (durations === null) return null;
  return `Mean ${duration(durations.mean_ns)}, median ${duration(durations.p50_ns)}, p95 ${duration(durations.p95_ns)}; ${durations.timing}`;
}

interface KernelsProps {
  title: string;
  rows: KernelTime[];
  total: number;
  /** Fields that rank the kernels, and that say more of them. */
  by: "total_ns" | "launch_count";
  detail: "share_ratio" | "total_ns";
}

function KernelRanking({ title, rows, total, by, detail }: KernelsProps) {
  const largest = Math.max(1, ...rows.map((row) => row[by]));
  if (rows.length === 0) return null;
  return (
    <Panel
      title={title}
      description={`Top ${count(rows.length)} of ${count(total)}.`}
      tools={<a class="quiet" href={link("kernels")}>All kernels</a>}
    >
      <RankedBars
        label={title}
        rows={rows.map((row) => ({ name: row.name, value: textOf("KernelTime", row, by), ratio: row[by] / largest, detail: textOf("KernelTime", row, detail) }))}
        linkOf={(name) => link("timeline", { find: name.slice(0, 200) })}
      />
    </Panel>
  );
}

/** Every kernel as a bar, largest first: names do not fit below them. */
function allKernelsFigure(title: string, by: "total_ns" | "launch_count", kernels: readonly KernelTotal[]): Stacks {
  const rows = [...kernels].sort((a, b) => b[by] - a[by]);
  const { title: name, unit } = labelOf("KernelTotal", by);
  return {
    kind: "stacks",
    title,
    categoryName: "kernel",
    categories: rows.map((row) => singleLine(row.name)),
    hasNames: false,
    value: { name, unit },
    horizontal: false,
    parts: [{ name, values: rows.map((row) => row[by]) }],
  };
}

/** Figures without data, and how to record it. */
function MissingParts({ parts }: { parts: Record<string, string> }) {
  const reasons = [...new Set(Object.values(parts))];
  if (reasons.length === 0) return null;
  const titlesOf = (reason: string): string =>
    Object.keys(parts).filter((part) => parts[part] === reason).map((part) => labelOf("Dashboard", part as keyof Payload).title).join(", ");
  return (
    <Panel title="Missing data">
      <ul class="plain">
        {reasons.map((reason) => (
          <li key={reason}><b>{capitalize(titlesOf(reason))}</b>: <Prose text={reason} /></li>
        ))}
      </ul>
    </Panel>
  );
}

function Annotations() {
  const { data } = useView("annotations", { top: 200 });
  return <AnnotationHistograms suggestions={data === null ? [] : annotationNames(data)} />;
}
