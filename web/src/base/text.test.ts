import { expect, test } from "vitest";

import { dateTime, elideMiddle, sentence } from "./text";

test("sentences start with a capital and end with a full stop", () => {
  expect(sentence("no step")).toBe("No step.");
  expect(sentence("Is it?")).toBe("Is it?");
  expect(sentence("train.py:44 runs")).toBe("train.py:44 runs.");
  expect(sentence("num_workers=2 is enough")).toBe("num_workers=2 is enough.");
});

test("dates are in the reader's time zone", () => {
  expect(dateTime(new Date(2026, 10, 22, 5, 3).getTime())).toBe("2026-11-22 05:03");
  expect(dateTime(Number.NaN)).toBe("n/a");
});

test("long texts lose their middle", () => {
  expect(elideMiddle("abcdef", 6)).toBe("abcdef");
  expect(elideMiddle("abcdefgh", 6)).toBe("abc…gh");
});
