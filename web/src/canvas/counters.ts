// Counter as typed columns: each value with the interval in which it holds.
import type { CounterSeries, CountersView } from "../api/views";

export interface Counter {
  unit: string;
  /** Value at the full height of the track. */
  maxValue: number;
  /** Nanoseconds after the origin; consecutive values close to each other leave no gap. */
  start: Float64Array;
  end: Float64Array;
  mean: Float64Array;
  min: Float64Array;
  max: Float64Array;
  bytes: number;
}

/** A value holds until the next one if that follows within this many typical intervals. */
const MAX_HOLD_INTERVALS = 3;

export function countersOf(view: CountersView): Map<string, Counter> {
  return new Map(view.series.map((series) => [series.track, counterOf(series, view)]));
}

/** Counter without values. */
export function emptyCounter(): Counter {
  const none = new Float64Array(0);
  return { unit: "", maxValue: 1, start: none, end: none, mean: none, min: none, max: none, bytes: 100 };
}

function counterOf(series: CounterSeries, view: CountersView): Counter {
  const indices = series.after_ns.map((_, index) => index).filter((index) => series.mean[index] != null);
  const columnOf = (values: readonly (number | null)[]): Float64Array =>
    Float64Array.from(indices, (index) => values[index] ?? series.mean[index] ?? 0);
  const start = Float64Array.from(indices, (index) => view.from_after_ns + (series.after_ns[index] ?? 0));
  return {
    unit: series.unit,
    maxValue: series.full > 0 && Number.isFinite(series.full) ? series.full : 1,
    start,
    end: endTimes(start, Math.max(1, view.piece_ns)),
    mean: columnOf(series.mean),
    min: columnOf(series.least),
    max: columnOf(series.largest),
    bytes: 40 * indices.length + 100,
  };
}

/** Compute the end of each value: chunks can be far narrower than the distance between samples. */
function endTimes(start: Float64Array, pieceNs: number): Float64Array {
  const distances = start.subarray(1).map((startNs, index) => startNs - (start[index] ?? 0)).sort();
  const typicalInterval = Math.max(pieceNs, distances[distances.length >> 1] ?? pieceNs);
  return start.map((startNs, index) => {
    const next = start[index + 1] ?? Infinity;
    return next - startNs <= MAX_HOLD_INTERVALS * typicalInterval ? next : startNs + typicalInterval;
  });
}

/** Find the first value that ends after a time. */
export function firstValueAfter(counter: Counter, ns: number): number {
  let low = 0;
  let high = counter.end.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((counter.end[middle] ?? 0) > ns) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** Return the index of the value at a time, or -1. */
export function valueAt(counter: Counter, ns: number): number {
  const index = firstValueAfter(counter, ns);
  const start = counter.start[index];
  return start !== undefined && start <= ns ? index : -1;
}

/** Height of a value as a share of the track's height. */
export function heightOf(counter: Counter, value: number): number {
  return Math.min(1, Math.max(0, value / counter.maxValue));
}
