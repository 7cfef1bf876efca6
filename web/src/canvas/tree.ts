// The tree of tracks as lines from top to bottom. A hundred thousand tracks are laid out by
// counting only; what is drawn, asked for and put on the page are the lines in view.
import type { RankSteps, Track, TrackGroup } from "../api/views";

export const ROW_PX = 18;
export const HEAD_PX = 24;
export const COUNTER_PX = 38;
/** Space below the rows of a track. */
export const GAP_PX = 4;
/** A folded track squeezes its rows into this; each is at least `THINNEST_PX` high. */
const FOLDED_PX = 18;
const THINNEST_PX = 2;
/** More rows are never laid out for one track: recordings do not nest deeper. */
const MOST_ROWS = 400;
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
  open: boolean;
  canFold: boolean;
  /** Of its siblings: how many there are, and its place, counted from 1. */
  siblings: number;
  place: number;
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
  toggled: (id: string) => boolean;
  /** All of these at first: open, closed, or by how large the tree is. */
  initially: "open" | "closed" | "auto";
  /** Part of a name; what does not have it is left out. */
  filter: string;
  /** Rows that were drawn so far of tracks whose count grows. */
  rows: ReadonlyMap<string, number>;
}

interface Family {
  level: number;
  parent: number;
  place: number;
  siblings: number;
}

/** All lines that are not within a closed group. */
export function treeOf(shape: Shape): Tree {
  const lines: Line[] = [];
  const filter = shape.filter.trim().toLowerCase();
  const small = lineCount(shape.groups) <= MANY_LINES;
  const wanted = filter === "" ? null : matching(shape.groups, filter);
  const seen = (id: string): boolean => wanted === null || wanted.has(id);
  let y = 0;
  const push = (line: Line): void => {
    lines.push(line);
    y += line.height;
  };
  const walk = (group: TrackGroup, family: Family): void => {
    const auto = small || family.level === 1;
    const first = shape.initially === "auto" ? auto : shape.initially === "open";
    const open = wanted !== null || shape.toggled(group.id) !== first;
    const parent = lines.length;
    push(groupLine(group, open, family, y, shape));
    if (!open) return;
    const groups = group.groups.filter((each) => seen(each.id));
    const tracks = group.tracks.filter((each) => seen(each.id));
    // Devices come first: stacks of host threads are high, and what devices do is looked at most.
    const devices = groups.filter((each) => each.kind === "device");
    const counters = groups.filter((each) => each.kind === "counters");
    const others = groups.filter((each) => each.kind !== "device" && each.kind !== "counters");
    const siblings = groups.length + tracks.length;
    let place = 0;
    const next = (): Family => ({ level: family.level + 1, parent, place: ++place, siblings });
    for (const each of devices) walk(each, next());
    for (const each of tracks) push(trackLine(each, group, next(), y, shape));
    for (const each of others) walk(each, next());
    for (const each of counters) walk(each, next());
  };
  const outermost = shape.groups.filter((each) => seen(each.id));
  outermost.forEach((group, at) => {
    walk(group, { level: 1, parent: -1, place: at + 1, siblings: outermost.length });
  });
  return { lines, height: y, byId: new Map(lines.map((each) => [each.id, each])) };
}

/** Tracks that stay in view above all others. Where they need too much room they are folded. */
export function pinnedTree(shape: Shape, pinned: readonly string[], most: number): Tree {
  const found = new Map<string, [Track, TrackGroup]>();
  const ids = new Set(pinned);
  if (ids.size > 0) eachTrack(shape.groups, (track, group) => {
    if (ids.has(track.id)) found.set(track.id, [track, group]);
  });
  const make = (folded: boolean): Tree => {
    let y = 0;
    const lines: Line[] = [];
    for (const id of pinned) {
      const [track, group] = found.get(id) ?? [];
      if (track === undefined || group === undefined) continue;
      const family = { level: 1, parent: -1, place: lines.length + 1, siblings: found.size };
      const line = trackLine(track, group, family, y, shape, folded);
      line.pinned = true;
      lines.push(line);
      y += line.height;
    }
    return { lines, height: y, byId: new Map(lines.map((each) => [each.id, each])) };
  };
  const full = make(false);
  return full.height <= most ? full : make(true);
}

