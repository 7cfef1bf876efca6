// Slices of the visible lines: one rectangle each, and a label where it fits.
import type { StandingCall } from "../api/views";
import { packHex, withOpacity } from "./colours";
import { SOLID, HATCHED } from "./rectangles";
import { MAX_LABELS, type Frame, type Region } from "./scene";
import { firstEndingAfter, partShares, sliceColour, type Names, type Slices } from "./slices";
import { GROUP_HEADER_PX, type Line } from "./tree";
import { toPixel } from "./viewport";

/** Minimum width of a slice and height of a row for a label. */
const LABEL_PX = 28;
const LABEL_ROW_PX = 12;
const PADDING_PX = 4;
/** Height of the stacked bar of the parts of a slice. */
const PARTS_PX = 5;
/** Opacity of slices that do not match the search. */
const DIMMED = 0.22;

/** Area in which rows of a track are drawn. */
export interface Lane {
  track: string;
  top: number;
  rowPx: number;
  /** Only the first row is drawn, as in a collapsed group. */
  onlyFirst: boolean;
}

/** Compute the lanes of a line, from the top of the canvas. */
export function lanes(line: Line, region: Region): Lane[] {
  const top = region.top + line.y - region.scrollTop;
  if (line.track !== null) {
    return line.track.kind === "counter"
      ? []
      : [{ track: line.track.id, top: top + 1, rowPx: line.rowPx, onlyFirst: false }];
  }
  const below = line.steps === null ? 3 : GROUP_HEADER_PX;
  const rowPx = line.rowPx / Math.max(1, line.summary.length);
  return line.summary.map((track, index) => ({
    track: track.id,
    top: top + below + index * rowPx,
    rowPx,
    onlyFirst: true,
  }));
}

export function paintSlices(frame: Frame, lane: Lane, region: Region): void {
  const { scene } = frame;
  const shift = scene.shiftOf(lane.track);
  const window = { from: scene.span.from + shift, to: scene.span.to + shift };
  for (const { chunk, from, to } of scene.slices.partsIn(lane.track, window, frame.level)) {
    const slices = chunk.data;
    const first = Math.max(0, Math.floor((region.top - lane.top) / lane.rowPx));
    const last = lane.onlyFirst
      ? 1
      : Math.min(slices.rowCount, Math.ceil((region.bottom - lane.top) / lane.rowPx));
    for (let row = first; row < last; row++) {
      const top = lane.top + row * lane.rowPx;
      const bottom = top + (lane.rowPx >= 5 ? lane.rowPx - 1 : lane.rowPx);
      const band = { top: Math.max(top, region.top), bottom: Math.min(bottom, region.bottom) };
      paintRow(frame, slices, { row, from, to, shift, ...band, fullHeight: bottom - top });
    }
  }
  for (const call of scene.standing) if (call.track === lane.track) paintStandingCall(frame, lane, region, call);
}

/** Draw the call in which a stuck job is: hatched, from its last progress to the end of the data. */
function paintStandingCall(frame: Frame, lane: Lane, region: Region, call: StandingCall): void {
  const { scene, scale, ink } = frame;
  const shift = scene.shiftOf(lane.track);
  const x0 = Math.max(-2, toPixel(scale, call.after_ns - shift));
  const x1 = Math.min(scale.width + 2, toPixel(scale, scene.end - shift));
  const [top, bottom] = [Math.max(lane.top, region.top), Math.min(lane.top + lane.rowPx - 1, region.bottom)];
  frame.rectangles.add(x0, top, x1, bottom, withOpacity(packHex(ink.warn), 0.8), HATCHED);
  if (x1 - x0 < LABEL_PX || bottom - top < LABEL_ROW_PX) return;
  const x = Math.max(0, x0) + PADDING_PX;
  const text = `stuck in ${call.name}`;
  frame.labels.push({ x, y: (top + bottom) / 2, maxWidth: x1 - x - PADDING_PX, text, colour: ink.text, hasBackground: true });
}

interface Row {
  row: number;
  from: number;
  to: number;
  shift: number;
  top: number;
  bottom: number;
  /** Height of the row, including parts out of view. */
  fullHeight: number;
}

