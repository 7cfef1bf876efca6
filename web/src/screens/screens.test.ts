// @vitest-environment jsdom
import { describe, expect, test, vi } from "vitest";

import type { HostMemoryView, JobRow, MetricSeries, NodeMemoryUse, RankLateness, RankTime, RooflineGroup, SimulatedFixRow, NodeView, StepChanges, SystemHeatView, SystemSeriesView } from "../api/views";

vi.stubGlobal("matchMedia", () => ({ matches: false, addEventListener: vi.fn() }));

const { medianStep, stepTracks } = await import("./compare/steps");
const { stepBars, stepWaterfall } = await import("./compare/waterfall");
const { parseFixes, setFactor, toggleFix } = await import("./critical_path/fixes");
const { kindSegments } = await import("./critical_path/path");
const { byReason } = await import("./critical_path/what_if");
const { rankTimeFigure, stepNames, transferFigure } = await import("./ranks/trace_figures");
const { filterJobs } = await import("./jobs/filters");
const { rankFields } = await import("./ranks/fields");
const { rooflinePlot } = await import("./roofline/figure");
const { heatMapFigure } = await import("./system/heat_map");
const { memoryPlot } = await import("./system/host_memory");
const { parseCores, metricPlots } = await import("./system/figures");
const { usage } = await import("./system/metrics");

/** Build a payload with only the fields under test. */
const partial = <T>(value: Partial<Record<keyof T, unknown>>): T => value as T;

test("jobs are filtered by status and age", () => {
  const day = 24 * 3_600_000;
  const jobs = [
    { id: "new", status: "InProgress", created_ms: 9.5 * day },
    { id: "old", status: "Completed", created_ms: day },
  ].map((job) => partial<JobRow>(job));
  type Filters = Parameters<typeof filterJobs>;
  const ids = (status: Filters[1], period: Filters[2], from_ms: number | null = null, to_ms: number | null = null): string[] =>
    filterJobs(jobs, status, period, { from_ms, to_ms }, 10 * day).map((job) => job.id);
  expect(ids("all", "any")).toEqual(["new", "old"]);
  expect(ids("Completed", "any")).toEqual(["old"]);
  expect(ids("all", "day")).toEqual(["new"]);
  expect(ids("all", "range")).toEqual(["new", "old"]);
  expect(ids("all", "range", day, null)).toEqual(["new", "old"]);
  expect(ids("all", "range", day + 1, null)).toEqual(["new"]);
  expect(ids("all", "range", null, 9.5 * day)).toEqual(["new", "old"]);
  expect(ids("all", "range", null, 9.5 * day - 60_000)).toEqual(["old"]);
  expect(ids("all", "range", 2 * day, 3 * day)).toEqual([]);
});

test("fixes are combined in the text of the view", () => {
  const both = toggleFix(toggleFix("", { name: "no-sync", factor: null }), { name: "workers", factor: "2" });
  expect(both).toBe("no-sync+workers=2");
  expect(setFactor(both, "workers", "4")).toBe("no-sync+workers=4");
  expect(toggleFix(both, { name: "no-sync", factor: null })).toBe("workers=2");
  expect([...parseFixes(both)]).toEqual([["no-sync", ""], ["workers", "2"]]);
  expect(parseFixes("").size).toBe(0);
});

test("fixes without a saving are listed by their reason", () => {
  const fixes = [["no-sync", "not recorded"], ["no-input", null], ["overlap", "off the path"], ["batch=2", "not recorded"]]
    .map(([fix, reason]) => partial<SimulatedFixRow>({ fix, reason }));
  expect(byReason(fixes).map(([reason, rows]) => [reason, rows.map(({ fix }) => fix)])).toEqual([
    ["not recorded", ["no-sync", "batch=2"]], ["off the path", ["overlap"]],
  ]);
});

test("kinds of time keep their colours whatever their order", () => {
  const share = { step_ns: 1e6, share_ratio: 0.5 };
  const segments = kindSegments([{ category: "copies", ...share }, { category: "computation", ...share }]);
  expect(segments.map(({ name, amount, colour }) => [name, amount, colour])).toEqual([
    ["copies", "1 ms", 8], ["computation", "1 ms", 0],
  ]);
});

test("a waterfall leads from one mean step to the other", () => {
  const change = (name: string, base_ns: number, other_ns: number) => ({
    name, base_ns, other_ns, change_ns: other_ns - base_ns,
  });
  const steps = partial<StepChanges>({
    figures: [change("mean", 100, 80)],
    parts: [change("data_wait", 50, 20), change("forward", 50, 60), change("loss", 0, 0)],
  });
  const { categories, offsets, parts } = stepWaterfall(steps);
  expect(categories).toEqual(["from", "data wait", "forward", "to"]);
  expect(offsets).toEqual([0, 70, 70, 0]);
  expect(parts.map(({ values }) => values)).toEqual([
    [100, null, null, 80], [null, null, 10, null], [null, 30, null, null],
  ]);
});

