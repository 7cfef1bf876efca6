// @vitest-environment jsdom
import { describe, expect, test } from "vitest";

import { shortId } from "../../base/short_id";
import { parseCollapseState, formatCollapseState, parseNumber, parseSpan } from "./url_state";

describe("the address", () => {
  test("holds numbers and spans only where they are such", () => {
    expect(parseNumber("12.5")).toBe(12.5);
    expect([null, "", "x", "NaN", "Infinity"].map(parseNumber)).toEqual([null, null, null, null, null]);
    expect(parseSpan("5", "9")).toEqual({ from: 5, to: 9 });
    expect(parseSpan("9", "5")).toBeNull();
    expect(parseSpan("0", null)).toBeNull();
  });

  test("holds folds in few letters, and gives them back", () => {
    for (const defaultState of ["auto", "open", "closed"] as const) {
      const folds = { defaultState, toggledIds: new Set(["process:1", "node:vm"].map(shortId)) };
      expect(parseCollapseState(formatCollapseState(folds))).toEqual(folds);
    }
    expect(formatCollapseState({ defaultState: "auto", toggledIds: new Set() })).toBeNull();
    expect(parseCollapseState(null)).toEqual({ defaultState: "auto", toggledIds: new Set() });
  });

  test("has short ids that differ", () => {
    const ids = new Set(Array.from({ length: 5_000 }, (_, at) => shortId(`trace:${at}:7`)));
    expect(ids.size).toBe(5_000);
  });
});
