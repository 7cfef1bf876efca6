// Slices of one track as the frames read them: typed columns, and where each row begins.
import type { SlicesView, TrackSlices } from "../api/views";
import { colourIndex } from "./colours";
import { line } from "./text";

/** Names of one answer, with what is asked of them in every frame. */
export interface Names {
  full: readonly string[];
  /** To be drawn: one short line. */
  drawn: readonly string[];
  colour: Uint8Array;
  bytes: number;
}

export interface Slices {
  names: Names;
  rowCount: number;
  /** Where the slices of a row begin; one more entry than rows. */
  rowFirst: Uint32Array;
  /** Nanoseconds after the origin. */
  start: Float64Array;
  end: Float64Array;
  name: Uint32Array;
  count: Float64Array;
  busy: Float32Array;
  /** -1 for a summary. */
  event: Float64Array;
  /** Whether every slice is an event of its own: coming nearer shows nothing new. */
  complete: boolean;
  bytes: number;
}

const BYTES_PER_SLICE = 4 * 8 + 2 * 4;

export function namesOf(names: readonly string[]): Names {
  const colour = Uint8Array.from(names, colourIndex);
  const bytes = names.reduce((sum, name) => sum + 2 * name.length + 300, 0);
  return { full: names, drawn: names.map(line), colour, bytes };
}

/** All tracks of an answer. The names are shared, and counted with the first. */
export function slicesOf(view: SlicesView): Map<string, Slices> {
  const names = namesOf(view.names);
  let namesBytes = names.bytes;
  const found = new Map<string, Slices>();
  for (const track of view.tracks) {
    const slices = columns(track, view.from_after_ns, names);
    slices.bytes += namesBytes;
    namesBytes = 0;
    found.set(track.track, slices);
  }
  return found;
}

/** A track that has nothing in a window. */
export function noSlices(): Slices {
  const none = { track: "", row_count: 0, row: [], after_ns: [], duration_ns: [], name: [] };
  return columns({ ...none, count: [], busy_ratio: [], event: [] }, 0, namesOf([]));
}

function columns(track: TrackSlices, from: number, names: Names): Slices {
  const order = inOrder(track);
  const count = order.length;
  const rowCount = Math.max(0, finite(track.row_count, 0), 1 + rowAt(track, order[count - 1]));
  const slices: Slices = {
    names,
    rowCount,
    rowFirst: new Uint32Array(rowCount + 1).fill(count),
    start: new Float64Array(count),
    end: new Float64Array(count),
    name: new Uint32Array(count),
    count: new Float64Array(count),
    busy: new Float32Array(count),
    event: new Float64Array(count),
    complete: true,
    bytes: count * BYTES_PER_SLICE + 4 * rowCount + 200,
  };
  let row = -1;
  order.forEach((at, place) => {
    const own = rowAt(track, at);
    while (row < own) slices.rowFirst[++row] = place;
    const start = from + finite(track.after_ns[at], 0);
    slices.start[place] = start;
    slices.end[place] = start + Math.max(0, finite(track.duration_ns[at], 0));
    slices.name[place] = finite(track.name[at], 0);
    slices.count[place] = finite(track.count[at], 1);
    slices.busy[place] = Math.min(1, Math.max(0, finite(track.busy_ratio[at], 1)));
    const event = finite(track.event[at], -1);
    slices.event[place] = event;
    if (event < 0) slices.complete = false;
  });
  return slices;
}

function rowAt(track: TrackSlices, at: number | undefined): number {
  return at === undefined ? -1 : Math.max(0, finite(track.row[at], 0));
}

/** JSON has no NaN: what no number could be written for is null. */
function finite(value: number | null | undefined, otherwise: number): number {
  return typeof value === "number" && Number.isFinite(value) ? value : otherwise;
}

/** Places of the slices by row and start: as they are sent, unless someone broke the promise. */
function inOrder(track: TrackSlices): number[] {
  const { row, after_ns: after } = track;
  const places = row.map((_, place) => place);
  const before = (a: number, b: number): number =>
    finite(row[a], 0) - finite(row[b], 0) || finite(after[a], 0) - finite(after[b], 0);
  const sorted = places.every((place) => place === 0 || before(place - 1, place) <= 0);
  return sorted ? places : places.sort(before);
}

/** The first slice of a row that ends after a time. Slices of a row do not overlap. */
export function firstAfter(slices: Slices, row: number, ns: number): number {
  let low = slices.rowFirst[row] ?? 0;
  let high = slices.rowFirst[row + 1] ?? 0;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((slices.end[middle] ?? 0) > ns) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** The slice of a row at a time, or the nearest within a few nanoseconds; -1 where there is none. */
export function sliceAt(slices: Slices, row: number, ns: number, within = 0): number {
  if (row < 0 || row >= slices.rowCount) return -1;
  const last = slices.rowFirst[row + 1] ?? 0;
  let best = -1;
  let nearest = Infinity;
  for (let place = firstAfter(slices, row, ns - within); place < last; place++) {
    const start = slices.start[place] ?? 0;
    const distance = Math.max(start - ns, ns - (slices.end[place] ?? 0), 0);
    if (start - ns > within || distance >= nearest) break;
    [best, nearest] = [place, distance];
  }
  return best;
}
