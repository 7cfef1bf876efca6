// Figures of the time of ranks in traces.
import type { RankTime } from "../../api/views";
import type { Stacks } from "../../charts/stacks";
import { labelOf } from "../../widgets/fields";

export function rankName(rank: RankTime): string {
  return rank.rank === null ? rank.trace.slice(0, 60) : `rank ${rank.rank}`;
}

/** Steps of any rank, in the order of the first rank that has them. */
export function stepNames(ranks: readonly RankTime[]): string[] {
  return [...new Set(ranks.flatMap((rank) => rank.steps?.step ?? []))];
}

const PARTS = ["computation_ns", "overlap_ns", "communication_ns", "other_ns"] as const;

type Part = (typeof PARTS)[number] | "transfer_ns" | "waiting_ns";

/** Parts of the time of each rank in one step, or in the whole trace. */
function partTimes(ranks: readonly RankTime[], parts: readonly Part[], step: string): Stacks["parts"] {
  const timeOf = (rank: RankTime, part: Part): number | null => {
    if (step === "") return rank[part];
    const index = rank.steps?.step.indexOf(step) ?? -1;
    return index < 0 ? null : (rank.steps?.[part]?.[index] ?? null);
  };
  return parts.map((part) => ({ name: labelOf("RankTime", part).title, values: ranks.map((rank) => timeOf(rank, part)) }));
}

/** Stacked parts of each rank for one step, or for the whole trace if the name is empty. */
export function rankTimeFigure(ranks: readonly RankTime[], step: string): Stacks {
  return {
    kind: "stacks",
    title: "Computation and communication",
    categoryName: "rank",
    categories: ranks.map(rankName),
    value: { name: step === "" ? "trace time" : `time of step ${step}`, unit: "ns" },
    horizontal: true,
    parts: partTimes(ranks, PARTS, step),
  };
}

/** Return null if no collective was matched across ranks. */
export function transferFigure(ranks: readonly RankTime[], step: string): Stacks | null {
  if (ranks.every((rank) => rank.transfer_ns === null)) return null;
  return {
    kind: "stacks",
    title: "Transfer and waiting in collectives",
    categoryName: "rank",
    categories: ranks.map(rankName),
    value: { name: "time in matched collectives", unit: "ns" },
    horizontal: true,
    parts: partTimes(ranks, ["transfer_ns", "waiting_ns"], step),
  };
}
