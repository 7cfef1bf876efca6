// @vitest-environment jsdom
import { describe, expect, test } from "vitest";

import { shortId } from "../../base/short_id";
import { parseCollapseState, formatCollapseState, parseNumber, parseSpan } from "./url_state";

describe("the URL", () => {
  test("has only valid numbers and spans", () => {
    expect(parseNumber("12.5")).toBe(12.5);
    expect([null, "", "x", "NaN", "Infinity"].map(parseNumber)).toEqual([null, null, null, null, null]);
    expect(parseSpan("5", "9")).toEqual({ from: 5, to: 9 });
    expect(parseSpan("9", "5")).toBeNull();
    expect(parseSpan("0", null)).toBeNull();
  });

  test("encodes and decodes collapsed groups", () => {
    for (const defaultState of ["auto", "open", "closed"] as const) {
      const state = { defaultState, toggledIds: new Set(["process:1", "node:vm"].map(shortId)) };
      expect(parseCollapseState(formatCollapseState(state))).toEqual(state);
    }
    expect(formatCollapseState({ defaultState: "auto", toggledIds: new Set() })).toBeNull();
    expect(parseCollapseState(null)).toEqual({ defaultState: "auto", toggledIds: new Set() });
  });

  test("has short ids without collisions", () => {
    const ids = new Set(Array.from({ length: 5_000 }, (_, index) => shortId(`trace:${index}:7`)));
    expect(ids.size).toBe(5_000);
  });
});
