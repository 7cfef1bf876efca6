// @vitest-environment jsdom
import { render } from "preact";
import { expect, test, vi } from "vitest";

import type { JobStage, Verdict } from "../api/report";

vi.stubGlobal("matchMedia", () => ({ matches: false, addEventListener: vi.fn() }));

const { DeathView, VerdictView } = await import("./verdict");

const VERDICT: Verdict = {
  suspect: "framework_overhead",
  cause: "python_overhead",
  share_ratio: 0.25,
  share_of: "step wall time without waiting for cores",
  confidence_ratio: 0.7,
  evidence_kind: "sampled",
  headline: "Model compute: 75% of step time. Bottleneck of the rest: framework and host overhead, 25% of step time.",
  share_basis: "",
  stages: [],
  evidence: [],
  ruled_out: [],
  suspects: [],
  fixes: [],
  targets: [],
  also: [],
  refused: {},
  notes: [],
  limitations: [],
  doubts: [],
  death: null,
  stuck: null,
  memory: null,
  job: null,
  learning: null,
  step_count: 54,
  mean_step_ns: 100e6,
  bases_ns: { "step wall time without waiting for cores": 60e6 },
  phases: { forward: 0.75, other: 0.25 },
  bars: [
    { phase: "forward", share_ratio: 0.75, with_core_ratio: 0.45, without_core_ratio: 0.3 },
    { phase: "other", share_ratio: 0.25, with_core_ratio: 0.15, without_core_ratio: 0.1 },
  ],
  bars_basis: "Hatched: without a core, 40% of step wall time, part of no share.",
  job_stages: [],
};

const STAGE: JobStage = {
  number: 2,
  title: "Head with SGD on Rows",
  model: "Head",
  optimizer: "SGD",
  dataset: "Rows",
  start_ns: 0,
  end_ns: 20e9,
  duration_ns: 20e9,
  share_ratio: 0.85,
  first_step: 300,
  step_count: 300,
  measured_count: 290,
  mean_step_ns: 66e6,
  suspect: "data_pipeline",
  cause: "slow_reads",
  suspect_share_ratio: 0.82,
  headline: "Bottleneck: data pipeline, 82% of step time. Cause: slow reads.",
  is_main: true,
  text: "Stage 2, Head with SGD on Rows: 85% of the job, 300 steps, mean 66 ms.",
};

test("bars show the denominator of the headline, with the time without a core hatched", () => {
  const root = document.createElement("main");
  render(<VerdictView verdict={VERDICT} />, root);
  expect([...root.querySelectorAll(".phases b")].map((share) => share.textContent)).toEqual(["75%", "25%"]);
  const widths = [...root.querySelectorAll<HTMLElement>(".phases .hatched")].map((part) => part.style.width);
  expect(widths).toEqual(["30%", "10%"]);
  expect(root.querySelector("[data-testid=bars-basis]")?.textContent).toBe(VERDICT.bars_basis);
  expect(root.textContent).toContain("mean 100 ms");
  expect(root.textContent).toContain("without waiting for cores (60 ms per step)");
});

test("evidence leads to the screen that shows it, where there are screens", () => {
  const root = document.createElement("main");
  const evidence = [
    { text: "the headline", value: null, unit: "", source: "steps" },
    { text: "On the critical path of the steps: Python 60%.", value: null, unit: "", source: "critical-path" },
    { text: "Without a view.", value: null, unit: "", source: "" },
  ];
  render(<VerdictView verdict={{ ...VERDICT, evidence }} linkOf={(view) => [`/${view}`, "Critical path"]} />, root);
  const links = [...root.querySelectorAll("[data-testid=evidence] a")];
  expect(links.map((anchor) => [anchor.textContent, anchor.getAttribute("href")])).toEqual([["Critical path", "/critical-path"]]);
  render(<VerdictView verdict={{ ...VERDICT, evidence }} />, root);
  expect(root.querySelector("[data-testid=evidence] a")).toBeNull();
  expect(root.textContent).toContain("Python 60%.");
});

test("host memory that grows is said first, a peak at the end", () => {
  const root = document.createElement("main");
  const memory = {
    headline: "Host memory of the job grows by 1.54 MiB per step.",
    lines: ["23.5 GiB (the memory of the machine) are full at step 14,844, in 38 min (31 min to 47 min)."],
    is_growing: true,
    node: "n0",
    used_bytes: 1e9,
    peak_bytes: 1e9,
    limit_bytes: 24e9,
    full_in_ns: 2.28e12,
    full_at_step: 14_844,
    oom_kill_count: 0,
  };
  render(<VerdictView verdict={{ ...VERDICT, memory }} />, root);
  const text = root.textContent;
  expect(text.indexOf(memory.headline)).toBeLessThan(text.indexOf(VERDICT.headline));
  expect(text).toContain("are full at step 14,844");
  render(<VerdictView verdict={{ ...VERDICT, memory: { ...memory, is_growing: false } }} />, root);
  expect(root.querySelector("[data-testid=memory-growth]")).toBeNull();
  expect(root.textContent).toContain(memory.headline);
});

test("stages are listed, of many the largest", () => {
  const root = document.createElement("main");
  render(<VerdictView verdict={{ ...VERDICT, job_stages: Array.from({ length: 10 }, () => STAGE) }} />, root);
  const lines = [...root.querySelectorAll("li")].map((line) => line.textContent);
  expect(lines.filter((line) => line === STAGE.text)).toHaveLength(8);
  expect(lines).toContain("2 shorter stages.");
});

