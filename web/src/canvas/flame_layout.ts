// Where the boxes of a flame graph stand: the widths are shares of the node that is looked at.
import type { FlameNode } from "../api/views";
import { shortId } from "../base/short_id";

export interface FlameBox {
  node: FlameNode;
  /** Places among siblings from the root: what clicking it looks at. */
  path: readonly number[];
  depth: number;
  /** Shares of the width. */
  offset: number;
  width: number;
  /** Around the node that is looked at: as wide as the graph. */
  isAncestor: boolean;
}

/** Narrower boxes cannot be seen. */
const MIN_WIDTH = 0.0008;
const MAX_BOXES = 3_000;

/** The node at a path; null where there is none, as when the range has changed since. */
export function nodeAt(roots: readonly FlameNode[], path: readonly number[]): FlameNode | null {
  let nodes = roots;
  let node: FlameNode | null = null;
  for (const index of path) {
    node = nodes[index] ?? null;
    if (node === null) return null;
    nodes = node.children;
  }
  return node;
}

/** A path as it stands in an address: by names, for places change when a run grows. */
export function pathText(roots: readonly FlameNode[], path: readonly number[]): string {
  const parts: string[] = [];
  let nodes = roots;
  for (const index of path) {
    const node = nodes[index];
    if (node === undefined) break;
    const twinCount = nodes.slice(0, index).filter((sibling) => sibling.name === node.name).length;
    parts.push(twinCount === 0 ? shortId(node.name) : `${shortId(node.name)}-${twinCount}`);
    nodes = node.children;
  }
  return parts.join(".");
}

/** The path that an address names, as far down as there is such a node. */
export function pathOf(roots: readonly FlameNode[], text: string): number[] {
  const path: number[] = [];
  let nodes = roots;
  for (const part of text === "" ? [] : text.split(".")) {
    const [id, twinCount = "0"] = part.split("-");
    const matches = nodes.flatMap((node, index) => (shortId(node.name) === id ? [index] : []));
    const index = matches[Number(twinCount)];
    const node = index === undefined ? undefined : nodes[index];
    if (index === undefined || node === undefined) break;
    path.push(index);
    nodes = node.children;
  }
  return path;
}

const isSamePath = (a: readonly number[], b: readonly number[]): boolean =>
  a.length === b.length && a.every((index, depth) => index === b[depth]);

/** The box that an arrow key leads to: what is around a box, the first inside, or the next beside. */
export function neighbourBox(boxes: readonly FlameBox[], from: FlameBox, key: string): FlameBox | undefined {
  const inside = (box: FlameBox): boolean =>
    box.depth === from.depth + 1 && isSamePath(box.path.slice(0, -1), from.path);
  switch (key) {
    case "ArrowUp": return boxes.find((box) => isSamePath(box.path, from.path.slice(0, -1)));
    case "ArrowDown": return boxes.find(inside);
    case "ArrowLeft": case "ArrowRight": {
      const row = boxes.filter((box) => box.depth === from.depth);
      const index = row.findIndex((box) => isSamePath(box.path, from.path));
      return row[index + (key === "ArrowRight" ? 1 : -1)];
    }
    default: return undefined;
  }
}

export function totalTime(nodes: readonly FlameNode[]): number {
  return nodes.reduce((sum, node) => sum + Math.max(0, node.total_ns), 0);
}

/** All boxes that can be seen of the node at a path, and those around it. */
export function flameBoxes(roots: readonly FlameNode[], path: readonly number[]): FlameBox[] {
  const boxes: FlameBox[] = [];
  path.forEach((_, depth) => {
    const ancestorPath = path.slice(0, depth + 1);
    const node = nodeAt(roots, ancestorPath);
    if (node !== null) boxes.push({ node, path: ancestorPath, depth, offset: 0, width: 1, isAncestor: true });
  });
  const focus = nodeAt(roots, path);
  const add = (
    nodes: readonly FlameNode[], total: number, offset: number, before: readonly number[],
  ): void => {
    let x = offset;
    nodes.forEach((node, index) => {
      const width = Math.max(0, node.total_ns) / total;
      const nodePath = [...before, index];
      if (width >= MIN_WIDTH && boxes.length < MAX_BOXES) {
        boxes.push({ node, path: nodePath, depth: before.length, offset: x, width, isAncestor: false });
        add(node.children, total, x, nodePath);
      }
      x += width;
    });
  };
  if (focus === null) add(roots, Math.max(1, totalTime(roots)), 0, []);
  else add(focus.children, Math.max(1, focus.total_ns), 0, path);
  return boxes;
}
