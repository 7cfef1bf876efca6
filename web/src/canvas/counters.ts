// A counter as the frames read it: values, each with the time that it stands for.
import type { CounterSeries, CountersView } from "../api/views";

export interface Counter {
  unit: string;
  /** What the height of the track stands for. */
  full: number;
  /** Nanoseconds after the origin; values that follow each other closely leave no gap. */
  start: Float64Array;
  end: Float64Array;
  mean: Float64Array;
  least: Float64Array;
  largest: Float64Array;
  bytes: number;
}

/** A value stands until the next one, if that comes within so many times the usual distance. */
const LONGEST_HOLD = 3;

export function countersOf(view: CountersView): Map<string, Counter> {
  return new Map(view.series.map((series) => [series.track, counterOf(series, view)]));
}

/** A counter without a value in a window. */
export function noCounter(): Counter {
  const none = new Float64Array(0);
  return { unit: "", full: 1, start: none, end: none, mean: none, least: none, largest: none, bytes: 100 };
}

function counterOf(series: CounterSeries, view: CountersView): Counter {
  const known = series.after_ns.map((_, place) => place).filter((place) => series.mean[place] != null);
  const of = (values: readonly (number | null)[]): Float64Array =>
    Float64Array.from(known, (place) => values[place] ?? series.mean[place] ?? 0);
  const start = Float64Array.from(known, (place) => view.from_after_ns + (series.after_ns[place] ?? 0));
  return {
    unit: series.unit,
    full: series.full > 0 && Number.isFinite(series.full) ? series.full : 1,
    start,
    end: ends(start, Math.max(1, view.piece_ns)),
    mean: of(series.mean),
    least: of(series.least),
    largest: of(series.largest),
    bytes: 40 * known.length + 100,
  };
}

/** Until when each value stands: pieces can be far narrower than samples are apart. */
function ends(start: Float64Array, pieceNs: number): Float64Array {
  const distances = start.subarray(1).map((at, place) => at - (start[place] ?? 0)).sort();
  const usual = Math.max(pieceNs, distances[distances.length >> 1] ?? pieceNs);
  return start.map((at, place) => {
    const next = start[place + 1] ?? Infinity;
    return next - at <= LONGEST_HOLD * usual ? next : at + usual;
  });
}

/** The first value that stands beyond a time. */
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

/** The value at a time; -1 where there is none. */
export function valueAt(counter: Counter, ns: number): number {
  const place = firstValueAfter(counter, ns);
  const start = counter.start[place];
  return start !== undefined && start <= ns ? place : -1;
}

/** Height of a value as a share of the track. */
export function share(counter: Counter, value: number): number {
  return Math.min(1, Math.max(0, value / counter.full));
}
