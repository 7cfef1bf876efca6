// Steps of a rank over their numbers: their figure, its description, and the ranges that one selects.
import type { StepSeries } from "../api/views";
import { count, countOf, duration, percent } from "../base/quantities";
import { phaseName } from "../base/phase_names";
import { capitalize } from "../base/text";
import { outlierAt, type StepStrip } from "../charts/step_strip";
import { navigate, setParams } from "../state/url";
import { rangeOf } from "./job_pieces";
import { timelineAt } from "./timeline_link";

interface StripOptions {
  height: number;
  isLog?: boolean;
  hasHistogram?: boolean;
  /** Phases to colour; all if absent. */
  highlight?: readonly string[] | undefined;
}

/** Smaller parts of step time are not in the legend of a low strip. */
const MIN_NAMED_RATIO = 0.03;

/** Coloured phases that are large enough to be visible. */
export function namedPhases({ phases }: StepSeries, highlight: readonly string[] | undefined): string[] {
  const totals = phases.map(({ mean_ns }) => mean_ns.reduce((sum, value) => sum + value, 0));
  const total = totals.reduce((sum, value) => sum + value, 0);
  return phases.map(({ name }) => name).filter((name, index) => (highlight?.includes(name) ?? true) && (totals[index] ?? 0) >= MIN_NAMED_RATIO * total);
}

export function stripFigure(series: StepSeries, { height, isLog = false, hasHistogram = false, highlight }: StripOptions): StepStrip {
  return {
    kind: "step_strip",
    title: series.ranks.length > 1 && series.rank !== null ? `Step time, ${series.rank.name}` : "Step time",
    steps: series.steps,
    value: { name: "step time", unit: "ns", log: isLog },
    parts: series.phases.map(({ name, mean_ns }) => ({ key: name, name: phaseName(name), values: mean_ns })),
    median: series.median_ns,
    outliers: series.outliers.map(({ step, duration_ns, phase, excess_ns }) => ({
      step,
      value: duration_ns,
      key: phase,
      text: `outlier, step ${count(step)}: ${duration(duration_ns)}, ${phaseTitle(phase)} ${duration(excess_ns)} above its median`,
    })),
    edges: hasHistogram ? series.edges_ns : [],
    counts: hasHistogram ? series.counts : [],
    height,
    highlight,
  };
}

/** Handlers of the figure: a drag selects a range for all screens, a click on an outlier opens the timeline. */
export function stripHandlers(series: StepSeries) {
  return {
    onRange: (from: number, to: number): void => { setParams(rangeOf(...timeOfSteps(series, from, to))); },
    onPoint: (name: string | undefined, index: number | undefined): void => {
      const outlier = series.outliers[outlierAt(name, index) ?? -1];
      if (outlier !== undefined) navigate(timelineAt(outlier.start_after_ns, outlier.start_after_ns + outlier.duration_ns));
    },
  };
}

function phaseTitle(name: string): string {
  return name === "other" ? "other time" : phaseName(name);
}

/** Mean time of a phase, or of a category of a trace. */
export interface MeanPhase {
  name: string;
  share_ratio: number | null;
  mean_ns: number | null;
}

/** Sentences on the largest phase and the slowest outlier. */
export function describeSteps(series: StepSeries, phases: readonly MeanPhase[] = []): string {
  const largest = [...phases].sort((a, b) => (b.mean_ns ?? 0) - (a.mean_ns ?? 0))[0];
  const owner = series.ranks.length > 1 && series.rank !== null ? ` on ${series.rank.name}` : "";
  const phase = largest === undefined ? [] : [`${capitalize(phaseTitle(largest.name))} takes ${percent(largest.share_ratio, 1)} of step time${owner}, ${duration(largest.mean_ns)} per step`];
  const slowest = [...series.outliers].sort((a, b) => b.duration_ns - a.duration_ns)[0];
  const outliers = slowest === undefined
    ? "No outliers"
    : `${countOf(series.outlier_count, "outlier")} above ${duration(series.outlier_threshold_ns)}; the slowest, step ${count(slowest.step)}, takes ${duration(slowest.duration_ns)}, of which ${phaseTitle(slowest.phase)} is ${duration(slowest.excess_ns)} above its median`;
  return [...phase, outliers].join(". ");
}

/** Describe what a point of the figure is. */
export function describePoints({ step_count, group_step_count, median_step_count, outlier_count, outliers }: StepSeries): string {
  const points = group_step_count === 1 ? `${countOf(step_count, "step")}, ` : `${countOf(step_count, "step")}, each point the mean of ${count(group_step_count)}; `;
  const marked = outlier_count > outliers.length ? "; the slowest outlier at each point is marked" : "";
  return `${points}moving median of ${count(Math.min(step_count, median_step_count))}${marked}. Drag to select a range for all screens; click an outlier to show it on the timeline.`;
}

/** Time after the origin of a range of steps: whole groups. */
export function timeOfSteps({ steps, start_after_ns }: Pick<StepSeries, "steps" | "start_after_ns">, from: number, to: number): [number, number] {
  const last = Math.max(0, start_after_ns.length - 1);
  const first = Math.max(0, steps.filter((step) => step <= from).length - 1);
  const end = steps.findIndex((step) => step >= to);
  return [start_after_ns[Math.min(first, last - 1)] ?? 0, start_after_ns[Math.max(first + 1, end === -1 ? last : end)] ?? 0];
}
