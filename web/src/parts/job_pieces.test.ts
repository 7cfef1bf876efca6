import { expect, test } from "vitest";

import { extentOf, pieceAt, rangeOf, stepPiece } from "./job_pieces";

const PIECES = [
  { key: "importing", start_ns: 0, duration_ns: 5 },
  { key: "steps", start_ns: 5, duration_ns: 10 },
  { key: "finishing", start_ns: 15, duration_ns: 1 },
];

test("a time is in the piece that begins last before it", () => {
  const expected = (time: number): number => PIECES.filter(({ start_ns }) => start_ns <= time).length - 1;
  for (let time = 0; time <= 17; time++) expect(pieceAt(PIECES, time)).toBe(expected(time));
  expect(pieceAt([], 3)).toBe(0);
});

test("a piece becomes a range of the run, which begins with its first record", () => {
  const { start_ns, end_ns } = extentOf(PIECES[1]);
  expect(rangeOf(start_ns - 2, end_ns - 2)).toEqual({ from: "3", to: "13" });
  expect(rangeOf(-5, -2)).toEqual({ from: "0", to: "1" }); // before the first record
});

test("keys lead from piece to piece", () => {
  const keys = ["End", "ArrowRight", "ArrowLeft", "Home", "ArrowLeft", "ArrowRight"];
  let index = 0;
  expect(keys.map((key) => (index = stepPiece(key, index, 3) ?? -1))).toEqual([2, 2, 1, 0, 0, 1]);
  expect(stepPiece("Tab", 1, 3)).toBeNull();
});
