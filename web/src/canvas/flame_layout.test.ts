import { expect, test } from "vitest";

import type { FlameNode } from "../api/views";
import { neighbourBox, flameBoxes, nodeAt, pathOf, pathText } from "./flame_layout";

function node(name: string, total_ns: number, children: FlameNode[] = []): FlameNode {
  return { name, count: 1, total_ns, self_ns: 0, children };
}

const ROOTS = [node("a", 60, [node("b", 40), node("c", 20)]), node("d", 40)];

test("boxes are as wide as their time and below their caller", () => {
  const boxes = flameBoxes(ROOTS, []);
  expect(boxes.map(({ node: { name }, depth, offset, width }) => [name, depth, offset, width])).toEqual([
    ["a", 0, 0, 0.6], ["b", 1, 0, 0.4], ["c", 1, 0.4, 0.2], ["d", 0, 0.6, 0.4],
  ]);
});

test("a focused node and its ancestors have full width", () => {
  const boxes = flameBoxes(ROOTS, [0]);
  expect(boxes[0]).toMatchObject({ depth: 0, width: 1, isAncestor: true });
  expect(boxes.slice(1).map(({ node: { name }, width }) => [name, width])).toEqual([["b", 2 / 3], ["c", 1 / 3]]);
});

test("an unknown path has no focus; invalid times have no width", () => {
  expect(nodeAt(ROOTS, [5, 1])).toBeNull();
  expect(flameBoxes([node("x", -5), node("y", 0)], [])).toEqual([]);
});

test("a path is encoded by names, and decoded as far as it exists", () => {
  const duplicates = [node("a", 60, [node("b", 20), node("b", 15, [node("c", 1)])])];
  for (const path of [[], [0], [0, 0], [0, 1], [0, 1, 0]]) {
    expect(pathOf(duplicates, pathText(duplicates, path))).toEqual(path);
  }
  const extended = [node("new", 90), ...duplicates];
  expect(pathOf(extended, pathText(duplicates, [0, 1, 0]))).toEqual([1, 1, 0]);
  expect(pathOf(ROOTS, pathText(duplicates, [0, 0]))).toEqual([0, 0]);
  expect(pathOf(ROOTS, pathText(duplicates, [0, 1]))).toEqual([0]);
  expect(pathOf(ROOTS, "nonsense.-.x-y")).toEqual([]);
  expect(pathText(ROOTS, [7])).toBe("");
});

test("arrow keys reach every box", () => {
  const boxes = flameBoxes(ROOTS, []);
  const neighbourOf = (name: string, key: string): string | undefined => {
    const box = boxes.find((candidate) => candidate.node.name === name);
    return box === undefined ? undefined : neighbourBox(boxes, box, key)?.node.name;
  };
  expect(["ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight", "x"].map((key) => neighbourOf("a", key)))
    .toEqual([undefined, "b", undefined, "d", undefined]);
  expect(["ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight"].map((key) => neighbourOf("c", key)))
    .toEqual(["a", undefined, "b", undefined]);
});
