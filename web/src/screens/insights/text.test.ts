import { expect, test } from "vitest";

import { missingText, ruleTitle, triggerTimes } from "./text";

test.each([
  [{ first_after_ns: null, last_after_ns: null }, "Over the whole run"],
  [{ first_after_ns: 0, last_after_ns: 34e9 }, "The first 34 s"],
  [{ first_after_ns: 34e9, last_after_ns: 34e9 }, "34 s after the start"],
  [{ first_after_ns: 10e9, last_after_ns: 34e9 }, "From 10 s to 34 s after the start, for 24 s"],
])("triggers are at a time, or over the whole run", (times, text) => {
  expect(triggerTimes(times)).toBe(text);
});

test.each([
  ["LowGPUUtilization", "Low GPU utilization"],
  ["CPUBottleneck", "CPU bottleneck"],
  ["NLPSequenceRatio", "NLP sequence ratio"],
  ["Dataloader", "Dataloader"],
  ["IOBottleneck", "IO bottleneck"],
  ["my_rule2", "My rule2"],
])("the name of rule %s is %s in words", (name, text) => {
  expect(ruleTitle(name)).toBe(text);
});

test("rules without data are listed by what they lack", () => {
  const groups = [["no GPU samples", 4], ["a", 2], ["b", 1], ["c", 1], ["d", 1]] as const;
  const not_applicable = groups.map(([reason, size]) => ({ reason, explanations: [reason], rules: Array.from({ length: size }, () => "R") }));
  expect(missingText(not_applicable)).toBe("no GPU samples (4), a (2), b (1) and 2 other reasons");
  expect(missingText(not_applicable.slice(0, 1))).toBe("no GPU samples (4)");
});
