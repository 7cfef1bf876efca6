import { describe, expect, test } from "vitest";

import { satisfies, planRequests, type ChunkRequest } from "./chunk_requests";

const VIEW = { span: { from: 1_000_000, to: 2_000_000 }, pixels: 1000, end: 10_000_000 };
const isNeverCovered = (): boolean => false;

describe("planned requests", () => {
  test("cover half a window more on each side, at the level of a pixel", () => {
    const [request, ...furtherRequests] = planRequests([{ track: "a", shift: 0 }, { track: "b", shift: 0 }], VIEW, isNeverCovered);
    expect(furtherRequests).toEqual([]);
    expect(request).toEqual({ from: 500_000, to: 2_500_000, level: 10, pixels: 1954, tracks: ["a", "b"] });
  });

  test("omit covered windows and duplicate tracks", () => {
    expect(planRequests([{ track: "a", shift: 0 }], VIEW, () => true)).toEqual([]);
    expect(planRequests([{ track: "a", shift: 0 }, { track: "a", shift: 0 }], VIEW, isNeverCovered)[0]?.tracks).toEqual(["a"]);
  });

  test("cover the shifted window of an aligned rank", () => {
    const requests = planRequests([{ track: "a", shift: 0 }, { track: "b", shift: 5_000_000 }], VIEW, isNeverCovered);
    expect(requests.map(({ from, tracks }) => [from, tracks])).toEqual([[500_000, ["a"]], [5_500_000, ["b"]]]);
  });

  test("stay within the recorded time", () => {
    const [request] = planRequests([{ track: "a", shift: 0 }], { ...VIEW, span: { from: -500, to: 9_999_999 } }, isNeverCovered);
    expect([request?.from, request?.to]).toEqual([0, 10_000_000]);
    expect(planRequests([{ track: "a", shift: 2e7 }], VIEW, isNeverCovered)).toEqual([]);
  });

  test("are split by the number of tracks", () => {
    const tracks = Array.from({ length: 100 }, (_, index) => ({ track: `t${index}`, shift: 0 }));
    const requests = planRequests(tracks, VIEW, isNeverCovered);
    expect(requests.length).toBe(3);
    expect(requests.flatMap((request) => request.tracks).length).toBe(100);
  });

  test("cover a track while they are pending", () => {
    const request: ChunkRequest = { from: 0, to: 100, level: 3, pixels: 10, tracks: ["a"] };
    expect(satisfies(request, "a", { from: 10, to: 90 }, 3)).toBe(true);
    expect(satisfies(request, "b", { from: 10, to: 90 }, 3)).toBe(false);
    expect(satisfies(request, "a", { from: 10, to: 110 }, 3)).toBe(false);
    expect(satisfies(request, "a", { from: 10, to: 90 }, 2)).toBe(false);
  });
});
