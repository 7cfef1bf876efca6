// Ranks aligned on a step: every process is moved so that its step begins where the first one's does.
import type { RankSteps, TrackGroup } from "../../api/views";
import { eachTrack, pathTo } from "../../canvas/tree";

export interface Alignment {
  step: number;
  /** Nanoseconds by which events happened later than they are drawn, by id of track or group. */
  shifts: ReadonlyMap<string, number>;
  /** One for each group that has steps; null where it has no such step. */
  ranks: { title: string; shift: number | null }[];
}

export function stepStart(steps: RankSteps, number: number): number | null {
  const index = steps.numbers.indexOf(number);
  return index < 0 ? null : (steps.after_ns[index] ?? null);
}

/** Shifts that align all groups on a step of the first one that has it. */
export function alignRanks(
  groups: readonly TrackGroup[],
  steps: readonly RankSteps[],
  step: number,
): Alignment | null {
  const shifts = new Map<string, number>();
  const ranks: Alignment["ranks"] = [];
  const moved: { path: TrackGroup[]; shift: number }[] = [];
  let first: number | null = null;
  for (const rankSteps of steps) {
    const start = stepStart(rankSteps, step);
    first ??= start;
    const shift = start === null || first === null ? null : start - first;
    ranks.push({ title: rankSteps.title, shift });
    if (shift !== null) moved.push({ path: pathTo(groups, rankSteps.group), shift });
  }
  // Groups within that have steps of their own, such as recordings, are moved by those.
  moved.sort((a, b) => a.path.length - b.path.length);
  for (const { path, shift } of moved) {
    const set = (group: TrackGroup): void => {
      shifts.set(group.id, shift);
      for (const track of group.tracks) shifts.set(track.id, shift);
      group.groups.forEach(set);
    };
    path.slice(-1).forEach(set);
  }
  return first === null ? null : { step, shifts, ranks };
}

/** Names of the groups around every track, for sentences that name one. */
export function trackPaths(groups: readonly TrackGroup[]): Map<string, string> {
  const names = new Map<string, string>();
  const shared = groups.length === 1 ? 1 : 0; // what all are in tells none apart
  eachTrack(groups, (track, _, path) => {
    names.set(track.id, [...path.slice(shared).map((group) => group.name), track.name].join(" › "));
  });
  return names;
}
