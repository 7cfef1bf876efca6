import { describe, expect, test } from "vitest";

import type { Track, TrackGroup } from "../api/views";
import { lineAt, linesIn, pathTo, pinnedTree, summaryTracks, treeOf, type Shape } from "./tree";

function track(id: string, more: Partial<Track> = {}): Track {
  return { id, name: id, kind: "host", row_count: 1, unit: "", event_count: 1, ...more };
}

function group(id: string, tracks: Track[], groups: TrackGroup[] = []): TrackGroup {
  return { id, name: id, kind: "process", rank: null, tracks, groups };
}

function shape(groups: TrackGroup[], more: Partial<Shape> = {}): Shape {
  return {
    groups, steps: new Map(), isToggled: () => false, defaultState: "auto", filter: "", rowCounts: new Map(), ...more,
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
  test("lists what is open, one below the other, devices first", () => {
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

  test("says how deep a line is, and which of its siblings it is", () => {
    const { lines } = treeOf(shape(TREE));
    const device = lines.find((line) => line.id === "device");
    expect([device?.level, device?.positionInSet, device?.siblings]).toEqual([3, 1, 3]);
    expect(lines[device?.parent ?? -1]?.id).toBe("rank 0");
  });

  test("draws a closed group as one line of its devices", () => {
    const { lines } = treeOf(shape(TREE, { isToggled: (id) => id === "rank 0" }));
    expect(lines.map((line) => line.id)).toEqual(["node", "rank 0", "rank 1", "other"]);
    expect(lines[1]?.summary.map((track) => track.id)).toEqual(["stream 14", "stream 7"]);
    expect(summaryTracks(TREE[0]?.groups[1] ?? group("", [])).map((track) => track.id)).toEqual(["other"]);
  });

  test("folds a track into thin rows, and grows it when more rows turn up", () => {
    const folded = treeOf(shape(TREE, { isToggled: (id) => id === "main" })).byId.get("main");
    const full = treeOf(shape(TREE, { rowCounts: new Map([["main", 8]]) })).byId.get("main");
    expect(folded?.height).toBeLessThan(30);
    expect(full?.height).toBeGreaterThan(8 * 17);
  });

  test("keeps what has the name that is filtered for, and what it is in", () => {
    const ids = (filter: string): string[] => treeOf(shape(TREE, { filter })).lines.map((line) => line.id);
    expect(ids("stream 7")).toEqual(["node", "rank 0", "device", "stream 7"]);
    expect(ids("RANK 1")).toEqual(["node", "rank 1", "other"]);
    expect(ids("nothing")).toEqual([]);
  });

  test("pins tracks in the order that they were pinned, and folds them where there is no room", () => {
    const pins = pinnedTree(shape(TREE), ["worker", "main", "gone"], 1000);
    expect(pins.lines.map((line) => line.id)).toEqual(["worker", "main"]);
    expect(pinnedTree(shape(TREE), ["worker", "main"], 60).height).toBeLessThan(60);
  });

  test("finds the way to a track", () => {
    expect(pathTo(TREE, "stream 7").map((group) => group.id)).toEqual(["node", "rank 0", "device"]);
    expect(pathTo(TREE, "nowhere")).toEqual([]);
  });

  test("finds lines by height among a hundred thousand", () => {
    const many = Array.from({ length: 100_000 }, (_, at) => track(`t${at}`));
    const tree = treeOf(shape([group("all", many)]));
    expect(tree.lines.length).toBe(100_001);
    const visible = linesIn(tree, 1_000_000, 1_000_800);
    expect(visible.length).toBeLessThan(45);
    expect(visible[0]?.y).toBeLessThanOrEqual(1_000_000);
    expect(lineAt(tree, tree.height + 5)).toBe(100_000);
    expect(lineAt(tree, -5)).toBe(0);
  });

  test("closes the inner groups of a large tree at first", () => {
    const inner = Array.from({ length: 300 }, (_, at) => group(`rank ${at}`, [track(`a${at}`), track(`b${at}`)]));
    expect(treeOf(shape([group("node", [], inner)])).lines.length).toBe(301);
    expect(treeOf(shape([group("node", [], inner)], { defaultState: "open" })).lines.length).toBe(901);
  });
});
