// The tree of tracks as lines from top to bottom. A hundred thousand tracks are laid out by
// counting only; what is drawn, asked for and put on the page are the lines in view.
import type { RankSteps, Track, TrackGroup } from "../api/views";

export const ROW_PX = 18;
export const GROUP_HEADER_PX = 24;
export const COUNTER_PX = 38;
/** Space below the rows of a track. */
export const GAP_PX = 4;
/** A folded track squeezes its rows into this; each is at least `THINNEST_PX` high. */
const FOLDED_PX = 18;
const MIN_ROW_PX = 2;
/** More rows are never laid out for one track: recordings do not nest deeper. */
const MAX_ROWS = 400;
/** Trees with more lines begin with their inner groups closed. */
const MANY_LINES = 400;

export interface Line {
  id: string;
  name: string;
  kind: "group" | "track";
  group: TrackGroup;
  track: Track | null;
  /** 1 for the outermost. */
  level: number;
  isOpen: boolean;
  canCollapse: boolean;
  /** Of its siblings: how many there are, and its place, counted from 1. */
  siblings: number;
  positionInSet: number;
  /** Index of the line of its group; -1 for the outermost and for pinned ones. */
  parent: number;
  y: number;
  height: number;
  /** Height of one row of slices. */
  rowPx: number;
  pinned: boolean;
  /** Steps drawn in the line of a group. */
  steps: RankSteps | null;
  /** Tracks drawn in its one line, when the group is closed. */
  summary: readonly Track[];
}

export interface Tree {
  lines: Line[];
  height: number;
  /** Line by the id of its track or group. */
  byId: Map<string, Line>;
}

export interface Shape {
  groups: readonly TrackGroup[];
  steps: ReadonlyMap<string, RankSteps>;
  /** Whether a group or track is not as it is at first: open ones closed, the other way around. */
  isToggled: (id: string) => boolean;
  /** All of these at first: open, closed, or by how large the tree is. */
  defaultState: "open" | "closed" | "auto";
  /** Part of a name; what does not have it is left out. */
  filter: string;
  /** Rows that were drawn so far of tracks whose count grows. */
  rowCounts: ReadonlyMap<string, number>;
}

interface LinePosition {
  level: number;
  parent: number;
  positionInSet: number;
  siblings: number;
}

/** All lines that are not within a closed group. */
export function treeOf(shape: Shape): Tree {
  const lines: Line[] = [];
  const filter = shape.filter.trim().toLowerCase();
  const small = lineCount(shape.groups) <= MANY_LINES;
  const matchingIds = filter === "" ? null : findMatchingIds(shape.groups, filter);
  const isVisible = (id: string): boolean => matchingIds === null || matchingIds.has(id);
  let y = 0;
  const push = (line: Line): void => {
    lines.push(line);
    y += line.height;
  };
  const walk = (group: TrackGroup, linePosition: LinePosition): void => {
    const auto = small || linePosition.level === 1;
    const first = shape.defaultState === "auto" ? auto : shape.defaultState === "open";
    const isOpen = matchingIds !== null || shape.isToggled(group.id) !== first;
    const parent = lines.length;
    push(groupLine(group, isOpen, linePosition, y, shape));
    if (!isOpen) return;
    const groups = group.groups.filter((inner) => isVisible(inner.id));
    const tracks = group.tracks.filter((track) => isVisible(track.id));
    // Devices come first: stacks of host threads are high, and what devices do is looked at most.
    const devices = groups.filter((inner) => inner.kind === "device");
    const counters = groups.filter((inner) => inner.kind === "counters");
    const hostGroups = groups.filter((inner) => inner.kind !== "device" && inner.kind !== "counters");
    const siblings = groups.length + tracks.length;
    let positionInSet = 0;
    const next = (): LinePosition => ({ level: linePosition.level + 1, parent, positionInSet: ++positionInSet, siblings });
    for (const inner of devices) walk(inner, next());
    for (const track of tracks) push(trackLine(track, group, next(), y, shape));
    for (const inner of hostGroups) walk(inner, next());
    for (const inner of counters) walk(inner, next());
  };
  const outermost = shape.groups.filter((group) => isVisible(group.id));
  outermost.forEach((group, at) => {
    walk(group, { level: 1, parent: -1, positionInSet: at + 1, siblings: outermost.length });
  });
  return { lines, height: y, byId: new Map(lines.map((line) => [line.id, line])) };
}

/** Tracks that stay in view above all others. Where they need too much room they are folded. */
export function pinnedTree(shape: Shape, pinned: readonly string[], maxHeight: number): Tree {
  const pinnedTracks = new Map<string, [Track, TrackGroup]>();
  const ids = new Set(pinned);
  if (ids.size > 0) eachTrack(shape.groups, (track, group) => {
    if (ids.has(track.id)) pinnedTracks.set(track.id, [track, group]);
  });
  const build = (folded: boolean): Tree => {
    let y = 0;
    const lines: Line[] = [];
    for (const id of pinned) {
      const [track, group] = pinnedTracks.get(id) ?? [];
      if (track === undefined || group === undefined) continue;
      const linePosition = { level: 1, parent: -1, positionInSet: lines.length + 1, siblings: pinnedTracks.size };
      const line = trackLine(track, group, linePosition, y, shape, folded);
      line.pinned = true;
      lines.push(line);
      y += line.height;
    }
    return { lines, height: y, byId: new Map(lines.map((pinnedLine) => [pinnedLine.id, pinnedLine])) };
  };
  const expandedTree = build(false);
  return expandedTree.height <= maxHeight ? expandedTree : build(true);
}

