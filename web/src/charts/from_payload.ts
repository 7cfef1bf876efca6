// Conversion of payloads in nanoseconds and counts to figures.
import type { Histogram, Mark, Pie } from "../api/report";
import type { TypeName, Types } from "../api/labels";
import { timeUnit } from "../base/quantities";
import { labelOf } from "../widgets/fields";
import type { Stacks } from "./stacks";

const MAX_NAME_LENGTH = 160;

/** Clean a name for a legend: one line, left to right. */
export function singleLine(name: string): string {
  return name.slice(0, MAX_NAME_LENGTH).replaceAll(/[\p{Cc}\p{Bidi_Control}\s]+/gu, " ").trim();
}

interface Whole {
  share_of: string;
  parts: readonly { name: string; share_ratio: number | null }[];
}

export function pieOf(title: string, breakdown: Whole): Pie {
  return {
    kind: "pie",
    title,
    share_of: breakdown.share_of,
    slices: breakdown.parts.flatMap(({ name, share_ratio }) => (share_ratio === null ? [] : [{ name: singleLine(name), share_ratio }])),
  };
}

interface Durations {
  title: string;
  /** Noun for the counts: "steps". */
  noun: string;
  edges_ns: readonly number[];
  series: { name: string; counts: number[]; above_count?: number }[];
  /** Marked durations. */
  marks_ns?: readonly Mark[];
}

/** Build a histogram of durations in a common unit. */
export function durationHistogram(durations: Durations): Histogram {
  const [unit, size] = timeUnit(durations.edges_ns[durations.edges_ns.length - 1] ?? 0, 2);
  return {
    kind: "histogram",
    title: durations.title,
    axis: "duration",
    unit,
    digits: 2,
    counted: durations.noun,
    edges: durations.edges_ns.map((edge) => edge / size),
    series: durations.series.map(({ name, counts, above_count = 0 }) => ({ name, counts, below_count: 0, above_count })),
    marks: (durations.marks_ns ?? []).map(({ name, value }) => ({ name, value: value / size })),
    more: null,
  };
}

/** Upper bound of slices; the rest is merged. */
const MAX_SLICES = 9;

/** Build a pie of the largest shares by name, and the remainder. */
export function pieOfShares(
  title: string,
  share_of: string,
  shares: readonly (readonly [string, number | null])[],
): Pie {
  const byName = new Map<string, number>();
  for (const [name, ratio] of shares) {
    const short = singleLine(name);
    if (ratio !== null && ratio > 0) byName.set(short, (byName.get(short) ?? 0) + ratio);
  }
  const largest = [...byName].sort(([, a], [, b]) => b - a).slice(0, MAX_SLICES);
  const slices = largest.map(([name, share_ratio]) => ({ name, share_ratio }));
  const rest = 1 - slices.reduce((sum, slice) => sum + slice.share_ratio, 0);
  const remainder = slices.length > 0 && rest > 1e-6 ? [{ name: "others", share_ratio: rest }] : [];
  return { kind: "pie", title, share_of, slices: [...slices, ...remainder] };
}

/** Parts of the bars from fields of the rows, named by their labels. */
export function partsOf<Type extends TypeName>(
  type: Type,
  rows: readonly Types[Type][],
  names: readonly (keyof Types[Type] & string)[],
): Stacks["parts"] {
  return names.map((name) => ({ name: labelOf(type, name).title, values: rows.map((row) => row[name] as number | null) }));
}
