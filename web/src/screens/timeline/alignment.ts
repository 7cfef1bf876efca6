// Alignment of ranks on a step: every process is shifted so that the step starts at the same
// position.
import type { RankSteps, TrackGroup } from "../../api/views";
import { eachTrack, pathTo } from "../../canvas/tree";

export interface Alignment {
  step: number;
  /** Nanoseconds by which events are shifted on screen, by id of track or group. */
  shifts: ReadonlyMap<string, number>;
  /** Shift of each group with steps; null if it does not have this step. */
  ranks: { title: string; shift: number | null }[];
}

export function stepStart(steps: RankSteps, number: number): number | null {
  const index = steps.numbers.indexOf(number);
  return index < 0 ? null : (steps.after_ns[index] ?? null);
}

/** Compute the shifts that align all groups on a step of the first group that has it. */
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
  // Inner groups with steps of their own, such as traces, are shifted by those.
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

/** Full names of tracks, with the groups around them. */
export function trackPaths(groups: readonly TrackGroup[]): Map<string, string> {
  const names = new Map<string, string>();
  const shared = groups.length === 1 ? 1 : 0; // a group around all tracks distinguishes none
  eachTrack(groups, (track, _, path) => {
    names.set(track.id, [...path.slice(shared).map((group) => group.name), track.name].join(" › "));
  });
  return names;
}
