// Selection of neighbouring slices.
import type { SliceRef } from "../../canvas/scene";
import { linesIn } from "../../canvas/tree";
import { levelOf, widthOf } from "../../canvas/viewport";
import type { Model } from "./model";

type ShowSlice = (slice: SliceRef) => void;

/** Select the next or previous slice in the row of the selected one. */
export function selectNeighbour(model: Model, direction: 1 | -1, showSlice: ShowSlice): void {
  const current = model.selected.peek();
  if (current === null) {
    selectFirst(model, showSlice);
    return;
  }
  const timeNs = current.after_ns + (direction > 0 ? Math.max(1, current.duration_ns) : -1);
  const neighbour = rowSlices(model, current.track, timeNs, current.row, (start) =>
    direction > 0 ? start >= current.after_ns + current.duration_ns && start > current.after_ns : start < current.after_ns, direction);
  if (neighbour !== null) showSlice(neighbour);
}

/** Select the slice above or below the selected one: next row, or next track. */
export function selectInOtherRow(model: Model, direction: 1 | -1, showSlice: ShowSlice): void {
  const current = model.selected.peek();
  if (current === null) {
    selectFirst(model, showSlice);
    return;
  }
  const timeNs = current.after_ns + current.duration_ns / 2;
  const sameTrack = current.row + direction >= 0
    ? rowSlices(model, current.track, timeNs, current.row + direction, () => true, 1, true)
    : null;
  if (sameTrack !== null) {
    showSlice(sameTrack);
    return;
  }
  const { lines, byId } = model.tree.peek();
  const line = byId.get(current.track);
  let index = line === undefined ? -1 : lines.indexOf(line) + direction;
  for (; index >= 0 && index < lines.length; index += direction) {
    const track = lines[index]?.track;
    if (!track || track.kind === "counter") continue;
    const nearest = rowSlices(model, track.id, timeNs, 0, () => true, 1, true);
    if (nearest === null) continue;
    showSlice(nearest);
    return;
  }
}

/** Select the slice at the top left of what is in view. */
function selectFirst(model: Model, showSlice: ShowSlice): void {
  const { from, to } = model.span.peek();
  const { scrollTop, tree, pinned } = model.scene.peek();
  for (const { track } of [...pinned.lines, ...linesIn(tree, scrollTop, scrollTop + model.treeHeight.peek())]) {
    if (track === null || track.kind === "counter") continue;
    const shift = model.shiftOf(track.id);
    const first = rowSlices(model, track.id, from + shift, 0, (start) => start < to + shift, 1, true);
    if (first === null) continue;
    showSlice(first);
    return;
  }
}

/** Nearest loaded slice of a row to a time that `accepts` admits. */
function rowSlices(
  model: Model,
  track: string,
  ns: number,
  row: number,
  accepts: (start: number) => boolean,
  direction: 1 | -1,
  nearest = false,
): SliceRef | null {
  const span = model.span.peek();
  const level = levelOf(span, model.size.peek().width);
  const shift = model.shiftOf(track);
  const spanWidth = widthOf(span);
  const searched = { from: Math.min(ns, span.from + shift) - spanWidth, to: Math.max(ns, span.to + shift) + spanWidth };
  let best: SliceRef | null = null;
  let minDistance = Infinity;
  for (const { chunk: { data } } of model.slices.partsIn(track, searched, level)) {
    const last = data.rowOffsets[row + 1] ?? 0;
    for (let index = data.rowOffsets[row] ?? last; index < last; index++) {
      const start = data.start[index] ?? 0;
      if (!accepts(start)) continue;
      const end = data.end[index] ?? start;
      const distance = nearest ? Math.max(start - ns, ns - end, 0) : direction > 0 ? start - ns : ns - start;
      if (distance >= minDistance) continue;
      minDistance = distance;
      best = {
        track, row, event: data.event[index] ?? -1, after_ns: start, duration_ns: end - start,
        name: data.names.full[data.name[index] ?? 0] ?? "",
      };
    }
  }
  return best;
}
