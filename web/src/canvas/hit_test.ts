// Positions of slices on the canvas, and slices under the pointer.
import { valueAt, type Counter } from "./counters";
import { lanes } from "./paint_slices";
import { BAND_PX, RULER_PX, headerHeight, regions, type SliceRef, type Region, type Scene } from "./scene";
import { sliceAt, type Slices } from "./slices";
import { lineAt, type Line } from "./tree";
import { levelOf, scaleOf, toPixel, toTime, type Scale } from "./viewport";

export interface Box {
  x0: number;
  x1: number;
  top: number;
  bottom: number;
  /** Part of the canvas in which the line may be drawn. */
  clipTop: number;
  clipBottom: number;
  /** The row itself is shown, rather than a collapsed group that stands for it. */
  isVisible: boolean;
}

/** Return the box of a slice, visible or not; null if its track is filtered out. */
export function boxOf(scene: Scene, scale: Scale, slice: SliceRef): Box | null {
  const shift = scene.shiftOf(slice.track);
  const x0 = toPixel(scale, slice.after_ns - shift);
  const x1 = toPixel(scale, slice.after_ns + slice.duration_ns - shift);
  for (const region of regions(scene)) {
    const line = region.tree.byId.get(slice.track);
    if (line === undefined) continue;
    const top = region.top + line.y - region.scrollTop + 1 + slice.row * line.rowPx;
    const bottom = top + (line.rowPx >= 5 ? line.rowPx - 1 : line.rowPx);
    return { x0, x1, top, bottom, clipTop: region.top, clipBottom: region.bottom, isVisible: true };
  }
  const line = scene.collapsedLineOf(slice.track);
  const region = regions(scene)[1];
  if (line === null || region === undefined) return null;
  const top = region.top + line.y - region.scrollTop;
  const bottom = top + line.height;
  return { x0, x1, top, bottom, clipTop: region.top, clipBottom: region.bottom, isVisible: false };
}

export type HitTarget =
  | { on: "ruler"; ns: number }
  | { on: "finding"; ns: number; index: number }
  | { on: "band"; ns: number }
  | { on: "line"; ns: number; line: Line; slice: HitSlice | null; value: HitValue | null };

export interface HitSlice {
  track: string;
  row: number;
  slices: Slices;
  /** Index into the slices. */
  index: number;
}

export interface HitValue {
  counter: Counter;
  index: number;
}

/** Distance at which a slice is still hit. */
const HIT_TOLERANCE_PX = 3;

/** Return the target at a position of the canvas, or null. */
export function hitTest(scene: Scene, x: number, y: number): HitTarget | null {
  const scale = scaleOf(scene.span, scene.width);
  const ns = toTime(scale, x);
  if (y < RULER_PX) return { on: "ruler", ns };
  if (y < headerHeight(scene)) {
    const index = scene.findings.findIndex(
      (finding) => Math.abs(toPixel(scale, finding.first_after_ns) - x) <= 6,
    );
    return index >= 0 && y > RULER_PX + BAND_PX / 3 ? { on: "finding", ns, index } : { on: "band", ns };
  }
  for (const region of regions(scene)) {
    if (y < region.top || y >= region.bottom) continue;
    const line = region.tree.lines[lineAt(region.tree, y - region.top + region.scrollTop)];
    if (line === undefined) return null;
    const top = region.top + line.y - region.scrollTop;
    if (y >= top + line.height) return null;
    return { on: "line", ns, line, slice: sliceOf(scene, scale, line, region, x, y), value: valueOf(scene, line, ns) };
  }
  return null;
}

function sliceOf(scene: Scene, scale: Scale, line: Line, region: Region, x: number, y: number): HitSlice | null {
  const level = levelOf(scene.span, scene.width);
  for (const lane of lanes(line, region)) {
    const row = Math.floor((y - lane.top) / lane.rowPx);
    if (row < 0 || (lane.onlyFirst && row > 0)) continue;
    const ns = toTime(scale, x) + scene.shiftOf(lane.track);
    const tolerance = HIT_TOLERANCE_PX / scale.pixelsPerNs;
    for (const { chunk } of scene.slices.partsIn(lane.track, { from: ns - tolerance, to: ns + tolerance }, level)) {
      const index = sliceAt(chunk.data, row, ns, tolerance);
      if (index >= 0) return { track: lane.track, row, slices: chunk.data, index };
    }
  }
  return null;
}

function valueOf(scene: Scene, line: Line, ns: number): HitValue | null {
  if (line.track?.kind !== "counter") return null;
  const level = levelOf(scene.span, scene.width);
  const timeNs = ns + scene.shiftOf(line.id);
  for (const { chunk } of scene.counters.partsIn(line.id, { from: timeNs, to: timeNs + 1 }, level)) {
    const index = valueAt(chunk.data, timeNs);
    if (index >= 0) return { counter: chunk.data, index };
  }
  return null;
}

/** Reference to the slice under the pointer. */
export function sliceRefOf(target: HitSlice): SliceRef {
  const { slices, index: timeNs } = target;
  const start = slices.start[timeNs] ?? 0;
  return {
    track: target.track,
    event: slices.event[timeNs] ?? -1,
    row: target.row,
    after_ns: start,
    duration_ns: (slices.end[timeNs] ?? start) - start,
    name: slices.names.full[slices.name[timeNs] ?? 0] ?? "",
  };
}
