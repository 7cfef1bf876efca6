// Where the boxes of a flame graph stand: the widths are shares of the node that is looked at.
import type { FlameNode } from "../api/views";
import { shortId } from "../base/short_id";

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

/** A path as it stands in an address: by names, for places change when a run grows. */
export function pathText(roots: readonly FlameNode[], path: readonly number[]): string {
  const parts: string[] = [];
  let nodes = roots;
  for (const place of path) {
    const node = nodes[place];
    if (node === undefined) break;
    const alike = nodes.slice(0, place).filter((each) => each.name === node.name).length;
    parts.push(alike === 0 ? shortId(node.name) : `${shortId(node.name)}-${alike}`);
    nodes = node.children;
  }
  return parts.join(".");
}

/** The path that an address names, as far down as there is such a node. */
export function pathOf(roots: readonly FlameNode[], text: string): number[] {
  const path: number[] = [];
  let nodes = roots;
  for (const part of text === "" ? [] : text.split(".")) {
    const [id, alike = "0"] = part.split("-");
    const named = nodes.flatMap((node, place) => (shortId(node.name) === id ? [place] : []));
    const place = named[Number(alike)];
    const node = place === undefined ? undefined : nodes[place];
    if (place === undefined || node === undefined) break;
    path.push(place);
    nodes = node.children;
  }
  return path;
}

const same = (one: readonly number[], other: readonly number[]): boolean =>
  one.length === other.length && one.every((place, depth) => place === other[depth]);

/** The box that an arrow key leads to: what is around a box, the first inside, or the next beside. */
export function boxBeside(boxes: readonly FlameBox[], from: FlameBox, key: string): FlameBox | undefined {
  const inside = (box: FlameBox): boolean =>
    box.depth === from.depth + 1 && same(box.path.slice(0, -1), from.path);
  switch (key) {
    case "ArrowUp": return boxes.find((box) => same(box.path, from.path.slice(0, -1)));
    case "ArrowDown": return boxes.find(inside);
    case "ArrowLeft": case "ArrowRight": {
      const row = boxes.filter((box) => box.depth === from.depth);
      const place = row.findIndex((box) => same(box.path, from.path));
      return row[place + (key === "ArrowRight" ? 1 : -1)];
    }
    default: return undefined;
  }
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
