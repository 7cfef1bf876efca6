import { describe, expect, test } from "vitest";

import type { CountersView } from "../api/views";
import { countersOf, heightOf, valueAt } from "./counters";

function counter(mean: (number | null)[], full = 10) {
  const after_ns = mean.map((_, index) => 10 * index);
  const view: CountersView = {
    from_after_ns: 1000, to_after_ns: 2000, piece_ns: 10,
    series: [{ track: "c", unit: "W", full, after_ns, mean, least: mean, largest: mean }],
  };
  const parsed = countersOf(view).get("c");
  if (parsed === undefined) throw new Error("no counter");
  return parsed;
}

describe("a counter", () => {
  test("stands until its next sample where samples are farther apart than pieces", () => {
    const sampled = counter([1, null, null, null, 2, null, null, null, 3, null]);
    expect([...sampled.start]).toEqual([1000, 1040, 1080]);
    expect([...sampled.end]).toEqual([1040, 1080, 1120]);
    expect(valueAt(sampled, 1039)).toBe(0);
    expect(valueAt(sampled, 1040)).toBe(1);
  });

  test("has a gap where nothing was sampled for long", () => {
    const sampled = counter([1, 2, 3, null, null, null, null, null, 4, 5]);
    expect(sampled.end[2]).toBe(1030);
    expect(valueAt(sampled, 1050)).toBe(-1);
  });

  test("is drawn within its track, whatever its values", () => {
    const extreme = counter([-5, 1e300], -1);
    expect(extreme.maxValue).toBe(1);
    expect([heightOf(extreme, -5), heightOf(extreme, 1e300), heightOf(extreme, 0.5)]).toEqual([0, 1, 0.5]);
  });
});