test("what ended a job has evidence, advice and its last output", () => {
  const death: NonNullable<Verdict["death"]> = {
    cause: "disk_full", headline: "OSError ended the job after 12 steps.", exit_code: 1, signal: null, exception: "OSError",
    message: "No space left", rank: null, worker: null, step_count: 12, location: "train.py:9", function: "save",
    evidence: ["The disk was full."], advice: ["Free space."], output: ["Traceback", "OSError: No space left"], output_missing: null,
  };
  const root = document.createElement("main");
  render(<DeathView death={death} />, root);
  expect([...root.querySelectorAll("li")].map((item) => item.textContent)).toEqual(["The disk was full.", "What to do: Free space."]);
  expect(root.querySelector("pre")?.textContent).toBe("Traceback\nOSError: No space left");
});

const JOB: NonNullable<Verdict["job"]> = {
  headline: "Of 40 s, 8 s are steps.",
  is_first: false,
  duration_ns: 40e9,
  planned_ns: null,
  planned_step_count: null,
  step_count: 80,
  goodput_ratio: 0.2,
  device_goodput_ratio: null,
  first_step_ns: 24e9,
  is_final: true,
  parts: [
    { key: "preparing", title: "preparation", time_ns: 24e9, share_ratio: 0.6, planned_ns: null, functions: [{ name: "read_index", location: "train.py:22", time_ns: 20e9 }] },
    { key: "steps", title: "steps", time_ns: 8e9, share_ratio: 0.2, planned_ns: null, functions: [{ name: "train", location: "train.py:30", time_ns: 8e9 }] },
    { key: "not_seen", title: "not seen", time_ns: 8e9, share_ratio: 0.2, planned_ns: null, functions: [] },
  ],
  fixes: [
    { title: "Keep what read_index prepares", how: "write it to a file", why: "read_index takes 20 s.", saving_ns: 20e9, saving_ratio: 0.5, is_bound: true, changes: [], step_cause: null },
  ],
  notes: ["The process was killed."],
};

function draw(verdict: Verdict): HTMLElement {
  const root = document.createElement("main");
  render(<VerdictView verdict={verdict} />, root);
  return root;
}

test("the bar of the whole job is above that of the step, with functions in its legend", () => {
  const root = draw({ ...VERDICT, job: JOB });
  const segments = [...root.querySelectorAll<HTMLElement>(".job-bar i")];
  expect(segments.map((segment) => Number(segment.style.flexGrow))).toEqual([0.6, 0.2, 0.2]);
  expect(segments[0]?.title).toContain("read_index train.py:22: 20 s");
  expect(new Set(segments.map((segment) => segment.style.background)).size).toBe(3);
  const legend = [...root.querySelectorAll(".job-legend li")].map((item) => item.textContent.trim());
  expect(legend).toEqual(["preparation 60% 24 s read_index train.py:22", "steps 20% 8 s", "not seen 20% 8 s"]);
  expect(root.querySelector("[data-testid=job] p")?.textContent).toBe(JOB.headline);
  const [bar, phases] = [root.querySelector(".job-bar"), root.querySelector(".phases")];
  expect(bar !== null && phases !== null && bar.compareDocumentPosition(phases)).toBe(Node.DOCUMENT_POSITION_FOLLOWING);
});

test("the headline of the account is shown once, also for a range whose verdict does not begin with it", () => {
  for (const headline of [`${JOB.headline} ${VERDICT.headline}`, VERDICT.headline]) {
    const root = draw({ ...VERDICT, headline, job: { ...JOB, is_first: true } });
    expect(root.textContent.split(JOB.headline).length).toBe(2);
  }
});

test("shares are those of the planned job where its length is known", () => {
  const parts = JOB.parts.map((part) => ({ ...part, planned_ns: part.key === "steps" ? 72e9 : part.key === "preparing" ? 24e9 : 0 }));
  const root = draw({ ...VERDICT, job: { ...JOB, parts, planned_ns: 96e9, planned_step_count: 720 } });
  const shares = [...root.querySelectorAll(".job-legend b")].map((share) => share.textContent);
  expect(shares).toEqual(["25%", "75%"]); // failures say nothing of a longer job
  expect(root.querySelector("[data-testid=job-planned]")?.textContent).toContain("720 steps, about 96 s");
});

test("fixes of the job and of the step state their saving as a share of the job", () => {
  const prediction = { step_ns: 60e6, measured_ns: 100e6, share_of: "step wall time", saving_ratio: 0.4, condition: "waiting took no time", cause: "slow_reads", is_bound: true, text: "step time at least 60 ms" };
  const fix = { title: "Add workers", how: "num_workers=2", why: "waits", prediction, job_saving_ratio: 0.08, changes: [], tried: null };
  const root = draw({ ...VERDICT, job: JOB, fixes: [fix] });
  expect(root.querySelector("[data-testid=prediction]")?.textContent).toBe("→ Predicted step time at least 60 ms.");
  expect(root.querySelector("[data-testid=fix-rows]")?.textContent).toContain("Saves at most 40% of the step, 8% of the job.");
  expect(root.querySelector("[data-testid=fix-rows]")?.textContent).toContain("Saves at most 20 s, 50% of the job.");

  // One list: by the share of the job where the job comes first, else those of the step first.
  const titlesOf = (is_first: boolean): (string | null)[] => {
    const short = document.createElement("main");
    render(<VerdictView verdict={{ ...VERDICT, job: { ...JOB, is_first }, fixes: [fix] }} isShort />, short);
    return [...short.querySelectorAll(".fix-rows > li")].map((row) => `${row.querySelector("summary")?.textContent ?? ""} ${row.querySelector(".saving")?.textContent ?? ""}`);
  };
  const [ofStep, ofJob] = ["Add workers ≤ 8%", "Keep what read_index prepares ≤ 50%"];
  expect(titlesOf(true)).toEqual([ofJob, ofStep]);
  expect(titlesOf(false)).toEqual([ofStep, ofJob]);
});
