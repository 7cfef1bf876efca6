// @vitest-environment jsdom
import { describe, expect, test } from "vitest";

import { shortId } from "../../base/short_id";
import { foldsOf, foldsText, numberOf, spanOf } from "./address";

describe("the address", () => {
  test("holds numbers and spans only where they are such", () => {
    expect(numberOf("12.5")).toBe(12.5);
    expect([null, "", "x", "NaN", "Infinity"].map(numberOf)).toEqual([null, null, null, null, null]);
    expect(spanOf("5", "9")).toEqual({ from: 5, to: 9 });
    expect(spanOf("9", "5")).toBeNull();
    expect(spanOf("0", null)).toBeNull();
  });

  test("holds folds in few letters, and gives them back", () => {
    for (const initially of ["auto", "open", "closed"] as const) {
      const folds = { initially, toggled: new Set(["process:1", "node:vm"].map(shortId)) };
      expect(foldsOf(foldsText(folds))).toEqual(folds);
    }
    expect(foldsText({ initially: "auto", toggled: new Set() })).toBeNull();
    expect(foldsOf(null)).toEqual({ initially: "auto", toggled: new Set() });
  });

  test("has short ids that differ", () => {
    const ids = new Set(Array.from({ length: 5_000 }, (_, at) => shortId(`trace:${at}:7`)));
    expect(ids.size).toBe(5_000);
  });
});