function groupLine(group: TrackGroup, open: boolean, family: Family, y: number, shape: Shape): Line {
  const line = lineOf(group.id, group.name, group, family, y);
  line.open = open;
  line.canFold = true;
  line.steps = shape.steps.get(group.id) ?? null;
  line.summary = open ? [] : summaryTracks(group);
  line.height = HEAD_PX + (line.summary.length > 0 && line.steps !== null ? ROW_PX : 0);
  line.rowPx = ROW_PX - 2;
  return line;
}

function trackLine(
  track: Track,
  group: TrackGroup,
  family: Family,
  y: number,
  shape: Shape,
  folded = false,
): Line {
  const line = lineOf(track.id, track.name, group, family, y);
  const rows = Math.min(MOST_ROWS, Math.max(1, shape.rows.get(track.id) ?? track.row_count));
  line.kind = "track";
  line.track = track;
  line.canFold = track.kind !== "counter" && rows > 1;
  line.open = !line.canFold || !(folded || shape.toggled(track.id));
  line.rowPx = line.open ? ROW_PX : Math.max(THINNEST_PX, FOLDED_PX / rows);
  line.height = GAP_PX + (track.kind === "counter" ? COUNTER_PX : rows * line.rowPx);
  return line;
}

/** Written out field by field: a hundred thousand of these are made at once. */
function lineOf(id: string, name: string, group: TrackGroup, family: Family, y: number): Line {
  const { level, parent, place, siblings } = family;
  return {
    id, name, kind: "group", group, track: null, level, open: true, canFold: false, siblings, place,
    parent, y, height: 0, rowPx: ROW_PX, pinned: false, steps: null, summary: [],
  };
}

const TELLING: Record<Track["kind"], number> = { counter: -1, host: 0, device: 1e12, spans: 2e12 };

/** The tracks that say most about a group in one line: what the job recorded of itself all the
 * time, else what its devices did; the fullest of those. */
export function summaryTracks(group: TrackGroup, most = 2): Track[] {
  const best: Track[] = [];
  const weight = (track: Track): number =>
    TELLING[track.kind] + (track.event_count ?? 1);
  eachTrack([group], (track) => {
    if (track.kind === "counter") return;
    best.push(track);
    best.sort((a, b) => weight(b) - weight(a)).splice(most);
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
    const own = [...path, group];
    for (const track of group.tracks) visit(track, group, own);
    eachTrack(group.groups, visit, own);
  }
}

function lineCount(groups: readonly TrackGroup[]): number {
  return groups.reduce((sum, each) => sum + 1 + each.tracks.length + lineCount(each.groups), 0);
}

/** Ids of what has a part of a name, of what it is in, and of all within a group that has it. */
function matching(groups: readonly TrackGroup[], filter: string): Set<string> {
  const found = new Set<string>();
  const has = (name: string): boolean => name.toLowerCase().includes(filter);
  const visit = (group: TrackGroup, all: boolean): boolean => {
    const every = all || has(group.name);
    let any = every;
    for (const track of group.tracks) {
      if (!every && !has(track.name)) continue;
      found.add(track.id);
      any = true;
    }
    for (const each of group.groups) any = visit(each, every) || any;
    if (any) found.add(group.id);
    return any;
  };
  for (const group of groups) visit(group, false);
  return found;
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
  const found: Line[] = [];
  for (let at = lineAt(tree, top); at < tree.lines.length; at++) {
    const line = tree.lines[at];
    if (line === undefined || line.y >= bottom) break;
    if (line.y + line.height > top) found.push(line);
  }
  return found;
}

/** Groups around a track or group, the outermost first; empty where there is no such track. */
export function pathTo(groups: readonly TrackGroup[], id: string): TrackGroup[] {
  for (const group of groups) {
    if (group.id === id || group.tracks.some((each) => each.id === id)) return [group];
    const below = pathTo(group.groups, id);
    if (below.length > 0) return [group, ...below];
  }
  return [];
}