test("late ranks have columns for what any of them has", () => {
  const row = (persistence: string | null, cause: string | null, made_late_by: string | null = null) =>
    partial<RankLateness>({ coordinates: "", persistence, cause, made_late_by });
  const texts = (rows: RankLateness[]) =>
    rankFields(rows).slice(-2).map((field) => [field.name, ...rows.map((one) => field.value(one))]);
  expect(texts([row(null, null), row("persistent", "slow data loading"), row("since", null)])).toEqual([
    ["persistence", "none", "persistent", "since"], ["cause", "none", "slow data loading", "not found"],
  ]);
  const inherited = [row(null, null), row(null, null, "rank 0")];
  expect(texts(inherited)[1]).toEqual(["made_late_by", "none", "rank 0"]);
  expect(rankFields(inherited).map(({ name }) => name)).not.toContain("coordinates");
});

describe("ranks", () => {
  const ranks = [
    partial<RankTime>({ rank: 0, computation_ns: 6, overlap_ns: 1, communication_ns: 2, other_ns: 1, transfer_ns: 2, waiting_ns: 0, steps: { step: ["5", "6"], computation_ns: [3, 3], overlap_ns: [1, 0], communication_ns: [1, 1], other_ns: [0, 1], transfer_ns: null, waiting_ns: null } }),
    partial<RankTime>({ rank: null, trace: "b", computation_ns: 5, overlap_ns: 0, communication_ns: 5, other_ns: 0, transfer_ns: null, waiting_ns: null, steps: null }),
  ];

  test("have a breakdown of the trace or of a step", () => {
    expect(stepNames(ranks)).toEqual(["5", "6"]);
    expect(rankTimeFigure(ranks, "").parts[0]?.values).toEqual([6, 5]);
    expect(rankTimeFigure(ranks, "6").parts[0]?.values).toEqual([3, null]);
    expect(rankTimeFigure(ranks, "").categories).toEqual(["rank 0", "b"]);
  });

  test("have no transfer time if no collective is matched", () => {
    expect(transferFigure(ranks, "")?.parts[0]?.values).toEqual([2, null]);
    expect(transferFigure(ranks.slice(1), "")).toBeNull();
  });
});

test("the roofline has its corner at the ratio of peak compute to bandwidth", () => {
  const device = { device_name: "d", peaks_of: null, source: null, estimate: false, memory_bytes_per_s: 10, peaks: [{ unit: "bf16" as const, peak_flop_per_s: 1000 }, { unit: "fp8" as const, peak_flop_per_s: 2000 }] };
  const group = (intensity: number | null, achieved: number | null) =>
    partial<RooflineGroup>({ name: "mm", input_dims: null, precision: "bf16", intensity_flop_per_byte: intensity, achieved_flop_per_s: achieved });
  const { series } = rooflinePlot(device, [group(50, 400), group(null, 1), group(0, 0)]);
  expect(series.map((line) => line.name)).toEqual(["peak of bf16", "calls in bf16"]);
  expect(series[0]?.x).toEqual([0.1, 100, 1000]);
  expect(series[0]?.y).toEqual([1, 1000, 1000]);
  expect(series[1]?.x).toEqual([50]);
});

describe("system metrics", () => {
  test("show the first cores, all or none", () => {
    const row = (metric: string, device: string) => ({ name: `${metric}${device}`, metric, device, unit: "ratio", full: 1, shade_ratio: [0.5, null] });
    const payload = partial<SystemHeatView>({ start_after_ns: 0, column_ns: 1e9, nodes: [{ node: "n", left_out_count: 0, rows: [row("gpu_busy_ratio", "0"), ...Array.from({ length: 40 }, (_, core) => row("core_busy_ratio", String(core)))] }] });
    expect(heatMapFigure(payload, "n", "few")?.rows).toHaveLength(33);
    expect(heatMapFigure(payload, "n", "few")?.more).toBe("8 cores not shown");
    expect(heatMapFigure(payload, "n", "all")?.rows).toHaveLength(41);
    expect(heatMapFigure(payload, "n", "none")?.rows[0]).toMatchObject({ unit: "ratio", full: 1, shade_ratio: [0.5, null] });
    expect(heatMapFigure(payload, "other", "all")).toBeNull();
  });

  test("accept cores as a list of ranges", () => {
    expect([...(parseCores("0-2, 8") ?? [])]).toEqual(["0", "1", "2", "8"]);
    expect(parseCores("")).toBeNull();
    expect(parseCores("1-x")).toBeNull();
    expect(parseCores("0-99999999")).toBeNull();
  });

  test("have a plot of each subject, GPUs first, and one of each other metric", () => {
    const payload = partial<SystemSeriesView>({ start_after_ns: 0, piece_ns: 5, piece_count: 2 });
    const series = (metric: string, device: string, unit: string) => partial<MetricSeries>({ metric, title: metric.split("_", 2).join(" "), device, unit, mean: [1, 2] });
    const seriesList = [
      series("core_busy_ratio", "0", "ratio"), series("core_busy_ratio", "1", "ratio"),
      series("gpu_busy_ratio", "0", "ratio"), series("process_cpu_cores", "7", "count"), series("new_metric", "", "none"),
    ];
    const plots = metricPlots(payload, seriesList, new Set(["1"]));
    expect(plots.map(({ title, section }) => [title, section])).toEqual([["GPU busy", "main"], ["Core busy", "core"], ["Process cpu", "process"], ["New metric", "rest"]]);
    expect(plots[1]?.series.map((line) => line.name)).toEqual(["1"]);
    expect(plots[0]?.series[0]?.x).toEqual([0, 5]);
    expect(metricPlots(payload, seriesList, null)[1]?.series).toHaveLength(2);
  });
});

