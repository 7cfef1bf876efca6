// Minimap: the whole run in a few lines, with the window on it.
import type { FindingMark } from "../api/views";
import { css, withOpacity } from "./colours";
import { inkOf, type SliceRef } from "./scene";
import { sliceColour, type ColourBy, type Slices } from "./slices";
import type { Span } from "./viewport";

export interface MinimapState {
  width: number;
  height: number;
  end: number;
  dark: boolean;
  span: Span;
  range: Span | null;
  tracks: readonly Slices[];
  colourBy: ColourBy;
  /** Start times of outlier steps. */
  outliers: readonly number[];
  findings: readonly FindingMark[];
  /** Start times of search matches. */
  matches: readonly number[];
  selected: SliceRef | null;
}

/** Margin for marks above and below the tracks. */
const EDGE_PX = 7;

export function paintMinimap(context: CanvasRenderingContext2D, state: MinimapState): void {
  const { width, height, dark } = state;
  const colours = inkOf(dark);
  const x = (ns: number): number => (ns / Math.max(1, state.end)) * width;
  context.clearRect(0, 0, width, height);
  paintTracks(context, state, x);
  context.fillStyle = colours.warn;
  for (const ns of state.outliers) triangle(context, x(ns), 0, 4);
  for (const finding of state.findings) triangle(context, x(finding.first_after_ns), height, -4);
  context.fillStyle = colours.text;
  for (const ns of state.matches) context.fillRect(x(ns) - 0.5, height / 2 - 4, 1.5, 8);
  if (state.selected !== null) context.fillRect(x(state.selected.after_ns) - 0.75, 0, 1.5, height);
  if (state.range !== null) {
    context.fillStyle = css(withOpacity(colours.step, 0.3));
    context.fillRect(x(state.range.from), 0, Math.max(1.5, x(state.range.to) - x(state.range.from)), height);
  }
  paintWindow(context, state, x);
}

function paintTracks(context: CanvasRenderingContext2D, state: MinimapState, x: (ns: number) => number): void {
  const colours = inkOf(state.dark);
  const lane = (state.height - 2 * EDGE_PX) / Math.max(1, state.tracks.length);
  state.tracks.forEach((slices, trackIndex) => {
    const top = EDGE_PX + trackIndex * lane;
    const laneHeight = Math.max(1, lane - 1);
    const last = slices.rowOffsets[1] ?? 0;
    for (let index = 0; index < last; index++) {
      const start = slices.start[index] ?? 0;
      const x0 = x(start);
      const x1 = Math.max(x0 + 0.75, x(slices.end[index] ?? start));
      const colour = colours.slices.fill[sliceColour(slices, index, state.colourBy)] ?? 0;
      context.fillStyle = css(withOpacity(colour, 0.25 + 0.6 * (slices.busy[index] ?? 1)));
      context.fillRect(x0, top, x1 - x0, laneHeight);
    }
  });
}

function paintWindow(context: CanvasRenderingContext2D, state: MinimapState, x: (ns: number) => number): void {
  const { width, height } = state;
  const colours = inkOf(state.dark);
  const x0 = Math.max(0, Math.min(width - 3, x(state.span.from)));
  const x1 = Math.min(width, Math.max(x(state.span.to), x0 + 3));
  context.globalAlpha = 0.62;
  context.fillStyle = colours.surface;
  context.fillRect(0, 0, x0, height);
  context.fillRect(x1, 0, width - x1, height);
  context.globalAlpha = 1;
  context.strokeStyle = colours.accent;
  context.lineWidth = 1.5;
  context.strokeRect(x0 + 0.75, 0.75, Math.max(1.5, x1 - x0 - 1.5), height - 1.5);
  context.fillStyle = colours.accent;
  for (const edge of [x0, x1]) context.fillRect(edge - 1.5, height / 2 - 6, 3, 12);
}

function triangle(context: CanvasRenderingContext2D, x: number, y: number, size: number): void {
  context.beginPath();
  context.moveTo(x, y + size);
  context.lineTo(x - Math.abs(size), y);
  context.lineTo(x + Math.abs(size), y);
  context.fill();
}
