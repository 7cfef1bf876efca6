// Other trees of the same calls: callers below their functions, and the calls of one function.
import type { FlameNode } from "../api/views";

const byTime = (a: FlameNode, b: FlameNode): number => b.total_ns - a.total_ns || (a.name < b.name ? -1 : 1);

/** Find a child by its name, or add one without time. */
function childOf(nodes: FlameNode[], name: string): FlameNode {
  let node = nodes.find((candidate) => candidate.name === name);
  if (node === undefined) {
    node = { name, count: 0, total_ns: 0, self_ns: 0, children: [] };
    nodes.push(node);
  }
  return node;
}

function sortTree(nodes: FlameNode[]): FlameNode[] {
  nodes.forEach((node) => { sortTree(node.children); });
  return nodes.sort(byTime);
}

/**
 * Invert a tree: each function with its self time, its callers below it. The time of a caller is the
 * self time of the function when called by it.
 */
export function invertTree(roots: readonly FlameNode[]): FlameNode[] {
  const inverted: FlameNode[] = [];
  const visit = (node: FlameNode, path: readonly string[]): void => {
    const names = [node.name, ...path];
    if (node.self_ns > 0) {
      let level = inverted;
      names.forEach((name, depth) => {
        const target = childOf(level, name);
        target.total_ns += node.self_ns;
        target.count += node.count;
        if (depth === 0) target.self_ns += node.self_ns;
        level = target.children;
      });
    }
    node.children.forEach((child) => { visit(child, names); });
  };
  roots.forEach((root) => { visit(root, []); });
  return sortTree(inverted);
}

function merge(target: FlameNode, source: FlameNode): void {
  target.total_ns += source.total_ns;
  target.self_ns += source.self_ns;
  target.count += source.count;
  for (const child of source.children) merge(childOf(target.children, child.name), child);
}

/** Merge the outermost calls of a function from all callers; empty if it is not called. */
export function focusFunction(roots: readonly FlameNode[], name: string): FlameNode[] {
  const merged: FlameNode[] = [];
  const visit = (node: FlameNode): void => {
    if (node.name === name) merge(childOf(merged, name), node);
    else node.children.forEach(visit);
  };
  roots.forEach(visit);
  return sortTree(merged);
}
