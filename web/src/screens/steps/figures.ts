// Figures of the steps screen.
import type { RankStepsView, TraceStepsView } from "../../api/views";
import { words } from "../../base/text";
import { partsOf } from "../../charts/from_payload";
import { phaseColour } from "../../charts/step_strip";
import type { Stacks } from "../../charts/stacks";
import { labelOf } from "../../widgets/fields";

const CATEGORIES = ["kernel_ns", "memcpy_ns", "memset_ns", "communication_ns", "runtime_ns", "data_loader_ns", "cpu_exec_ns", "other_ns"] as const;

/** Mean step of each rank by phase, without empty phases. */
export function phaseFigure(ranks: readonly RankStepsView[]): Stacks {
  const names = [...new Set(ranks.flatMap((rank) => rank.phases.filter((phase) => phase.mean_ns > 0).map((phase) => phase.name)))];
  return {
    kind: "stacks",
    title: "Mean step by phase",
    categoryName: "rank",
    categories: ranks.map((rank) => rank.rank),
    value: { name: "mean step", unit: "ns" },
    horizontal: true,
    parts: names.map((name) => ({
      name: words(name),
      colour: (colours) => phaseColour(name, colours),
      values: ranks.map((rank) => rank.phases.find((phase) => phase.name === name)?.mean_ns ?? null),
    })),
  };
}

/** Label of a category: that of its time in a step. */
export function categoryLabel(category: string): string {
  const name = CATEGORIES.find((candidate) => candidate === `${category}_ns`);
  return name === undefined ? words(category) : labelOf("RecordedStep", name).title;
}

export function traceStepsFigure(trace: TraceStepsView): Stacks {
  return {
    kind: "stacks",
    title: "Traced steps",
    categoryName: "step",
    categories: trace.steps.map((step) => step.step),
    value: { name: "duration", unit: "ns" },
    horizontal: false,
    parts: partsOf("RecordedStep", trace.steps, CATEGORIES).filter(({ values }) => values.some((value) => value !== null && value > 0)),
  };
}
