// Commands of the timeline, independent of key, button or pointer.
import type { RankSteps } from "../../api/views";
import { shortId } from "../../base/short_id";
import type { SliceRef } from "../../canvas/scene";
import type { Line } from "../../canvas/tree";
import { firstStepEndingAfter } from "../../canvas/paint_steps";
import { spanAround, panSpan, revealRange, fullSpan, widthOf, zoomSpan, type Span } from "../../canvas/viewport";
import { ViewAnimator } from "../../canvas/view_animator";
import * as address from "./url_state";
import { stepStart } from "./alignment";
import type { Model } from "./model";
import { selectNeighbour, selectInOtherRow } from "./slice_navigation";
import { nextOutlier } from "./steps";

const REDUCED_MOTION = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
/** Margin of a step that is jumped to: it takes about a third of the width. */
const STEP_MARGIN = 0.6;

export type Commands = ReturnType<typeof createCommands>;

export function createCommands(model: Model) {
  /** Position of the pointer on the canvas, or null. */
  let pointer: number | null = null;
  const motion = new ViewAnimator(
    {
      read: () => model.span.peek(),
      write: (span) => { model.span.value = span; },
      bounds: () => model.bounds.peek(),
      focus: () => pointer === null ? 0.5 : pointer / Math.max(1, model.size.peek().width),
    },
    REDUCED_MOTION,
  );
  const bounds = () => model.bounds.peek();
  const animateTo = (span: Span): void => { motion.animateTo(span); };

  const scrollTo = (y: number): void => {
    model.scrollTop.value = Math.max(0, Math.min(model.maxScroll.peek(), y));
  };

  /** Scroll to a row of a track, opening the groups around it. */
  const scrollToRow = (track: string, row: number): void => {
    const collapsedLine = model.standIn(track);
    if (collapsedLine !== null) openAround(model, track);
    const line = model.tree.peek().byId.get(track);
    if (line === undefined || model.pinned.peek().byId.has(track)) return;
    const top = line.y + row * line.rowPx;
    const room = model.treeHeight.peek();
    const now = Math.min(model.scrollTop.peek(), model.maxScroll.peek());
    if (top < now + 8) scrollTo(top - room / 3);
    else if (top + line.rowPx > now + room - 8) scrollTo(top - (2 * room) / 3);
  };

  /** Scroll to a line of the tree. */
  const scrollToLine = (line: Line): void => {
    const now = Math.min(model.scrollTop.peek(), model.maxScroll.peek());
    const room = model.treeHeight.peek();
    if (line.y < now) scrollTo(line.y);
    else if (line.y + line.height > now + room) scrollTo(line.y + Math.min(line.height, room) - room);
  };

  const drawnSpan = (slice: SliceRef): Span => {
    const from = slice.after_ns - model.shiftOf(slice.track);
    return { from, to: from + slice.duration_ns };
  };

  const selectSlice = (slice: SliceRef | null): void => {
    model.selected.value = slice;
    if (slice !== null && slice.event < 0) address.setSelected(null, 0);
    else address.setSelected(slice?.track ?? null, slice?.event ?? 0);
  };

  /** Select a slice anywhere in the run, and bring it into view. */
  const showSlice = (slice: SliceRef): void => {
    selectSlice(slice);
    scrollToRow(slice.track, slice.row);
    const shown = drawnSpan(slice);
    const span = model.span.peek();
    const pixels = (widthOf(shown) / widthOf(span)) * model.size.peek().width;
    // Zoom in on slices that would be too thin to see.
    animateTo(pixels < 2 && slice.duration_ns > 0
      ? spanAround(shown, bounds(), 20)
      : revealRange(span, shown, bounds()));
  };

  const zoomTo = (slice: SliceRef): void => { animateTo(spanAround(drawnSpan(slice), bounds())); };

  const showStep = (steps: RankSteps, number: number): boolean => {
    const start = stepStart(steps, number);
    if (start === null) return false;
    const from = start - model.shiftOf(steps.group);
    const durationNs = steps.duration_ns[steps.numbers.indexOf(number)] ?? 0;
    animateTo(spanAround({ from, to: from + durationNs }, bounds(), STEP_MARGIN));
    return true;
  };

  return {
    animateTo,
    scrollTo,
    scrollToRow,
    scrollToLine,
    selectSlice,
    showSlice,
    zoomTo,
    startMoving: (drive: Parameters<ViewAnimator["startMoving"]>[0]) => { motion.startMoving(drive); },
    stopMoving: (drive: Parameters<ViewAnimator["stopMoving"]>[0]) => { motion.stopMoving(drive); },
    setPointer: (x: number | null): void => { pointer = x; },
    zoom: (factor: number, x: number): void => {
      motion.cancel();
      const share = x / Math.max(1, model.size.peek().width);
      model.span.value = zoomSpan(model.span.peek(), factor, share, bounds());
    },
    pan: (dx: number, dy: number): void => {
      motion.cancel();
      const span = model.span.peek();
      const perPixel = widthOf(span) / Math.max(1, model.size.peek().width);
      if (dx !== 0) model.span.value = panSpan(span, -dx * perPixel, bounds());
      if (dy !== 0) scrollTo(Math.min(model.scrollTop.peek(), model.maxScroll.peek()) - dy);
    },
    showFullRun: (): void => { animateTo(fullSpan(bounds())); },
    /** Zoom to the selected slice, else to the range. */
    zoomToSelection: (): void => {
      const slice = model.selected.peek();
      const range = model.range.peek();
      if (slice !== null) zoomTo(slice);
      else if (range !== null) animateTo(spanAround(range, bounds(), 0.05));
    },
    showStep,
    /** Number of the step at the centre of the window, or null. */
    stepInView: (): number | null => {
      const steps = model.band.peek();
      if (steps === null) return null;
      const span = model.span.peek();
      const middle = (span.from + span.to) / 2 + model.shiftOf(steps.group);
      return steps.numbers[Math.min(firstStepEndingAfter(steps, middle), steps.numbers.length - 1)] ?? null;
    },
    /** Jump to a step of the rank in the band; false if it does not have this step. */
    jumpToStep: (number: number): boolean => {
      const steps = model.band.peek();
      return steps !== null && showStep(steps, number);
    },
    /** Jump to the next or previous outlier of that rank, with wraparound. */
    jumpToOutlier: (by: 1 | -1): void => {
      const steps = model.band.peek();
      if (steps === null) return;
      const span = model.span.peek();
      const middle = (span.from + span.to) / 2 + model.shiftOf(steps.group);
      const outlier = nextOutlier(steps, middle, by) ?? nextOutlier(steps, by > 0 ? -1 : Infinity, by);
      if (outlier !== null) showStep(steps, outlier);
    },
    followEnd: (): void => {
      const wide = widthOf(model.span.peek());
      const { end } = bounds();
      model.span.value = panSpan({ from: end - 0.95 * wide, to: end + 0.05 * wide }, 0, bounds());
    },
    selectNeighbour: (by: 1 | -1): void => { selectNeighbour(model, by, showSlice); },
    selectInOtherRow: (by: 1 | -1): void => { selectInOtherRow(model, by, showSlice); },
  };
}

/** Open all groups around a track. */
function openAround(model: Model, track: string): void {
  const { defaultState: initially, toggledIds: toggled } = address.collapseState.peek();
  const next = new Set(toggled);
  // Opening a group may reveal another collapsed one: repeat up to the nesting depth.
  for (let turn = 0; turn < 20; turn++) {
    const closed = model.standIn(track);
    if (closed === null) return;
    const id = shortId(closed.id);
    if (!next.delete(id)) next.add(id);
    address.setCollapseState({ defaultState: initially, toggledIds: new Set(next) });
  }
}
