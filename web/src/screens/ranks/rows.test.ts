import { expect, test, vi } from "vitest";

import type { DistributedView, RanksView, RankWindow } from "../../api/views";

vi.stubGlobal("matchMedia", () => ({ matches: false, addEventListener: vi.fn() }));
const { columnAt, durationRows, lateRows } = await import("./rows");

const TIMES = { mean_step_ns: 100, mean_compute_ns: 50, mean_overlap_ns: 5, mean_other_ns: 15, lateness_ns: 8 };
const RANKS = {
  mean_transfer_ns: 10,
  ranks: [
    { ...TIMES, rank: "rank 1", mean_waiting_ns: 0, persistence: "persistent" },
    { ...TIMES, rank: "rank 0", mean_waiting_ns: 20, persistence: null },
  ],
  map: { ranks: ["rank 0", "rank 1"], steps: ["10", "12"], steps_per_column: 2, lateness_ns: [[-5, null], [5, 7]] },
} as unknown as RanksView;

test("a row has the lateness of each step and the parts of the mean step, which add up to it", () => {
  const map = lateRows(RANKS);
  expect(map?.rows.map(({ name, cells, late_ns }) => [name, cells, late_ns])).toEqual([
    ["rank 0", [-5, null], null], ["rank 1", [5, 7], 8],
  ]);
  expect(map?.rows[0]?.parts.map(({ name, time_ns }) => [name, time_ns])).toEqual([
    ["computation", 50], ["overlap", 5], ["rest of the step", 15], ["transfer", 10], ["waiting", 20],
  ]);
  expect(map?.rows[0]?.parts.reduce((sum, { time_ns }) => sum + time_ns, 0)).toBe(TIMES.mean_step_ns);
});

test("heat is full at a tenth of the step if no rank is later, so that chance stays pale", () => {
  expect(lateRows(RANKS)?.extent).toEqual([0, 10]);
  const late = { ...RANKS, map: { ...RANKS.map, lateness_ns: [[-40, null], [40, 70]] } } as RanksView;
  expect(lateRows(late)?.extent).toEqual([0, 70]);
});

test("without lateness, rows have durations of steps and times of traces", () => {
  expect(lateRows({ ...RANKS, map: null })).toBeNull();
  const window = { ranks: [{ rank: 0, computation_ns: 4, overlap_ns: 3, communication_ns: 2, other_ns: 1 }] } as unknown as RankWindow;
  const matrix = { ranks: ["rank 0", "rank 1"], steps: ["3"], steps_per_column: 1, duration_ns: [[12], [null]] };
  const map = durationRows({ matrix } as unknown as DistributedView, window);
  expect(map?.rows.map(({ cells, parts }) => [cells, parts.map(({ time_ns }) => time_ns)])).toEqual([[[12], [4, 3, 1, 2]], [[null], []]]);
  expect(map?.extent).toEqual([12, 1.1 * 12]);
  expect(durationRows({ matrix: null } as unknown as DistributedView, undefined)).toBeNull();
});

test("a position belongs to the column below it", () => {
  expect([-0.1, 0, 0.49, 0.5, 1].map((position) => columnAt(position, 2))).toEqual([0, 0, 0, 1, 1]);
});
