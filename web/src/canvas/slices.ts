// Slices of one track as typed columns, with the offset of each row.
import type { SlicesView, TrackSlices } from "../api/views";
import { colourIndex, kindColourIndex } from "./colours";
import { singleLine } from "./text";

/** Names of one response, with label and colour precomputed for drawing. */
export interface Names {
  full: readonly string[];
  /** Single-line labels for drawing. */
  labels: readonly string[];
  colour: Uint8Array;
  /** Kind of each name, and its colour. */
  kinds: readonly string[];
  kindColour: Uint8Array;
  bytes: number;
}

/** Sum of times that are anywhere in a slice, such as all calls of one transform for a batch. */
export interface SlicePart {
  /** Index into the names. */
  name: number;
  ns: number;
}

export interface Slices {
  names: Names;
  rowCount: number;
  /** Index of the first slice of each row, plus the total count. */
  rowOffsets: Uint32Array;
  /** Nanoseconds after the origin. */
  start: Float64Array;
  end: Float64Array;
  name: Uint32Array;
  /** On the critical path, index into the names of the kind of time; null on other tracks. */
  kind: Uint32Array | null;
  count: Float64Array;
  busy: Float32Array;
  /** Event id; -1 for a summary of several events. */
  event: Float64Array;
  /** Indices of the slices that had not ended. */
  unfinished: ReadonlySet<number>;
  /** Parts of slices by index of the slice. */
  parts: ReadonlyMap<number, readonly SlicePart[]>;
  /** Every slice is a single event: zooming in shows nothing new. */
  complete: boolean;
  bytes: number;
}

const BYTES_PER_SLICE = 4 * 8 + 2 * 4;
const BYTES_PER_PART = 60;

export function namesOf(names: readonly string[], kinds: readonly string[] = []): Names {
  const colour = Uint8Array.from(names, colourIndex);
  const kindColour = Uint8Array.from(names, (_, index) => kindColourIndex(kinds[index] ?? "other"));
  const bytes = names.reduce((sum, name) => sum + 2 * name.length + 300, 0);
  return { full: names, labels: names.map(singleLine), colour, kinds, kindColour, bytes };
}

/** Convert all tracks of a response. The names are shared; their bytes count for the first track. */
export function slicesOf(view: SlicesView): Map<string, Slices> {
  const names = namesOf(view.names, view.kinds);
  let namesBytes = names.bytes;
  const slicesByTrack = new Map<string, Slices>();
  for (const track of view.tracks) {
    const slices = toColumns(track, view.from_after_ns, names);
    slices.bytes += namesBytes;
    namesBytes = 0;
    slicesByTrack.set(track.track, slices);
  }
  return slicesByTrack;
}

/** Track without slices. */
export function emptySlices(): Slices {
  const none = { track: "", row_count: 0, row: [], after_ns: [], duration_ns: [], name: [] };
  const noParts = { kind: [], unfinished: [], part_slice: [], part_name: [], part_ns: [] };
  return toColumns({ ...none, ...noParts, count: [], busy_ratio: [], event: [] }, 0, namesOf([]));
}

function toColumns(track: TrackSlices, from: number, names: Names): Slices {
  const order = sortedIndices(track);
  const count = order.length;
  const rowCount = Math.max(0, finiteOr(track.row_count, 0), 1 + rowAt(track, order[count - 1]));
  const slices: Slices = {
    names,
    rowCount,
    rowOffsets: new Uint32Array(rowCount + 1).fill(count),
    start: new Float64Array(count),
    end: new Float64Array(count),
    name: new Uint32Array(count),
    kind: track.kind.length === 0 ? null : new Uint32Array(count),
    count: new Float64Array(count),
    busy: new Float32Array(count),
    event: new Float64Array(count),
    unfinished: unfinishedOf(track, order),
    parts: partsOf(track, order),
    complete: true,
    bytes: count * BYTES_PER_SLICE + BYTES_PER_PART * track.part_slice.length + 4 * rowCount + 200,
  };
  let row = -1;
  order.forEach((sourceIndex, index) => {
    const sliceRow = rowAt(track, sourceIndex);
    while (row < sliceRow) slices.rowOffsets[++row] = index;
    const start = from + finiteOr(track.after_ns[sourceIndex], 0);
    slices.start[index] = start;
    slices.end[index] = start + Math.max(0, finiteOr(track.duration_ns[sourceIndex], 0));
    slices.name[index] = finiteOr(track.name[sourceIndex], 0);
    if (slices.kind !== null) slices.kind[index] = finiteOr(track.kind[sourceIndex], 0);
    slices.count[index] = finiteOr(track.count[sourceIndex], 1);
    slices.busy[index] = Math.min(1, Math.max(0, finiteOr(track.busy_ratio[sourceIndex], 1)));
    const event = finiteOr(track.event[sourceIndex], -1);
    slices.event[index] = event;
    if (event < 0) slices.complete = false;
  });
  return slices;
}

