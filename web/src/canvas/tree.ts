// Tree of tracks as a list of lines. A hundred thousand tracks are laid out arithmetically; only
// visible lines are drawn, requested and rendered.
import type { RankSteps, Track, TrackGroup } from "../api/views";

export const ROW_PX = 18;
export const GROUP_HEADER_PX = 24;
export const COUNTER_PX = 38;
/** Space below the rows of a track. */
export const GAP_PX = 4;
/** Height of a collapsed track; each row is at least `MIN_ROW_PX` high. */
const COLLAPSED_PX = 18;
const MIN_ROW_PX = 2;
/** Upper bound of rows per track. */
const MAX_ROWS = 400;
/** Trees with more lines start with their inner groups collapsed. */
const MAX_AUTO_OPEN_LINES = 400;

export interface Line {
  id: string;
  name: string;
  kind: "group" | "track";
  group: TrackGroup;
  track: Track | null;
  /** Depth, 1 for the outermost. */
  level: number;
  isOpen: boolean;
  canCollapse: boolean;
  /** Number of siblings, and position among them, counted from 1. */
  siblings: number;
  positionInSet: number;
  /** Index of the line of its group; -1 for outermost and pinned lines. */
  parent: number;
  y: number;
  height: number;
  /** Height of one row of slices. */
  rowPx: number;
  pinned: boolean;
  /** Steps drawn in the header of a group. */
  steps: RankSteps | null;
  /** Tracks drawn in the single line of a collapsed group. */
  summary: readonly Track[];
}

export interface Tree {
  lines: Line[];
  /** Number of tracks that are left out since they are empty. */
  emptyCount: number;
  height: number;
  /** Line by the id of its track or group. */
  byId: Map<string, Line>;
}

export interface Shape {
  groups: readonly TrackGroup[];
  steps: ReadonlyMap<string, RankSteps>;
  /** Return true if a group or track differs from its default state. */
  isToggled: (id: string) => boolean;
  /** Default state: open, closed, or by the size of the tree. */
  defaultState: "open" | "closed" | "auto";
  /** Part of a name; other tracks are hidden. */
  filter: string;
  /** Leave out tracks that are empty, unless they match the filter. */
  hidesEmpty: boolean;
  /** Row counts of growing tracks, as drawn so far. */
  rowCounts: ReadonlyMap<string, number>;
}

interface LinePosition {
  level: number;
  parent: number;
  positionInSet: number;
  siblings: number;
}

/** Lay out all lines that are not in a collapsed group. */
export function treeOf(shape: Shape): Tree {
  const lines: Line[] = [];
  const filter = shape.filter.trim().toLowerCase();
  const isSmall = lineCount(shape.groups) <= MAX_AUTO_OPEN_LINES;
  const matchingIds = filter === "" ? null : findMatchingIds(shape.groups, filter);
  const isVisible = (id: string): boolean => matchingIds === null || matchingIds.has(id);
  const hidesEmpty = shape.hidesEmpty && matchingIds === null;
  let emptyCount = 0;
  const isEmpty = (track: Track): boolean => {
    if (track.is_empty) emptyCount += 1;
    return hidesEmpty && track.is_empty;
  };
  let y = 0;
  const push = (line: Line): void => {
    lines.push(line);
    y += line.height;
  };
  const walk = (group: TrackGroup, linePosition: LinePosition): void => {
    const auto = isSmall || linePosition.level === 1;
    const isOpenByDefault = shape.defaultState === "auto" ? auto : shape.defaultState === "open";
    const isOpen = matchingIds !== null || shape.isToggled(group.id) !== isOpenByDefault;
    const parent = lines.length;
    push(groupLine(group, isOpen, linePosition, y, shape));
    if (!isOpen) return;
    const groups = group.groups.filter((inner) => isVisible(inner.id));
    const tracks = group.tracks.filter((track) => isVisible(track.id) && !isEmpty(track));
    // Devices first: stacks of host threads are tall, and device work is of most interest.
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
  outermost.forEach((group, index) => {
    walk(group, { level: 1, parent: -1, positionInSet: index + 1, siblings: outermost.length });
  });
  return { lines, height: y, emptyCount, byId: new Map(lines.map((line) => [line.id, line])) };
}

/** Lay out the tracks that stay in view above all others, collapsed if they would exceed the height. */
export function pinnedTree(shape: Shape, pinned: readonly string[], maxHeight: number): Tree {
  const pinnedTracks = new Map<string, [Track, TrackGroup]>();
  const ids = new Set(pinned);
  if (ids.size > 0) eachTrack(shape.groups, (track, group) => {
    if (ids.has(track.id)) pinnedTracks.set(track.id, [track, group]);
  });
  const build = (collapsed: boolean): Tree => {
    let y = 0;
    const lines: Line[] = [];
    for (const id of pinned) {
      const [track, group] = pinnedTracks.get(id) ?? [];
      if (track === undefined || group === undefined) continue;
      const linePosition = { level: 1, parent: -1, positionInSet: lines.length + 1, siblings: pinnedTracks.size };
      const line = trackLine(track, group, linePosition, y, shape, collapsed);
      line.pinned = true;
      lines.push(line);
      y += line.height;
    }
    return { lines, height: y, emptyCount: 0, byId: new Map(lines.map((pinnedLine) => [pinnedLine.id, pinnedLine])) };
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
  collapsed = false,
): Line {
  const line = lineOf(track.id, track.name, group, linePosition, y);
  const rowCount = Math.min(MAX_ROWS, Math.max(1, shape.rowCounts.get(track.id) ?? track.row_count));
  line.kind = "track";
  line.track = track;
  line.canCollapse = track.kind !== "counter" && rowCount > 1;
  line.isOpen = !line.canCollapse || !(collapsed || shape.isToggled(track.id));
  line.rowPx = line.isOpen ? ROW_PX : Math.max(MIN_ROW_PX, COLLAPSED_PX / rowCount);
  line.height = GAP_PX + (track.kind === "counter" ? COUNTER_PX : rowCount * line.rowPx);
  return line;
}

/** All fields are listed: a hundred thousand of these are created at once. */
function lineOf(id: string, name: string, group: TrackGroup, linePosition: LinePosition, y: number): Line {
  const { level, parent, positionInSet, siblings } = linePosition;
  return {
    id, name, kind: "group", group, track: null, level, isOpen: true, canCollapse: false, siblings, positionInSet,
    parent, y, height: 0, rowPx: ROW_PX, pinned: false, steps: null, summary: [],
  };
}

const KIND_WEIGHT: Record<Track["kind"], number> = { counter: -1, path: 0, host: 0, device: 1e12, spans: 2e12 };

/** Select the tracks that represent a group in one line: span logs of the job, else devices; those
 * with most events. */
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

/** Find ids of matching tracks, of groups around them, and of everything in a matching group. */
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

/** Index of the line at a height, or the nearest. */
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

/** Return the lines of an interval of the height, from top to bottom. */
export function linesIn(tree: Tree, top: number, bottom: number): Line[] {
  const lines: Line[] = [];
  for (let index = lineAt(tree, top); index < tree.lines.length; index++) {
    const line = tree.lines[index];
    if (line === undefined || line.y >= bottom) break;
    if (line.y + line.height > top) lines.push(line);
  }
  return lines;
}

/** Groups around a track or group, outermost first; empty for an unknown id. */
export function pathTo(groups: readonly TrackGroup[], id: string): TrackGroup[] {
  for (const group of groups) {
    if (group.id === id || group.tracks.some((track) => track.id === id)) return [group];
    const below = pathTo(group.groups, id);
    if (below.length > 0) return [group, ...below];
  }
  return [];
}
