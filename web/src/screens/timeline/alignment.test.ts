import { expect, test } from "vitest";

import type { RankSteps, TrackGroup } from "../../api/views";
import { alignRanks, trackPaths } from "./alignment";

function rank(number: number): TrackGroup {
  const track = { id: `t${number}`, name: "main", kind: "host" as const, row_count: 1, unit: "", event_count: null, is_empty: false };
  return { id: `rank ${number}`, name: `rank ${number}`, kind: "process", rank: number, groups: [], tracks: [track] };
}

function steps(number: number, first: number): RankSteps {
  return {
    group: `rank ${number}`, title: `rank ${number}`, rank: "", numbers: [0, 1, 2],
    after_ns: [first, first + 10, first + 20], duration_ns: [10, 10, 10], outliers: [], left_out_count: 0,
  };
}

const GROUPS = [rank(0), rank(1), rank(2)];
const STEPS = [steps(0, 100), steps(1, 130), { ...steps(2, 0), numbers: [7, 8, 9] }];

test("a step of every rank starts at the time of the first rank", () => {
  const aligned = alignRanks(GROUPS, STEPS, 1);
  expect(aligned?.ranks.map((rank) => rank.shift)).toEqual([0, 30, null]);
  expect(aligned?.shifts.get("t1")).toBe(30);
  expect(aligned?.shifts.get("rank 1")).toBe(30);
  expect(aligned?.shifts.has("t2")).toBe(false);
  expect(alignRanks(GROUPS, STEPS, 99)).toBeNull();
});

test("a group with steps of its own is aligned by them", () => {
  const innerRank = rank(9);
  const outerRank = { ...rank(0), groups: [innerRank] };
  const aligned = alignRanks([outerRank], [steps(9, 500), steps(0, 100)], 1);
  expect([aligned?.shifts.get("t9"), aligned?.shifts.get("t0")]).toEqual([0, -400]);
});

test("track names include their groups", () => {
  expect(trackPaths(GROUPS).get("t1")).toBe("rank 1 › main");
});
