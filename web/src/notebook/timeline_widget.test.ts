import { expect, test } from "vitest";

import { linePath, timeAt } from "./timeline_widget";

test("positions are times of the plot, which starts after the labels", () => {
  expect(timeAt(190, 1000)).toBe(0);
  expect(timeAt(190 + 345, 1000)).toBe(500);
  expect(timeAt(880, 1000)).toBe(1000);
  expect([timeAt(0, 1000), timeAt(2000, 1000)]).toEqual([0, 1000]);
});

test("a line has a gap where nothing was sampled", () => {
  const row = { label: "x", unit: "ratio", scale: 1, values: [0, 1, null, 0.5] };
  const path = linePath(row, 25, 100);
  expect(path.match(/M/g)).toHaveLength(2);
  expect(path).toBe("M276.3 44.0h0.1L448.8 0.0M793.8 22.0h0.1");
});
