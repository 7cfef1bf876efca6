// Step of a run that stands for its others on the timeline, and the tracks that show it.
import type { RankSteps, Track, TrackGroup } from "../../api/views";

export interface StepExtent {
  /** Group of the tracks of its rank. */
  group: string;
  number: number;
  after_ns: number;
  duration_ns: number;
}

const MAX_TRACKS = 3;

/** Step of the first rank whose duration is the median; null without steps. */
export function medianStep([rank]: readonly RankSteps[]): StepExtent | null {
  if (rank === undefined) return null;
  const order = rank.numbers.map((_, index) => index).sort((a, b) => (rank.duration_ns[a] ?? 0) - (rank.duration_ns[b] ?? 0));
  const index = order[Math.floor((order.length - 1) / 2)];
  if (index === undefined) return null;
  return {
    group: rank.group, number: rank.numbers[index] ?? 0,
    after_ns: rank.after_ns[index] ?? 0, duration_ns: rank.duration_ns[index] ?? 0,
  };
}

/** Tracks of a group with the most slices, in their order. */
export function stepTracks(groups: readonly TrackGroup[], id: string): Track[] {
  const group = findGroup(groups, id);
  const tracks = group === undefined ? [] : allTracks(group).filter(({ kind }) => kind !== "counter");
  const busiest = [...tracks].sort((a, b) => (b.event_count ?? Infinity) - (a.event_count ?? Infinity)).slice(0, MAX_TRACKS);
  return tracks.filter((track) => busiest.includes(track));
}

function findGroup(groups: readonly TrackGroup[], id: string): TrackGroup | undefined {
  for (const group of groups) {
    const match = group.id === id ? group : findGroup(group.groups, id);
    if (match !== undefined) return match;
  }
  return undefined;
}

function allTracks(group: TrackGroup): Track[] {
  return [...group.tracks, ...group.groups.flatMap(allTracks)];
}
