// Figures of the steps screen.
import type { Pie } from "../../api/report";
import type { RankStepsView, TraceStepsView } from "../../api/views";
import { words } from "../../base/text";
import type { Stacks } from "../../charts/stacks";

const CATEGORIES = [
  ["kernel", "kernel_ns"],
  ["memcpy", "memcpy_ns"],
  ["memset", "memset_ns"],
  ["communication", "communication_ns"],
  ["runtime", "runtime_ns"],
  ["data loader", "data_loader_ns"],
  ["host", "cpu_exec_ns"],
  ["other", "other_ns"],
] as const;

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
      values: ranks.map((rank) => rank.phases.find((phase) => phase.name === name)?.mean_ns ?? null),
    })),
  };
}

/** Label of a category: `cpu_exec` is other work on the host. */
export function categoryLabel(category: string): string {
  return category === "cpu_exec" ? "host" : words(category);
}

export function categoryPie(trace: TraceStepsView): Pie {
  return {
    kind: "pie",
    title: "Mean traced step",
    share_of: `the ${trace.share_of}`,
    slices: trace.categories
      .filter((category) => (category.share_ratio ?? 0) > 0)
      .map((category) => ({ name: categoryLabel(category.category), share_ratio: category.share_ratio ?? 0 })),
  };
}

export function traceStepsFigure(trace: TraceStepsView): Stacks {
  return {
    kind: "stacks",
    title: "Traced steps",
    categoryName: "step",
    categories: trace.steps.map((step) => step.step),
    value: { name: "duration", unit: "ns" },
    horizontal: false,
    parts: CATEGORIES.map(([name, key]) => ({ name, values: trace.steps.map((step) => step[key]) })).filter(
      ({ values }) => values.some((value) => value !== null && value > 0),
    ),
  };
}