function paintRow(frame: Frame, slices: Slices, band: Row): void {
  const { scale, rectangles, ink } = frame;
  const x = Math.max(-2, toPixel(scale, band.from - band.shift));
  const maxX = Math.min(scale.width + 2, toPixel(scale, band.to - band.shift));
  const end = slices.rowOffsets[band.row + 1] ?? 0;
  const searchMatches = frame.scene.query === "" ? null : matches(slices.names, frame.scene.query);
  let drawnEnd = x;
  for (let index = firstEndingAfter(slices, band.row, band.from); index < end; index++) {
    const start = slices.start[index] ?? 0;
    if (start >= band.to) break;
    const startX = toPixel(scale, start - band.shift);
    // Slices thinner than a pixel are drawn as one pixel; further slices in that pixel are skipped.
    const x1 = Math.min(maxX, Math.max(startX + 1, toPixel(scale, (slices.end[index] ?? 0) - band.shift)));
    if (x1 - drawnEnd < 1) continue;
    const x0 = Math.max(drawnEnd, startX);
    drawnEnd = x1;
    const name = slices.name[index] ?? 0;
    const hue = sliceColour(slices, index, frame.scene.colourBy);
    const count = slices.count[index] ?? 1;
    const isSummary = count > 1;
    const isDimmed = searchMatches !== null && searchMatches[name] !== 1;
    const widthPx = x1 - x0;
    const opacity = (isSummary ? 0.3 + 0.55 * (slices.busy[index] ?? 1) : 1) * (isDimmed ? DIMMED : 1);
    const isHatched = (slices.unfinished.size > 0 && slices.unfinished.has(index)) || (isSummary && widthPx >= 4 && band.fullHeight >= 8);
    const style = isHatched ? HATCHED : SOLID;
    const visibleEnd = widthPx >= 3 ? x1 - 0.8 : x1;
    rectangles.add(x0, band.top, visibleEnd, band.bottom, withOpacity(ink.slices.fill[hue] ?? 0, opacity), style);
    const hasParts = slices.parts.has(index) && band.fullHeight >= LABEL_ROW_PX;
    if (hasParts) {
      const bar = { x0: toPixel(scale, start - band.shift), x1: toPixel(scale, (slices.end[index] ?? 0) - band.shift) };
      paintParts(frame, slices, index, { ...bar, minX: x0, maxX: visibleEnd, top: band.bottom - PARTS_PX, bottom: band.bottom }, searchMatches);
    }
    if (widthPx < LABEL_PX || band.bottom - band.top < LABEL_ROW_PX) continue;
    if (frame.labels.length >= MAX_LABELS) continue;
    const text = slices.names.labels[name] ?? "";
    frame.labels.push({
      x: Math.max(0, x0) + PADDING_PX,
      y: (band.top + band.bottom - (hasParts ? PARTS_PX : 0)) / 2,
      maxWidth: Math.min(scale.width, x1) - Math.max(0, x0) - 2 * PADDING_PX,
      text: isSummary ? `${text} +${count - 1}` : text,
      colour: isDimmed ? ink.muted : isSummary ? ink.text : (ink.slices.text[hue] ?? ink.text),
    });
  }
}

interface PartsBar {
  /** Ends of the slice, in view or not. */
  x0: number;
  x1: number;
  /** Drawn section. */
  minX: number;
  maxX: number;
  top: number;
  bottom: number;
}

/** Draw the parts of a slice as a stacked bar: widths are sums of time, positions mean nothing. */
function paintParts(frame: Frame, slices: Slices, index: number, bar: PartsBar, searchMatches: Uint8Array | null): void {
  const { rectangles, ink } = frame;
  rectangles.add(bar.minX, bar.top, bar.maxX, bar.bottom, packHex(ink.surface));
  let x = bar.x0;
  for (const { name, share } of partShares(slices, index)) {
    const end = x + share * (bar.x1 - bar.x0);
    const opacity = searchMatches !== null && searchMatches[name] !== 1 ? DIMMED : 1;
    const colour = ink.slices.fill[slices.names.colour[name] ?? 0] ?? 0;
    rectangles.add(Math.max(x, bar.minX), bar.top + 1, Math.min(end, bar.maxX), bar.bottom, withOpacity(colour, opacity));
    x = end;
  }
}

const matchCache = new WeakMap<Names, { query: string; flags: Uint8Array }>();

/** For each name, 1 if it matches the search. */
function matches(names: Names, query: string): Uint8Array {
  const cached = matchCache.get(names);
  if (cached?.query === query) return cached.flags;
  const flags = Uint8Array.from(names.full, (name) => Number(name.toLowerCase().includes(query)));
  matchCache.set(names, { query, flags });
  return flags;
}
