import { describe, expect, test } from "vitest";

import { satisfies, planRequests, type ChunkRequest } from "./chunk_requests";

const VIEW = { span: { from: 1_000_000, to: 2_000_000 }, pixels: 1000, end: 10_000_000 };
const nothing = (): boolean => false;

describe("a plan", () => {
  test("asks for half a window more on each side, at a level that suits the pixels", () => {
    const [ask, ...more] = planRequests([{ track: "a", shift: 0 }, { track: "b", shift: 0 }], VIEW, nothing);
    expect(more).toEqual([]);
    expect(ask).toEqual({ from: 500_000, to: 2_500_000, level: 10, pixels: 1954, tracks: ["a", "b"] });
  });

  test("asks for nothing that is there, nor twice for the same track", () => {
    expect(planRequests([{ track: "a", shift: 0 }], VIEW, () => true)).toEqual([]);
    expect(planRequests([{ track: "a", shift: 0 }, { track: "a", shift: 0 }], VIEW, nothing)[0]?.tracks).toEqual(["a"]);
  });

  test("asks for what is drawn in the window where ranks are moved", () => {
    const asks = planRequests([{ track: "a", shift: 0 }, { track: "b", shift: 5_000_000 }], VIEW, nothing);
    expect(asks.map(({ from, tracks }) => [from, tracks])).toEqual([[500_000, ["a"]], [5_500_000, ["b"]]]);
  });

  test("stays within what is recorded", () => {
    const [ask] = planRequests([{ track: "a", shift: 0 }], { ...VIEW, span: { from: -500, to: 9_999_999 } }, nothing);
    expect([ask?.from, ask?.to]).toEqual([0, 10_000_000]);
    expect(planRequests([{ track: "a", shift: 2e7 }], VIEW, nothing)).toEqual([]);
  });

  test("splits many tracks into several questions", () => {
    const wants = Array.from({ length: 100 }, (_, at) => ({ track: `t${at}`, shift: 0 }));
    const asks = planRequests(wants, VIEW, nothing);
    expect(asks.length).toBe(3);
    expect(asks.flatMap((ask) => ask.tracks).length).toBe(100);
  });

  test("knows which questions will answer for a track", () => {
    const ask: ChunkRequest = { from: 0, to: 100, level: 3, pixels: 10, tracks: ["a"] };
    expect(satisfies(ask, "a", { from: 10, to: 90 }, 3)).toBe(true);
    expect(satisfies(ask, "b", { from: 10, to: 90 }, 3)).toBe(false);
    expect(satisfies(ask, "a", { from: 10, to: 110 }, 3)).toBe(false);
    expect(satisfies(ask, "a", { from: 10, to: 90 }, 2)).toBe(false);
  });
});
