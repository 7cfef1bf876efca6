import { expect, test } from "vitest";

import type { ConfigurationView } from "../api/views";
import { configureRequest, currentForm } from "./configure_form";

const PAYLOAD: ConfigurationView = {
  damage: [], interval_ns: 500e6, interval_choices_ns: [100e6, 500e6], automatic_windows: true,
  schedules: ["step 5"], rules: ["StepOutlier", "BatchSize"], other_rules: ["IOBottleneck"], parameters: [],
  changes: [], missing: null, recording_end: null, doubts: [], rounding: null,
};

test("a form without an edit changes nothing", () => {
  expect(configureRequest("job", PAYLOAD, currentForm(PAYLOAD, {}))).toEqual({
    run: "job", interval_ns: null, automatic: null, clear_schedules: false, schedules: [],
    rules: [], without_rules: [], assignments: [],
  });
});

test("a request contains what was edited", () => {
  const form = currentForm(PAYLOAD, {
    intervalNs: "100000000", automatic: false, removesSchedules: true, firstStep: "40", stepCount: "3", interval: "50",
    toggledRules: new Set(["BatchSize", "IOBottleneck"]), parameters: " StepOutlier.stddev=4, IOBottleneck.window=9 ",
  });
  expect(configureRequest("job", PAYLOAD, form)).toEqual({
    run: "job", interval_ns: 100_000_000, automatic: false, clear_schedules: true,
    schedules: [{ first_step: 40, step_count: 3, interval: 50 }],
    rules: ["IOBottleneck"], without_rules: ["BatchSize"],
    assignments: ["StepOutlier.stddev=4", "IOBottleneck.window=9"],
  });
});

test("what changed under an open form stays changed", () => {
  const changes = { firstStep: "40", toggledRules: new Set(["IOBottleneck"]) };
  const newer = { ...PAYLOAD, interval_ns: 200e6, automatic_windows: false, rules: ["BatchSize"], other_rules: ["IOBottleneck", "StepOutlier"] };
  expect(configureRequest("job", newer, currentForm(newer, changes))).toMatchObject({
    interval_ns: null, automatic: null, rules: ["IOBottleneck"], without_rules: [],
  });
});
