import { describe, expect, test } from "vitest";

import type { CountersView } from "../api/views";
import { countersOf, heightOf, valueAt } from "./counters";

function counter(mean: (number | null)[], full = 10) {
  const after_ns = mean.map((_, index) => 10 * index);
  const view: CountersView = {
    damage: [], recording_end: null, doubts: [], rounding: null, from_after_ns: 1000, to_after_ns: 2000, piece_ns: 10,
    series: [{ track: "c", unit: "W", full, after_ns, mean, least: mean, largest: mean }],
  };
  const parsed = countersOf(view).get("c");
  if (parsed === undefined) throw new Error("no counter");
  return parsed;
}

describe("a counter", () => {
  test("holds a sample until the next one if samples are sparser than buckets", () => {
    const parsed = counter([1, null, null, null, 2, null, null, null, 3, null]);
    expect([...parsed.start]).toEqual([1000, 1040, 1080]);
    expect([...parsed.end]).toEqual([1040, 1080, 1120]);
    expect(valueAt(parsed, 1039)).toBe(0);
    expect(valueAt(parsed, 1040)).toBe(1);
  });

  test("has a gap after a long time without samples", () => {
    const parsed = counter([1, 2, 3, null, null, null, null, null, 4, 5]);
    expect(parsed.end[2]).toBe(1030);
    expect(valueAt(parsed, 1050)).toBe(-1);
  });

  test("is clamped to the height of its track", () => {
    const parsed = counter([-5, 1e300], -1);
    expect(parsed.maxValue).toBe(1);
    expect([heightOf(parsed, -5), heightOf(parsed, 1e300), heightOf(parsed, 0.5)]).toEqual([0, 1, 0.5]);
  });
});
