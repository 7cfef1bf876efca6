import { describe, expect, test } from "vitest";

import type { FlameNode } from "../api/views";
import { totalTime } from "./flame_layout";
import { focusFunction, invertTree } from "./flame_trees";

function node(name: string, self_ns: number, ...children: FlameNode[]): FlameNode {
  return { name, count: 1, self_ns, total_ns: self_ns + totalTime(children), children };
}

/** main 1 ( f 10 ( g 4 ) | h 2 ( f 3 ( f 5 | g 6 ) ) ) */
const ROOTS = [node("main", 1, node("f", 10, node("g", 4)), node("h", 2, node("f", 3, node("f", 5), node("g", 6))))];

const timesOf = (nodes: readonly FlameNode[]) => nodes.map(({ name, total_ns, self_ns, count }) => [name, total_ns, self_ns, count]);

describe("other trees of the calls", () => {
  test("inverted, functions have their self times, and callers their shares of these", () => {
    const inverted = invertTree(ROOTS);
    expect(timesOf(inverted)).toEqual([["f", 18, 18, 3], ["g", 10, 10, 2], ["h", 2, 2, 1], ["main", 1, 1, 1]]);
    expect(totalTime(inverted)).toBe(totalTime(ROOTS));
    // f: 10 from main, 3 from h, 5 from itself.
    expect(timesOf(inverted[0]?.children ?? [])).toEqual([["main", 10, 0, 1], ["f", 5, 0, 1], ["h", 3, 0, 1]]);
    expect(timesOf(inverted[0]?.children[1]?.children ?? [])).toEqual([["h", 5, 0, 1]]);
  });

  test("of one function are those of its outermost calls", () => {
    expect(timesOf(focusFunction(ROOTS, "f"))).toEqual([["f", 28, 13, 2]]);
    expect(timesOf(focusFunction(ROOTS, "f")[0]?.children ?? [])).toEqual([["g", 10, 10, 2], ["f", 5, 5, 1]]);
    expect(focusFunction(ROOTS, "x")).toEqual([]);
    expect(ROOTS[0]?.total_ns).toBe(31); // the original is as it was
  });
});
