// @vitest-environment jsdom
import { expect, test, vi } from "vitest";

import type { RuleInsight } from "../../api/views";

vi.stubGlobal("matchMedia", () => ({ matches: false, addEventListener: vi.fn() }));

const { triggerTimes } = await import("./rule");

test.each([
  [{ triggered_count: 0, first_after_ns: null, last_after_ns: null }, "never"],
  [{ triggered_count: 1, first_after_ns: null, last_after_ns: null }, "over the whole run"],
  [{ triggered_count: 1, first_after_ns: 34e9, last_after_ns: 34e9 }, "34 s after the start"],
  [{ triggered_count: 2, first_after_ns: 10e9, last_after_ns: 34e9 }, "from 10 s to 34 s after the start"],
])("triggers are at a time, or over the whole run", (times, text) => {
  expect(triggerTimes(times as RuleInsight)).toBe(text);
});
