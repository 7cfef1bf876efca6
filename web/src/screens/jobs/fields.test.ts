// @vitest-environment jsdom
import { expect, test, vi } from "vitest";

import type { JobRow, Jobs, JobVerdict } from "../../api/views";

vi.stubGlobal("matchMedia", () => ({ matches: false, addEventListener: vi.fn() }));
const { causeText, jobFields, statusText } = await import("./fields");
const { filledColumns, visibleColumns } = await import("./columns");
const { GROUP_OF } = await import("./filters");
const { parseTags } = await import("./labels_dialog");
const { sparklinePoints } = await import("../../widgets/sparkline");
const { groupRows } = await import("../../widgets/data_table");
const { mergeJobs } = await import("../../state/jobs");

const VERDICT: JobVerdict = {
  suspect: "data_pipeline", words: "waits for data", cause: "slow_decode", share_ratio: 0.83, share_of: "step wall time", confidence_ratio: 0.9,
  headline: "", stuck: null, fix: null, saving_ratio: null, saving_of: null, saving_is_bound: false,
};
const JOB: JobRow = {
  id: "a/b", name: "b", title: null, status: "Stopped", monitor_lost: false, reason: null, created_ms: 0, duration_ns: null, rank_count: 1, gpu_count: null, gpu_names: [],
  node_count: null, verdict: VERDICT, goodput_ratio: null, first_step_ns: null, step_median_ns: [], steps_per_s: null, peak_memory_bytes: null, host: "n0",
  tags: ["x", "y"], notes: "", git_revision: null, cost_usd: null, price_said: null, why_no_cost: null, command: "", working_directory: "", size_bytes: null, problem: null,
};
const STUCK = { ...JOB, verdict: { ...VERDICT, stuck: "Rank 3 is stuck." } };

test("a row names the cause and its share, or where the job is stuck", () => {
  expect([JOB, STUCK].map(causeText)).toEqual(["slow decode, 83%", "Rank 3 is stuck."]);
  expect([JOB, STUCK].map(statusText)).toEqual(["stopped", "stopped, stuck"]);
  expect(causeText({ ...JOB, verdict: { ...VERDICT, cause: "unknown" } })).toBe("waits for data, 83%");
});

test("columns without a value in any run are not shown", () => {
  const fields = jobFields({ checkedIds: [], toggle: vi.fn(), edit: vi.fn() });
  expect(visibleColumns(filledColumns(fields, [JOB])).map(({ name }) => name)).toEqual(["chosen", "name", "status", "cause", "tags"]);
});

test("changes complete the list in the order of a whole one", () => {
  const rows = (...ids: string[]): JobRow[] => ids.map((id, index) => ({ ...JOB, id, created_ms: -index }));
  const all: Jobs = { root: "/r", revision: 4, is_partial: false, jobs: rows("a", "b", "c"), removed: [], unread_count: 0, pending_count: 0, traces: [], why_not_import: null, notes: [] };
  const [changed, added] = [{ ...JOB, id: "b", created_ms: -1, name: "new" }, { ...JOB, id: "d", created_ms: 1 }];
  const merged = mergeJobs(all, { ...all, is_partial: true, revision: 6, jobs: [added, changed], removed: ["a"] });
  expect(merged.jobs.map(({ id, name }) => [id, name])).toEqual([["d", "b"], ["b", "new"], ["c", "b"]]);
  expect(merged.revision).toBe(6);
  expect(mergeJobs(all, { ...all, is_partial: true, jobs: [] }).jobs).toBe(all.jobs);
  expect(mergeJobs(merged, all)).toBe(all);
});

test("runs are grouped in their order", () => {
  expect(GROUP_OF.directory?.(JOB)).toBe("a");
  expect(GROUP_OF.tag?.(JOB)).toBe("x, y");
  const rows = ["a", "b", "a"].map((id) => ({ id }));
  expect(groupRows(rows, ({ id }) => id)).toMatchObject([{ title: "a", count: 2 }, { id: "a" }, { id: "a" }, { title: "b", count: 1 }, { id: "b" }]);
});

test("tags are separated by commas; a sparkline begins at zero", () => {
  expect(parseTags(" a, b,,a ")).toEqual(["a", "b"]);
  expect(sparklinePoints([0, 4])).toBe("2.0,18.0 58.0,2.0");
  expect(sparklinePoints([3])).toBe("2.0,2.0 58.0,2.0");
});