export type ColourBy = "kind" | "name";

/** Colour index of a slice: by its kind or its name; on the critical path always by its kind. */
export function sliceColour({ kind, name, names }: Slices, index: number, colourBy: ColourBy): number {
  if (kind !== null) return kindColourIndex(names.full[kind[index] ?? 0] ?? "");
  return (colourBy === "kind" ? names.kindColour : names.colour)[name[index] ?? 0] ?? 0;
}

/** Kind of a slice; on the critical path that of its time. */
export function kindOf({ kind, name, names }: Slices, index: number): string {
  return (kind === null ? names.kinds[name[index] ?? 0] : names.full[kind[index] ?? 0]) ?? "";
}

function unfinishedOf(track: TrackSlices, order: readonly number[]): ReadonlySet<number> {
  const sources = new Set(track.unfinished);
  return new Set(sources.size === 0 ? [] : order.flatMap((source, index) => (sources.has(source) ? [index] : [])));
}

function partsOf(track: TrackSlices, order: readonly number[]): Map<number, SlicePart[]> {
  const parts = new Map<number, SlicePart[]>();
  if (track.part_slice.length === 0) return parts;
  const indexOfSource = new Map(order.map((sourceIndex, index) => [sourceIndex, index]));
  track.part_slice.forEach((sourceIndex, position) => {
    const index = indexOfSource.get(sourceIndex);
    if (index === undefined) return;
    const part = { name: finiteOr(track.part_name[position], 0), ns: Math.max(0, finiteOr(track.part_ns[position], 0)) };
    parts.set(index, [...(parts.get(index) ?? []), part]);
  });
  return parts;
}

/** Widths of the parts of a slice in a stacked bar, as shares of the slice; together at most 1. */
export function partShares(slices: Slices, index: number): { name: number; share: number }[] {
  const parts = slices.parts.get(index) ?? [];
  const length = (slices.end[index] ?? 0) - (slices.start[index] ?? 0);
  const sum = parts.reduce((total, part) => total + part.ns, 0);
  return parts.map(({ name, ns }) => ({ name, share: ns / Math.max(length, sum, 1) }));
}

function rowAt(track: TrackSlices, index: number | undefined): number {
  return index === undefined ? -1 : Math.max(0, finiteOr(track.row[index], 0));
}

/** Replace null and non-finite numbers: JSON has no NaN. */
function finiteOr(value: number | null | undefined, fallback: number): number {
  return typeof value === "number" && Number.isFinite(value) ? value : fallback;
}

/** Return slice indices ordered by row and start. The server sends them ordered; others are sorted. */
function sortedIndices(track: TrackSlices): number[] {
  const { row, after_ns: after } = track;
  const indices = row.map((_, index) => index);
  const compare = (a: number, b: number): number =>
    finiteOr(row[a], 0) - finiteOr(row[b], 0) || finiteOr(after[a], 0) - finiteOr(after[b], 0);
  const sorted = indices.every((index) => index === 0 || compare(index - 1, index) <= 0);
  return sorted ? indices : indices.sort(compare);
}

/** Find the first slice of a row that ends after a time. Slices of a row do not overlap. */
export function firstEndingAfter(slices: Slices, row: number, ns: number): number {
  let low = slices.rowOffsets[row] ?? 0;
  let high = slices.rowOffsets[row + 1] ?? 0;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((slices.end[middle] ?? 0) > ns) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** Return the slice of a row at a time, or the nearest within the tolerance; -1 for none. */
export function sliceAt(slices: Slices, row: number, ns: number, tolerance = 0): number {
  if (row < 0 || row >= slices.rowCount) return -1;
  const last = slices.rowOffsets[row + 1] ?? 0;
  let best = -1;
  let nearest = Infinity;
  for (let index = firstEndingAfter(slices, row, ns - tolerance); index < last; index++) {
    const start = slices.start[index] ?? 0;
    const distance = Math.max(start - ns, ns - (slices.end[index] ?? 0), 0);
    if (start - ns > tolerance || distance >= nearest) break;
    [best, nearest] = [index, distance];
  }
  return best;
}
