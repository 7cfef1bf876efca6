// Frame: all rectangles, in painting order.
import { withOpacity } from "./colours";
import { paintCounter } from "./paint_counters";
import { lanes, paintSlices } from "./paint_slices";
import { paintSteps } from "./paint_steps";
import { HATCHED } from "./rectangles";
import { BAND_PX, RULER_PX, headerHeight, regions, type Frame, type Region } from "./scene";
import type { Ruler } from "./ticks";
import { GROUP_HEADER_PX, linesIn, type Line } from "./tree";
import { toPixel } from "./viewport";

export function paint(frame: Frame, marks: Ruler): void {
  const { scene } = frame;
  paintBackground(frame, marks);
  for (const region of regions(scene)) {
    for (const line of linesIn(region.tree, region.scrollTop, region.scrollTop + region.bottom - region.top)) {
      paintLine(frame, line, region);
    }
  }
  const { pinned, band } = scene;
  const headerPx = headerHeight(scene);
  if (pinned.lines.length > 0) {
    const y = headerPx + pinned.height;
    frame.rectangles.add(0, y - 2, scene.width, y, withOpacity(frame.ink.separator, 1));
  }
  if (band !== null) {
    paintSteps(frame, band, { top: RULER_PX + 2, bottom: RULER_PX + BAND_PX - 3, shift: scene.shiftOf(band.group) });
  }
}

function paintBackground(frame: Frame, marks: Ruler): void {
  const { scene, scale, rectangles, ink } = frame;
  for (const { ns } of marks.ticks) {
    const x = Math.round(toPixel(scale, ns));
    rectangles.add(x, RULER_PX, x + 1, scene.height, ink.grid);
  }
  // Intervals without recorded data are hatched: missing data is not idle time.
  const start = toPixel(scale, 0);
  const end = toPixel(scale, scene.end);
  if (start > 0) rectangles.add(0, RULER_PX, Math.min(start, scene.width), scene.height, ink.outside, HATCHED);
  if (end < scene.width) rectangles.add(Math.max(0, end), RULER_PX, scene.width, scene.height, ink.outside, HATCHED);
}

function paintLine(frame: Frame, line: Line, region: Region): void {
  const { scene, rectangles, ink } = frame;
  const top = region.top + line.y - region.scrollTop;
  const bottom = top + line.height;
  const clampY = (y: number): number => Math.min(region.bottom, Math.max(region.top, y));
  if (line.kind === "group") {
    rectangles.add(0, clampY(top), scene.width, clampY(bottom), ink.header);
    if (line.steps !== null) {
      const box = { top: clampY(top + 4), bottom: clampY(top + GROUP_HEADER_PX - 5), shift: scene.shiftOf(line.group.id) };
      if (box.bottom - box.top > 10) paintSteps(frame, line.steps, box);
    }
  }
  rectangles.add(0, clampY(bottom - 1), scene.width, clampY(bottom), ink.grid);
  if (line.track?.kind === "counter") paintCounter(frame, line, region);
  for (const lane of lanes(line, region)) paintSlices(frame, lane, region);
}
