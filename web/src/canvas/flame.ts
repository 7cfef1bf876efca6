// Where the boxes of a flame graph stand: the widths are shares of the node that is looked at.
import type { FlameNode } from "../api/views";

export interface FlameBox {
  node: FlameNode;
  /** Places among siblings from the root: what clicking it looks at. */
  path: readonly number[];
  depth: number;
  /** Shares of the width. */
  left: number;
  width: number;
  /** Around the node that is looked at: as wide as the graph. */
  around: boolean;
}

/** Narrower boxes cannot be seen. */
const NARROWEST = 0.0008;
const MOST_BOXES = 3_000;

/** The node at a path; null where there is none, as when the range has changed since. */
export function nodeAt(roots: readonly FlameNode[], path: readonly number[]): FlameNode | null {
  let nodes = roots;
  let found: FlameNode | null = null;
  for (const place of path) {
    found = nodes[place] ?? null;
    if (found === null) return null;
    nodes = found.children;
  }
  return found;
}

export function totalOf(nodes: readonly FlameNode[]): number {
  return nodes.reduce((sum, each) => sum + Math.max(0, each.total_ns), 0);
}

/** All boxes that can be seen of the node at a path, and those around it. */
export function flameBoxes(roots: readonly FlameNode[], path: readonly number[]): FlameBox[] {
  const boxes: FlameBox[] = [];
  path.forEach((_, depth) => {
    const own = path.slice(0, depth + 1);
    const node = nodeAt(roots, own);
    if (node !== null) boxes.push({ node, path: own, depth, left: 0, width: 1, around: true });
  });
  const focus = nodeAt(roots, path);
  const add = (
    nodes: readonly FlameNode[], total: number, left: number, before: readonly number[],
  ): void => {
    let x = left;
    nodes.forEach((node, place) => {
      const width = Math.max(0, node.total_ns) / total;
      const own = [...before, place];
      if (width >= NARROWEST && boxes.length < MOST_BOXES) {
        boxes.push({ node, path: own, depth: before.length, left: x, width, around: false });
        add(node.children, total, x, own);
      }
      x += width;
    });
  };
  if (focus === null) add(roots, Math.max(1, totalOf(roots)), 0, []);
  else add(focus.children, Math.max(1, focus.total_ns), 0, path);
  return boxes;
}
