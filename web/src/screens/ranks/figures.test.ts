import { expect, test } from "vitest";

import type { RanksView } from "../../api/views";
import { latenessGrid } from "./figures";

const PAYLOAD = {
  map: { ranks: ["rank 0", "rank 1"], steps: ["10", "12"], steps_per_column: 2, lateness_ns: [[-5, null], [5, 7]] },
} as unknown as RanksView;

test("the map shows lateness alone, and keeps what is unknown", () => {
  const grid = latenessGrid(PAYLOAD);
  expect(grid?.values).toEqual([[0, null], [5, 7]]);
  expect(grid?.rows).toEqual(["rank 0", "rank 1"]);
  expect(grid?.note).toBe("Each column is the mean of 2 steps.");
});

test("without ranks to compare there is no map", () => {
  expect(latenessGrid({ ...PAYLOAD, map: null })).toBeNull();
});
