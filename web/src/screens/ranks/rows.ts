// Rows of the map of ranks: heat by step, parts of the mean step.
import type { DistributedView, RankTime, RanksView, RankWindow } from "../../api/views";
import { extent } from "../../charts/grid";
import { rankName } from "./trace_figures";

export interface RankRow {
  name: string;
  /** Heat of each column; null for unknown steps. */
  cells: readonly (number | null)[];
  parts: readonly Part[];
  /** Mean wait for other ranks; null if it is not known. */
  waiting_ns: number | null;
  /** Lateness of a late rank; null for others. */
  late_ns: number | null;
}

export interface Part {
  name: string;
  /** Number of its colour. */
  colour: number;
  time_ns: number;
}

export interface RankMap {
  rows: RankRow[];
  steps: readonly string[];
  stepsPerColumn: number;
  /** Quantity of the heat. */
  heat: "lateness" | "step duration";
  /** Values without heat and with full heat. */
  extent: readonly [number, number];
  /** Time that the bars divide. */
  barsOf: "mean step" | "trace time";
}

/** Heat is full at the latest step, or at this share of a step if all are closer to each other. */
const FULL_HEAT_RATIO = 0.1;

function parts(computation: number, overlap: number | null, rest: number, communication: number, waiting: number | null): Part[] {
  return [
    { name: "computation", colour: 0, time_ns: computation },
    ...(overlap === null ? [] : [{ name: "overlap", colour: 4, time_ns: overlap }]),
    { name: "rest of the step", colour: 6, time_ns: rest },
    { name: waiting === null ? "exposed communication" : "transfer", colour: 2, time_ns: communication },
    ...(waiting === null ? [] : [{ name: "waiting", colour: 1, time_ns: waiting }]),
  ];
}

/** Lateness of ranks that are compared; null without. */
export function lateRows({ ranks, map, mean_transfer_ns }: RanksView): RankMap | null {
  if (map === null) return null;
  const byName = new Map(ranks.map((rank) => [rank.rank, rank]));
  const rows = map.ranks.flatMap((name, index): RankRow[] => {
    const rank = byName.get(name);
    if (rank === undefined) return [];
    return [{
      name,
      cells: map.lateness_ns[index] ?? [],
      parts: parts(rank.mean_compute_ns, rank.mean_overlap_ns, rank.mean_other_ns, mean_transfer_ns ?? 0, rank.mean_waiting_ns),
      waiting_ns: rank.mean_waiting_ns,
      late_ns: rank.persistence === null ? null : rank.lateness_ns,
    }];
  });
  const [, latest_ns] = extent(map.lateness_ns);
  const [, step_ns] = extent([ranks.map((rank) => rank.mean_step_ns)]);
  return {
    rows, steps: map.steps, stepsPerColumn: map.steps_per_column, heat: "lateness",
    extent: [0, Math.max(latest_ns, FULL_HEAT_RATIO * step_ns)], barsOf: "mean step",
  };
}

/** Durations of steps and times of traces, where lateness is not known; null without either. */
export function durationRows({ matrix }: DistributedView, window: RankWindow | undefined): RankMap | null {
  const times = new Map((window?.ranks ?? []).map((rank) => [rankName(rank), rank]));
  const names = matrix?.ranks ?? [...times.keys()];
  if (names.length === 0) return null;
  const durations = matrix?.duration_ns ?? [];
  const [shortest_ns, longest_ns] = extent(durations);
  return {
    rows: names.map((name, index) => ({
      name, cells: durations[index] ?? [], parts: timeParts(times.get(name)), waiting_ns: null, late_ns: null,
    })),
    steps: matrix?.steps ?? [],
    stepsPerColumn: matrix?.steps_per_column ?? 1,
    heat: "step duration",
    extent: [shortest_ns, Math.max(longest_ns, (1 + FULL_HEAT_RATIO) * shortest_ns)],
    barsOf: "trace time",
  };
}

function timeParts(rank: RankTime | undefined): Part[] {
  return rank === undefined ? [] : parts(rank.computation_ns, rank.overlap_ns, rank.other_ns, rank.communication_ns, null);
}

/** Index of the column below a position from 0 to 1. */
export function columnAt(position: number, count: number): number {
  return Math.min(count - 1, Math.max(0, Math.floor(position * count)));
}
