// @vitest-environment jsdom
import { expect, test, vi } from "vitest";

import type { StepSeries } from "../api/views";

vi.stubGlobal("matchMedia", () => ({ matches: false, addEventListener: vi.fn() }));
const { describePoints, describeSteps, stripFigure, timeOfSteps } = await import("./step_series");
const { palette } = await import("../base/palette");
const { logTicks, stripOption } = await import("../charts/step_strip");

const SERIES: StepSeries = {
  damage: [], recording_end: null, doubts: [], quality: [], rounding: null, range: null, missing: null,
  ranks: [{ rank: 0, name: "rank 0" }, { rank: 1, name: "rank 1" }],
  rank: { rank: 1, name: "rank 1" },
  step_count: 50, group_step_count: 10, steps: [100, 110, 120, 150], start_after_ns: [0, 10, 25, 90],
  phases: [{ name: "data_wait", mean_ns: [1e6, 1e6, 2e6] }, { name: "other", mean_ns: [3e6, 3e6, 3e6] }],
  median_ns: [4e6, 4e6, 5e6], median_step_count: 30,
  outlier_threshold_ns: 8e6, outlier_count: 3,
  outliers: [{ step: 104, start_after_ns: 5, duration_ns: 90e6, phase: "data_wait", excess_ns: 85e6 }],
  edges_ns: [3e6, 4e6, 5e6], counts: [7, 40],
};

test("a drag across the strip selects whole groups", () => {
  expect(timeOfSteps(SERIES, 112, 118)).toEqual([10, 25]);
  expect(timeOfSteps(SERIES, 99, 120)).toEqual([0, 25]);
  expect(timeOfSteps(SERIES, 130, 400)).toEqual([25, 90]);
});

test("a slow step is clipped on a linear axis, and within a logarithmic one", () => {
  const symbols = (isLog: boolean) => {
    const { series } = stripOption(stripFigure(SERIES, { height: 360, isLog }), palette(false)) as { series: { name: string; data: { symbol: string }[] }[] };
    return series.find(({ name }) => name === "outliers")?.data.map(({ symbol }) => symbol);
  };
  expect(symbols(false)).toEqual(["triangle"]);
  expect(symbols(true)).toEqual(["circle"]);
  expect(logTicks(3, 120)).toEqual([5, 10, 20, 50, 100]);
});

test("sentences name the largest phase and the slowest step", () => {
  expect(describeSteps(SERIES, undefined)).toBe("3 outliers above 8 ms; the slowest, step 104, takes 90 ms, of which data wait is 85 ms above its median");
  expect(describeSteps({ ...SERIES, outliers: [], outlier_count: 0 }, undefined)).toBe("No outliers");
  expect(describePoints(SERIES)).toContain("50 steps, each point the mean of 10; moving median of 30; the slowest outlier at each point is marked.");
});
