// @vitest-environment jsdom
import { expect, test, vi } from "vitest";

import type { ImportProgress } from "../../api/server";

vi.stubGlobal("matchMedia", () => ({ matches: false, addEventListener: vi.fn() }));
const { importText } = await import("./traces");

const PROGRESS: ImportProgress = { id: "1", finished: false, done_ratio: null, run: null, failure: null };

test("an import states its progress or its failure", () => {
  const item = { title: "a.json", progress: null, failure: null };
  expect(importText(item)).toBe("a.json: sending …");
  expect(importText({ ...item, progress: PROGRESS })).toBe("a.json: waiting …");
  expect(importText({ ...item, progress: { ...PROGRESS, done_ratio: 0.4 } })).toBe("a.json: importing, 40%");
  expect(importText({ ...item, failure: "The disk is full." })).toBe("a.json: The disk is full.");
});
