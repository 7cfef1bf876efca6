import { describe, expect, test } from "vitest";

import type { CountersView } from "../api/views";
import { countersOf, share, valueAt } from "./counters";

function counter(mean: (number | null)[], full = 10) {
  const after_ns = mean.map((_, place) => 10 * place);
  const view: CountersView = {
    from_after_ns: 1000, to_after_ns: 2000, piece_ns: 10,
    series: [{ track: "c", unit: "W", full, after_ns, mean, least: mean, largest: mean }],
  };
  const found = countersOf(view).get("c");
  if (found === undefined) throw new Error("no counter");
  return found;
}

describe("a counter", () => {
  test("stands until its next sample where samples are farther apart than pieces", () => {
    const found = counter([1, null, null, null, 2, null, null, null, 3, null]);
    expect([...found.start]).toEqual([1000, 1040, 1080]);
    expect([...found.end]).toEqual([1040, 1080, 1120]);
    expect(valueAt(found, 1039)).toBe(0);
    expect(valueAt(found, 1040)).toBe(1);
  });

  test("has a gap where nothing was sampled for long", () => {
    const found = counter([1, 2, 3, null, null, null, null, null, 4, 5]);
    expect(found.end[2]).toBe(1030);
    expect(valueAt(found, 1050)).toBe(-1);
  });

  test("is drawn within its track, whatever its values", () => {
    const found = counter([-5, 1e300], -1);
    expect(found.full).toBe(1);
    expect([share(found, -5), share(found, 1e300), share(found, 0.5)]).toEqual([0, 1, 0.5]);
  });
});
