// Layout of a flame graph: widths are shares of the focused node.
import type { FlameNode } from "../api/views";
import { shortId } from "../base/short_id";

export interface FlameBox {
  node: FlameNode;
  /** Indices among siblings from the root; clicking the box focuses this path. */
  path: readonly number[];
  depth: number;
  /** Offset and width as shares of the graph's width. */
  offset: number;
  width: number;
  /** Ancestor of the focused node, as wide as the graph. */
  isAncestor: boolean;
}

/** Narrower boxes are invisible. */
const MIN_WIDTH = 0.0008;
const MAX_BOXES = 3_000;

/** Return the node at a path; null if there is none, for example after the range has changed. */
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

/** Format a path for the URL: by names, since indices change while a run grows. */
export function pathText(roots: readonly FlameNode[], path: readonly number[]): string {
  const parts: string[] = [];
  let nodes = roots;
  for (const index of path) {
    const node = nodes[index];
    if (node === undefined) break;
    const duplicateIndex = nodes.slice(0, index).filter((sibling) => sibling.name === node.name).length;
    parts.push(duplicateIndex === 0 ? shortId(node.name) : `${shortId(node.name)}-${duplicateIndex}`);
    nodes = node.children;
  }
  return parts.join(".");
}

/** Parse a path from the URL, as deep as its nodes exist. */
export function pathOf(roots: readonly FlameNode[], text: string): number[] {
  const path: number[] = [];
  let nodes = roots;
  for (const part of text === "" ? [] : text.split(".")) {
    const [id, duplicateIndex = "0"] = part.split("-");
    const matches = nodes.flatMap((node, index) => (shortId(node.name) === id ? [index] : []));
    const index = matches[Number(duplicateIndex)];
    const node = index === undefined ? undefined : nodes[index];
    if (index === undefined || node === undefined) break;
    path.push(index);
    nodes = node.children;
  }
  return path;
}

const isSamePath = (a: readonly number[], b: readonly number[]): boolean =>
  a.length === b.length && a.every((index, depth) => index === b[depth]);

/** Return the box that an arrow key leads to: parent, first child or neighbour. */
export function neighbourBox(boxes: readonly FlameBox[], from: FlameBox, key: string): FlameBox | undefined {
  const isChild = (box: FlameBox): boolean =>
    box.depth === from.depth + 1 && isSamePath(box.path.slice(0, -1), from.path);
  switch (key) {
    case "ArrowUp": return boxes.find((box) => isSamePath(box.path, from.path.slice(0, -1)));
    case "ArrowDown": return boxes.find(isChild);
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

/** Lay out all visible boxes below a path, and its ancestors. */
export function flameBoxes(roots: readonly FlameNode[], path: readonly number[]): FlameBox[] {
  const boxes: FlameBox[] = [];
  path.forEach((_, depth) => {
    const ancestorPath = path.slice(0, depth + 1);
    const node = nodeAt(roots, ancestorPath);
    if (node !== null) boxes.push({ node, path: ancestorPath, depth, offset: 0, width: 1, isAncestor: true });
  });
  const focus = nodeAt(roots, path);
  const layOut = (
    nodes: readonly FlameNode[], total: number, offset: number, parentPath: readonly number[],
  ): void => {
    let x = offset;
    nodes.forEach((node, index) => {
      const width = Math.max(0, node.total_ns) / total;
      const nodePath = [...parentPath, index];
      if (width >= MIN_WIDTH && boxes.length < MAX_BOXES) {
        boxes.push({ node, path: nodePath, depth: parentPath.length, offset: x, width, isAncestor: false });
        layOut(node.children, total, x, nodePath);
      }
      x += width;
    });
  };
  if (focus === null) layOut(roots, Math.max(1, totalTime(roots)), 0, []);
  else layOut(focus.children, Math.max(1, focus.total_ns), 0, path);
  return boxes;
}
