// @vitest-environment jsdom
import { render } from "preact";
import { expect, test } from "vitest";

import type { JobStage, Verdict } from "../api/report";
import { VerdictView } from "./verdict";

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
  doubts: [],
  stuck: null,
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

test("stages are listed, of many the largest", () => {
  const root = document.createElement("main");
  render(<VerdictView verdict={{ ...VERDICT, job_stages: Array.from({ length: 10 }, () => STAGE) }} />, root);
  const lines = [...root.querySelectorAll("li")].map((line) => line.textContent);
  expect(lines.filter((line) => line === STAGE.text)).toHaveLength(8);
  expect(lines).toContain("2 shorter stages.");
});
