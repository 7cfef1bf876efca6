import { expect, test } from "vitest";

import { NANOSECONDS, scaleOf } from "./cross_hair";

test("a time is at the same share of its column as of an axis of values", () => {
  const values = scaleOf(NANOSECONDS, (position) => 100 + position / 1e8);
  const columns = scaleOf({ origin: 2e9, unit: 1e9, isColumns: true }, (position) => 105 + 10 * position);
  expect([values?.toPixel(0), values?.toPixel(3e9), values?.toTime(130)]).toEqual([100, 130, 3e9]);
  // The first column spans pixels 100 to 110, and seconds 2 to 3.
  expect([columns?.toPixel(2e9), columns?.toPixel(2.5e9), columns?.toTime(110)]).toEqual([100, 105, 3e9]);
  expect(scaleOf(NANOSECONDS, () => NaN)).toBeNull();
});
