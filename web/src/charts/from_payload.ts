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

/** Parts of the bars from fields of the rows, named by their labels. */
export function partsOf<Type extends TypeName>(
  type: Type,
  rows: readonly Types[Type][],
  names: readonly (keyof Types[Type] & string)[],
): Stacks["parts"] {
  return names.map((name) => ({ name: labelOf(type, name).title, values: rows.map((row) => row[name] as number | null) }));
}
