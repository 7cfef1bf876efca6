import { expect, test } from "vitest";

import type { RankSteps, TrackGroup } from "../../api/views";
import { alignRanks, trackPaths } from "./alignment";

function rank(number: number): TrackGroup {
  const track = { id: `t${number}`, name: "main", kind: "host" as const, row_count: 1, unit: "", event_count: null };
  return { id: `rank ${number}`, name: `rank ${number}`, kind: "process", rank: number, groups: [], tracks: [track] };
}

function steps(number: number, first: number): RankSteps {
  return {
    group: `rank ${number}`, title: `rank ${number}`, numbers: [0, 1, 2],
    after_ns: [first, first + 10, first + 20], duration_ns: [10, 10, 10], outliers: [], left_out_count: 0,
  };
}

const GROUPS = [rank(0), rank(1), rank(2)];
const STEPS = [steps(0, 100), steps(1, 130), { ...steps(2, 0), numbers: [7, 8, 9] }];

test("a step of every rank begins where that of the first one does", () => {
  const aligned = alignRanks(GROUPS, STEPS, 1);
  expect(aligned?.ranks.map((rank) => rank.shift)).toEqual([0, 30, null]);
  expect(aligned?.shifts.get("t1")).toBe(30);
  expect(aligned?.shifts.get("rank 1")).toBe(30);
  expect(aligned?.shifts.has("t2")).toBe(false);
  expect(alignRanks(GROUPS, STEPS, 99)).toBeNull();
});

test("what has steps of its own within a process is moved by those", () => {
  const inner = rank(9);
  const outer = { ...rank(0), groups: [inner] };
  const aligned = alignRanks([outer], [steps(9, 500), steps(0, 100)], 1);
  expect([aligned?.shifts.get("t9"), aligned?.shifts.get("t0")]).toEqual([0, -400]);
});

test("tracks are named with what they are in", () => {
  expect(trackPaths(GROUPS).get("t1")).toBe("rank 1 › main");
});
