// Mean steps of both runs by part: as bars on one axis, and as a waterfall from one to the other.
import type { StepChanges } from "../../api/views";
import { phaseName } from "../../base/phase_names";
import type { Stacks } from "../../charts/stacks";
import { phaseColour } from "../../charts/step_strip";

export function stepWaterfall(steps: StepChanges): Stacks {
  const mean = steps.figures.find((figure) => figure.name === "mean");
  const start = mean?.base_ns ?? 0;
  const changed = steps.parts.filter((part) => part.change_ns !== 0);
  const ends: number[] = [];
  for (const part of changed) ends.push((ends[ends.length - 1] ?? start) + part.change_ns);
  const starts = [start, ...ends];
  const betweenMeans = (values: (number | null)[]): (number | null)[] => [null, ...values, null];
  return {
    kind: "stacks",
    title: "Change of the mean step by part",
    categoryName: "part",
    categories: ["from", ...changed.map((part) => phaseName(part.name)), "to"],
    value: { name: "mean step", unit: "ns" },
    horizontal: true,
    offsets: [0, ...changed.map((_, index) => Math.min(starts[index] ?? 0, ends[index] ?? 0)), 0],
    parts: [
      { name: "mean step", values: [start, ...changed.map(() => null), mean?.other_ns ?? null] },
      { name: "longer", values: betweenMeans(changed.map((part) => (part.change_ns > 0 ? part.change_ns : null))) },
      { name: "shorter", values: betweenMeans(changed.map((part) => (part.change_ns < 0 ? -part.change_ns : null))) },
    ],
  };
}

export function stepBars(steps: StepChanges): Stacks {
  return {
    kind: "stacks",
    title: "Mean step of both runs",
    categoryName: "run",
    categories: ["from", "to"],
    value: { name: "mean step", unit: "ns" },
    horizontal: true,
    parts: steps.parts.filter((part) => part.base_ns !== 0 || part.other_ns !== 0).map((part) => ({
      name: phaseName(part.name), values: [part.base_ns, part.other_ns], colour: (colours) => phaseColour(part.name, colours),
    })),
  };
}
