// From one slice to the next of its row, and to the rows above and below.
import type { SliceRef } from "../../canvas/scene";
import { levelOf, widthOf } from "../../canvas/viewport";
import type { Model } from "./model";

type Visit = (slice: SliceRef) => void;

/** The next or previous slice of the row that the selected one is in. */
export function toNeighbour(model: Model, by: 1 | -1, visit: Visit): void {
  const now = model.selected.peek();
  if (now === null) return;
  const at = now.after_ns + (by > 0 ? Math.max(1, now.duration_ns) : -1);
  const neighbour = rowSlices(model, now.track, at, now.row, (start) =>
    by > 0 ? start >= now.after_ns + now.duration_ns && start > now.after_ns : start < now.after_ns, by);
  if (neighbour !== null) visit(neighbour);
}

/** The slice above or below the selected one: in the next row, or on the next track. */
export function toOtherRow(model: Model, by: 1 | -1, visit: Visit): void {
  const now = model.selected.peek();
  if (now === null) return;
  const at = now.after_ns + now.duration_ns / 2;
  const inTrack = now.row + by >= 0
    ? rowSlices(model, now.track, at, now.row + by, () => true, 1, true)
    : null;
  if (inTrack !== null) {
    visit(inTrack);
    return;
  }
  const { lines, byId } = model.tree.peek();
  const line = byId.get(now.track);
  let index = line === undefined ? -1 : lines.indexOf(line) + by;
  for (; index >= 0 && index < lines.length; index += by) {
    const track = lines[index]?.track;
    if (!track || track.kind === "counter") continue;
    const nearest = rowSlices(model, track.id, at, 0, () => true, 1, true);
    if (nearest === null) continue;
    visit(nearest);
    return;
  }
}

/** The slice of a row nearest to a time that is wanted, among those that were fetched. */
function rowSlices(
  model: Model,
  track: string,
  ns: number,
  row: number,
  accepts: (start: number) => boolean,
  by: 1 | -1,
  nearest = false,
): SliceRef | null {
  const span = model.span.peek();
  const level = levelOf(span, model.size.peek().width);
  const shift = model.shiftOf(track);
  const wide = widthOf(span);
  const look = { from: Math.min(ns, span.from + shift) - wide, to: Math.max(ns, span.to + shift) + wide };
  let best: SliceRef | null = null;
  let minDistance = Infinity;
  for (const { chunk: { data } } of model.slices.partsIn(track, look, level)) {
    const last = data.rowOffsets[row + 1] ?? 0;
    for (let index = data.rowOffsets[row] ?? last; index < last; index++) {
      const start = data.start[index] ?? 0;
      if (!accepts(start)) continue;
      const end = data.end[index] ?? start;
      const away = nearest ? Math.max(start - ns, ns - end, 0) : by > 0 ? start - ns : ns - start;
      if (away >= minDistance) continue;
      minDistance = away;
      best = {
        track, row, event: data.event[index] ?? -1, after_ns: start, duration_ns: end - start,
        name: data.names.full[data.name[index] ?? 0] ?? "",
      };
    }
  }
  return best;
}
