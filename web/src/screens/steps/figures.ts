// Figures of the steps screen.
import type { RankStepsView } from "../../api/views";
import { phaseName } from "../../base/phase_names";
import { phaseColour } from "../../charts/step_strip";
import type { Stacks } from "../../charts/stacks";

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
      name: phaseName(name),
      colour: (colours) => phaseColour(name, colours),
      values: ranks.map((rank) => rank.phases.find((phase) => phase.name === name)?.mean_ns ?? null),
    })),
  };
}
