// From one slice to the next of its row, and to the rows above and below.
import type { Placed } from "../../canvas/scene";
import { levelOf, width } from "../../canvas/viewport";
import type { Model } from "./model";

type Visit = (slice: Placed) => void;

/** The next or previous slice of the row that the selected one is in. */
export function toNeighbour(model: Model, by: 1 | -1, visit: Visit): void {
  const now = model.selected.peek();
  if (now === null) return;
  const at = now.after_ns + (by > 0 ? Math.max(1, now.duration_ns) : -1);
  const found = rowSlices(model, now.track, at, now.row, (start) =>
    by > 0 ? start >= now.after_ns + now.duration_ns && start > now.after_ns : start < now.after_ns, by);
  if (found !== null) visit(found);
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
  let place = line === undefined ? -1 : lines.indexOf(line) + by;
  for (; place >= 0 && place < lines.length; place += by) {
    const track = lines[place]?.track;
    if (!track || track.kind === "counter") continue;
    const found = rowSlices(model, track.id, at, 0, () => true, 1, true);
    if (found === null) continue;
    visit(found);
    return;
  }
}

/** The slice of a row nearest to a time that is wanted, among those that were fetched. */
function rowSlices(
  model: Model,
  track: string,
  ns: number,
  row: number,
  wanted: (start: number) => boolean,
  by: 1 | -1,
  nearest = false,
): Placed | null {
  const span = model.span.peek();
  const level = levelOf(span, model.size.peek().width);
  const shift = model.shiftOf(track);
  const wide = width(span);
  const look = { from: Math.min(ns, span.from + shift) - wide, to: Math.max(ns, span.to + shift) + wide };
  let best: Placed | null = null;
  let least = Infinity;
  for (const { piece: { data } } of model.slices.parts(track, look, level)) {
    const last = data.rowFirst[row + 1] ?? 0;
    for (let place = data.rowFirst[row] ?? last; place < last; place++) {
      const start = data.start[place] ?? 0;
      if (!wanted(start)) continue;
      const end = data.end[place] ?? start;
      const away = nearest ? Math.max(start - ns, ns - end, 0) : by > 0 ? start - ns : ns - start;
      if (away >= least) continue;
      least = away;
      best = {
        track, row, event: data.event[place] ?? -1, after_ns: start, duration_ns: end - start,
        name: data.names.full[data.name[place] ?? 0] ?? "",
      };
    }
  }
  return best;
}
