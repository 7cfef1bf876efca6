import { describe, expect, test } from "vitest";

import type { SlicesView } from "../api/views";
import { colourIndex, kindColourIndex } from "./colours";
import { firstEndingAfter, emptySlices, kindOf, partShares, sliceAt, sliceColour, slicesOf } from "./slices";

function view(track: Partial<SlicesView["tracks"][0]>): SlicesView {
  const empty = { row_count: 2, row: [], after_ns: [], duration_ns: [], name: [], count: [], busy_ratio: [], event: [], kind: [], unfinished: [], part_slice: [], part_name: [], part_ns: [] };
  return {
    damage: [], recording_end: null, doubts: [], rounding: null, from_after_ns: 1000, to_after_ns: 2000, names: ["a", "b"], kinds: ["forward", "copies"], omitted_tracks: [],
    tracks: [{ track: "t", ...empty, ...track }],
  };
}

const TWO_ROWS = {
  row: [0, 0, 1], after_ns: [-50, 100, 10], duration_ns: [100, 50, 5], name: [0, 1, 0],
  count: [1, 7, 1], busy_ratio: [1, 0.5, 1], event: [3, -1, 4],
};

function parsedTrack(track: Partial<SlicesView["tracks"][0]>) {
  const slices = slicesOf(view(track)).get("t");
  if (slices === undefined) throw new Error("no track");
  return slices;
}

describe("slices", () => {
  test("have times relative to the origin, and row offsets", () => {
    const slices = parsedTrack(TWO_ROWS);
    expect([...slices.start]).toEqual([950, 1100, 1010]);
    expect([...slices.end]).toEqual([1050, 1150, 1015]);
    expect([...slices.rowOffsets]).toEqual([0, 2, 3]);
    expect(slices.complete).toBe(false);
  });

  test("have parts in a stacked bar, by their sums and never longer than the slice", () => {
    const parts = { part_slice: [0, 0, 1, 1], part_name: [1, 0, 1, 0], part_ns: [20, 30, 75, 25] };
    const slices = parsedTrack({ ...TWO_ROWS, ...parts });
    expect(partShares(slices, 0)).toEqual([{ name: 1, share: 0.2 }, { name: 0, share: 0.3 }]);
    expect(partShares(slices, 1)).toEqual([{ name: 1, share: 0.75 }, { name: 0, share: 0.25 }]);
    expect(partShares(slices, 2)).toEqual([]);
  });

  test("of the critical path have the colour of their kind of time, others that of their kind or name", () => {
    const names = ["launching work", "a"];
    const slices = slicesOf({ ...view({ ...TWO_ROWS, kind: [0, 0, 1] }), names }).get("t") ?? emptySlices();
    expect([0, 1, 2].map((index) => kindOf(slices, index))).toEqual(["launching work", "launching work", "a"]);
    expect([0, 1, 2].map((index) => sliceColour(slices, index, "name"))).toEqual(["launching work", "launching work", "a"].map(kindColourIndex));
    const spans = parsedTrack(TWO_ROWS);
    expect([0, 1].map((index) => sliceColour(spans, index, "name"))).toEqual(["a", "b"].map(colourIndex));
    expect([0, 1].map((index) => sliceColour(spans, index, "kind"))).toEqual(["forward", "copies"].map(kindColourIndex));
    expect(kindOf(spans, 1)).toBe("copies");
  });

  test("that had not ended are told apart, in whatever order they come", () => {
    expect([...parsedTrack({ ...TWO_ROWS, unfinished: [1] }).unfinished]).toEqual([1]);
    expect([...parsedTrack({ ...TWO_ROWS, row: [1, 0, 0], unfinished: [0] }).unfinished]).toEqual([2]);
  });

  test("are looked up by time within a row", () => {
    const slices = parsedTrack(TWO_ROWS);
    expect(firstEndingAfter(slices, 0, 1050)).toBe(1);
    expect(sliceAt(slices, 0, 1000)).toBe(0);
    expect(sliceAt(slices, 0, 1075)).toBe(-1);
    expect(sliceAt(slices, 0, 1060, 15)).toBe(0);
    expect(sliceAt(slices, 1, 1012)).toBe(2);
    expect(sliceAt(slices, 7, 1012)).toBe(-1);
  });

  test("with invalid values are clamped", () => {
    const broken = parsedTrack({
      row: [-1, 0], after_ns: [5, null as unknown as number], duration_ns: [-7, NaN], name: [9, 0],
      count: [1, 1], busy_ratio: [NaN, 17], event: [1, 2],
    });
    expect([...broken.start].every(Number.isFinite)).toBe(true);
    expect([...broken.end].every((end, index) => end >= (broken.start[index] ?? 0))).toBe(true);
    expect([...broken.busy]).toEqual([1, 1]);
  });

  test("in another order are sorted", () => {
    const unsorted = parsedTrack({
      row: [1, 0, 0], after_ns: [0, 20, 10], duration_ns: [1, 1, 1], name: [0, 0, 0],
      count: [1, 1, 1], busy_ratio: [1, 1, 1], event: [0, 1, 2],
    });
    expect([...unsorted.event]).toEqual([2, 1, 0]);
    expect([...unsorted.rowOffsets]).toEqual([0, 2, 3]);
  });

  test("may be empty", () => {
    expect(emptySlices().rowOffsets.length).toBe(1);
    expect(sliceAt(emptySlices(), 0, 5)).toBe(-1);
  });
});
