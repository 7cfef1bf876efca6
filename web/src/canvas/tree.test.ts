import { describe, expect, test } from "vitest";

import type { Track, TrackGroup } from "../api/views";
import { lineAt, linesIn, pathTo, pinnedTree, summaryTracks, treeOf, type Shape } from "./tree";

function track(id: string, overrides: Partial<Track> = {}): Track {
  return { id, name: id, kind: "host", row_count: 1, unit: "", event_count: 1, is_empty: false, ...overrides };
}

function group(id: string, tracks: Track[], groups: TrackGroup[] = []): TrackGroup {
  return { id, name: id, kind: "process", rank: null, tracks, groups };
}

function shape(groups: TrackGroup[], overrides: Partial<Shape> = {}): Shape {
  return {
    groups, steps: new Map(), isToggled: () => false, defaultState: "auto", filter: "", hidesEmpty: true, rowCounts: new Map(), ...overrides,
  };
}

const TREE = [
  group("node", [], [
    group("rank 0", [track("main", { row_count: 5 }), track("worker")], [
      { ...group("device", []), kind: "device", tracks: [track("stream 7", { kind: "device" }), track("stream 14", { kind: "device", event_count: 9 })] },
    ]),
    group("rank 1", [track("other")]),
  ]),
];

describe("the tree", () => {
  test("leaves out counters that stay 0, unless they are wanted or named", () => {
    const counters = [group("node", [track("busy", { kind: "counter" }), track("oom kills", { kind: "counter", is_empty: true })])];
    const listed = (overrides: Partial<Shape>) => treeOf(shape(counters, overrides)).lines.map((line) => line.id);
    expect(listed({})).toEqual(["node", "busy"]);
    expect(treeOf(shape(counters)).emptyCount).toBe(1);
    expect(listed({ hidesEmpty: false })).toEqual(["node", "busy", "oom kills"]);
    expect(listed({ filter: "oom" })).toEqual(["node", "oom kills"]);
  });

  test("lists the lines of open groups, devices first", () => {
    const { lines, height } = treeOf(shape(TREE));
    expect(lines.map((line) => line.id)).toEqual([
      "node", "rank 0", "device", "stream 7", "stream 14", "main", "worker", "rank 1", "other",
    ]);
    lines.reduce((y, line) => {
      expect(line.y).toBe(y);
      return y + line.height;
    }, 0);
    expect(height).toBe(lines.reduce((sum, line) => sum + line.height, 0));
  });

  test("states the depth of a line and its position among its siblings", () => {
    const { lines } = treeOf(shape(TREE));
    const device = lines.find((line) => line.id === "device");
    expect([device?.level, device?.positionInSet, device?.siblings]).toEqual([3, 1, 3]);
    expect(lines[device?.parent ?? -1]?.id).toBe("rank 0");
  });

  test("draws a closed group as one line with its devices", () => {
    const { lines } = treeOf(shape(TREE, { isToggled: (id) => id === "rank 0" }));
    expect(lines.map((line) => line.id)).toEqual(["node", "rank 0", "rank 1", "other"]);
    expect(lines[1]?.summary.map((track) => track.id)).toEqual(["stream 14", "stream 7"]);
    expect(summaryTracks(TREE[0]?.groups[1] ?? group("", [])).map((track) => track.id)).toEqual(["other"]);
  });

  test("collapses a track into thin rows, and extends it with more rows", () => {
    const collapsed = treeOf(shape(TREE, { isToggled: (id) => id === "main" })).byId.get("main");
    const extended = treeOf(shape(TREE, { rowCounts: new Map([["main", 8]]) })).byId.get("main");
    expect(collapsed?.height).toBeLessThan(30);
    expect(extended?.height).toBeGreaterThan(8 * 17);
  });

  test("keeps tracks that match the filter, with their groups", () => {
    const ids = (filter: string): string[] => treeOf(shape(TREE, { filter })).lines.map((line) => line.id);
    expect(ids("stream 7")).toEqual(["node", "rank 0", "device", "stream 7"]);
    expect(ids("RANK 1")).toEqual(["node", "rank 1", "other"]);
    expect(ids("nothing")).toEqual([]);
  });

  test("keeps the order of pinned tracks, and collapses them to fit", () => {
    const pinned = pinnedTree(shape(TREE), ["worker", "main", "gone"], 1000);
    expect(pinned.lines.map((line) => line.id)).toEqual(["worker", "main"]);
    expect(pinnedTree(shape(TREE), ["worker", "main"], 60).height).toBeLessThan(60);
  });

  test("returns the path to a track", () => {
    expect(pathTo(TREE, "stream 7").map((group) => group.id)).toEqual(["node", "rank 0", "device"]);
    expect(pathTo(TREE, "nowhere")).toEqual([]);
  });

  test("finds a line by its y position among 100,000", () => {
    const tracks = Array.from({ length: 100_000 }, (_, index) => track(`t${index}`));
    const tree = treeOf(shape([group("all", tracks)]));
    expect(tree.lines.length).toBe(100_001);
    const visible = linesIn(tree, 1_000_000, 1_000_800);
    expect(visible.length).toBeLessThan(45);
    expect(visible[0]?.y).toBeLessThanOrEqual(1_000_000);
    expect(lineAt(tree, tree.height + 5)).toBe(100_000);
    expect(lineAt(tree, -5)).toBe(0);
  });

  test("closes the inner groups of a large tree by default", () => {
    const ranks = Array.from({ length: 300 }, (_, index) => group(`rank ${index}`, [track(`a${index}`), track(`b${index}`)]));
    expect(treeOf(shape([group("node", [], ranks)])).lines.length).toBe(301);
    expect(treeOf(shape([group("node", [], ranks)], { defaultState: "open" })).lines.length).toBe(901);
  });
});