test("the forecast of host memory goes on from the end of the trend, with the limit while it grows", () => {
  const memory = partial<NodeMemoryUse>({
    is_growing: true, used_bytes: 300, peak_bytes: 300, limit_bytes: 1000, free_bytes: 800,
    forecast: { full_in_ns: 350, low_in_ns: 300, high_in_ns: 400, full_at_step: null, trend_end_after_ns: 75, trend_end_bytes: 200 },
    series: [{ name: "job", largest: [100, 200, 300] }],
  });
  const payload = partial<HostMemoryView>({ start_after_ns: 0, piece_ns: 50 });
  const plot = memoryPlot(payload, memory);
  expect(plot.series[0]?.x).toEqual([25, 75, 125]);
  // As far ahead as the job has run: 175 of the 400 ns in which the 800 bytes are used up.
  expect(plot.series[1]).toEqual({ name: "forecast", x: [75, 250], y: [200, 550] });
  expect(plot.levels).toEqual([{ name: "limit", value: 1000 }]);
  const calm = { ...memory, is_growing: false, forecast: null };
  expect(memoryPlot(payload, calm)).toMatchObject({ series: [plot.series[0]], levels: [] });
});

test("bars of two mean steps have the same parts", () => {
  const steps = partial<StepChanges>({ parts: [{ name: "data_wait", base_ns: 7, other_ns: 1 }, { name: "forward", base_ns: 2, other_ns: 3 }] });
  expect(stepBars(steps).parts).toMatchObject([{ name: "data wait", values: [7, 1] }, { name: "forward", values: [2, 3] }]);
});

test("the median step of the first rank is shown with the busiest tracks of its group", () => {
  const rank = { group: "b", rank: "", title: "rank 0", numbers: [4, 5, 6, 7], after_ns: [0, 9, 12, 20], duration_ns: [9, 3, 8, 5], outliers: [], left_out_count: 0 };
  expect(medianStep([rank])).toEqual({ group: "b", number: 7, after_ns: 20, duration_ns: 5 });
  expect(medianStep([])).toBeNull();
  const track = (id: string, event_count: number | null, kind = "host") => ({ id, name: id, kind, row_count: 1, unit: "", event_count, is_empty: false });
  const group = (id: string, tracks: ReturnType<typeof track>[], groups: unknown[] = []) => ({ id, name: id, kind: "process", rank: null, groups, tracks });
  const groups = [group("a", [], [group("b", [track("1", 1), track("2", 9), track("c", 99, "counter")], [group("d", [track("3", 5), track("4", null)])])])];
  type Groups = Parameters<typeof stepTracks>[0];
  expect(stepTracks(groups as Groups, "b").map(({ id }) => id)).toEqual(["2", "3", "4"]);
  expect(stepTracks(groups as Groups, "z")).toEqual([]);
});

test("a job that others keep from the cores reads so first", () => {
  const node = (job: number, outside: number) => partial<NodeView>({
    cores_available: 2, memory_bytes: null, memory_limit_bytes: null,
    metrics: [["cpu_busy_ratio", 1], ["job_cpu_cores", job], ["outside_cpu_cores", outside]].map(([metric, mean]) => ({ metric, device: "", statistics: { mean } })),
  });
  expect(usage(node(0.1, 1.9))).toBe("Other processes use 1.9 of 2 cores, the job 0.1; cores are busy for 100% of the time.");
  expect(usage(node(1.9, 0.1))).toBe("Cores are busy for 100% of the time; the job uses 1.9 of 2 cores, other processes 0.1.");
});