function groupLine(group: TrackGroup, isOpen: boolean, linePosition: LinePosition, y: number, shape: Shape): Line {
  const line = lineOf(group.id, group.name, group, linePosition, y);
  line.isOpen = isOpen;
  line.canCollapse = true;
  line.steps = shape.steps.get(group.id) ?? null;
  line.summary = isOpen ? [] : summaryTracks(group);
  line.height = GROUP_HEADER_PX + (line.summary.length > 0 && line.steps !== null ? ROW_PX : 0);
  line.rowPx = ROW_PX - 2;
  return line;
}

function trackLine(
  track: Track,
  group: TrackGroup,
  linePosition: LinePosition,
  y: number,
  shape: Shape,
  folded = false,
): Line {
  const line = lineOf(track.id, track.name, group, linePosition, y);
  const rowCounts = Math.min(MAX_ROWS, Math.max(1, shape.rowCounts.get(track.id) ?? track.row_count));
  line.kind = "track";
  line.track = track;
  line.canCollapse = track.kind !== "counter" && rowCounts > 1;
  line.isOpen = !line.canCollapse || !(folded || shape.isToggled(track.id));
  line.rowPx = line.isOpen ? ROW_PX : Math.max(MIN_ROW_PX, FOLDED_PX / rowCounts);
  line.height = GAP_PX + (track.kind === "counter" ? COUNTER_PX : rowCounts * line.rowPx);
  return line;
}

/** Written out field by field: a hundred thousand of these are made at once. */
function lineOf(id: string, name: string, group: TrackGroup, linePosition: LinePosition, y: number): Line {
  const { level, parent, positionInSet, siblings } = linePosition;
  return {
    id, name, kind: "group", group, track: null, level, isOpen: true, canCollapse: false, siblings, positionInSet,
    parent, y, height: 0, rowPx: ROW_PX, pinned: false, steps: null, summary: [],
  };
}

const KIND_WEIGHT: Record<Track["kind"], number> = { counter: -1, host: 0, device: 1e12, spans: 2e12 };

/** The tracks that say most about a group in one line: what the job recorded of itself all the
 * time, else what its devices did; the fullest of those. */
export function summaryTracks(group: TrackGroup, maxCount = 2): Track[] {
  const best: Track[] = [];
  const weight = (track: Track): number =>
    KIND_WEIGHT[track.kind] + (track.event_count ?? 1);
  eachTrack([group], (track) => {
    if (track.kind === "counter") return;
    best.push(track);
    best.sort((a, b) => weight(b) - weight(a)).splice(maxCount);
  });
  const kind = best[0]?.kind;
  return best.filter((track) => track.kind === kind);
}

export function eachTrack(
  groups: readonly TrackGroup[],
  visit: (track: Track, group: TrackGroup, path: readonly TrackGroup[]) => void,
  path: readonly TrackGroup[] = [],
): void {
  for (const group of groups) {
    const groupPath = [...path, group];
    for (const track of group.tracks) visit(track, group, groupPath);
    eachTrack(group.groups, visit, groupPath);
  }
}

function lineCount(groups: readonly TrackGroup[]): number {
  return groups.reduce((sum, group) => sum + 1 + group.tracks.length + lineCount(group.groups), 0);
}

/** Ids of what has a part of a name, of what it is in, and of all within a group that has it. */
function findMatchingIds(groups: readonly TrackGroup[], filter: string): Set<string> {
  const ids = new Set<string>();
  const isMatch = (name: string): boolean => name.toLowerCase().includes(filter);
  const visit = (group: TrackGroup, all: boolean): boolean => {
    const showAll = all || isMatch(group.name);
    let hasMatch = showAll;
    for (const track of group.tracks) {
      if (!showAll && !isMatch(track.name)) continue;
      ids.add(track.id);
      hasMatch = true;
    }
    for (const inner of group.groups) hasMatch = visit(inner, showAll) || hasMatch;
    if (hasMatch) ids.add(group.id);
    return hasMatch;
  };
  for (const group of groups) visit(group, false);
  return ids;
}

/** Index of the line at a height; the nearest where there is none. */
export function lineAt(tree: Tree, y: number): number {
  let low = 0;
  let high = tree.lines.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if ((tree.lines[middle]?.y ?? 0) <= y) low = middle;
    else high = middle - 1;
  }
  return low;
}

/** Lines of a part of the height, from top to bottom. */
export function linesIn(tree: Tree, top: number, bottom: number): Line[] {
  const lines: Line[] = [];
  for (let at = lineAt(tree, top); at < tree.lines.length; at++) {
    const line = tree.lines[at];
    if (line === undefined || line.y >= bottom) break;
    if (line.y + line.height > top) lines.push(line);
  }
  return lines;
}

/** Groups around a track or group, the outermost first; empty where there is no such track. */
export function pathTo(groups: readonly TrackGroup[], id: string): TrackGroup[] {
  for (const group of groups) {
    if (group.id === id || group.tracks.some((track) => track.id === id)) return [group];
    const below = pathTo(group.groups, id);
    if (below.length > 0) return [group, ...below];
  }
  return [];
}
