// Tests on the golden table that src/stepscope/quantities.py is tested on too.
import { expect, test } from "vitest";

import cases from "../../../tests/golden/quantities.json";
import * as quantities from "./quantities";

type Format = (...values: unknown[]) => unknown;
const FORMATS = quantities as unknown as Record<string, Format>;

/** Convert `count_of` to `countOf`. */
function camelCase(name: string): string {
  return name.replaceAll(/_(\w)/g, (_, letter: string) => letter.toUpperCase());
}

test.each(Object.entries(cases))("%s", (name, rows: unknown[][]) => {
  const format = FORMATS[camelCase(name)];
  expect(rows.map((row) => [...row.slice(0, -1), format?.(...row.slice(0, -1))])).toEqual(rows);
});

test("the table covers the module", () => {
  const functions = Object.keys(quantities).filter((name) => typeof FORMATS[name] === "function");
  expect(functions.sort()).toEqual([...Object.keys(cases).map(camelCase), "timeUnit"].sort());
});

test("the unit of an axis is the largest of which its maximum has at least two", () => {
  expect(quantities.timeUnit(5e9, 2)).toEqual(["s", 1e9]);
  expect(quantities.timeUnit(1.5e6, 2)).toEqual(["µs", 1e3]);
  expect(quantities.timeUnit(0)).toEqual(["ns", 1]);
});

test("NaN is missing", () => {
  expect(quantities.duration(Number.NaN)).toBe(quantities.MISSING);
  expect(quantities.inUnit(Infinity, "bytes")).toBe(quantities.MISSING);
});
