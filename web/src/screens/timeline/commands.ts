// Commands of the timeline, independent of key, button or pointer.
import type { RankSteps } from "../../api/views";
import { shortId } from "../../base/short_id";
import type { SliceRef } from "../../canvas/scene";
import type { Line } from "../../canvas/tree";
import { firstStepEndingAfter } from "../../canvas/paint_steps";
import { spanAround, panSpan, revealRange, fullSpan, widthOf, zoomSpan, type Span } from "../../canvas/viewport";
import { ViewAnimator } from "../../canvas/view_animator";
import * as urlState from "./url_state";
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
  const animator = new ViewAnimator(
    {
      read: () => model.span.peek(),
      write: (span) => { model.span.value = span; },
      bounds: () => model.bounds.peek(),
      focus: () => pointer === null ? 0.5 : pointer / Math.max(1, model.size.peek().width),
    },
    REDUCED_MOTION,
  );
  const bounds = () => model.bounds.peek();
  const animateTo = (span: Span): void => { animator.animateTo(span); };

  const scrollTo = (y: number): void => {
    model.scrollTop.value = Math.max(0, Math.min(model.maxScroll.peek(), y));
  };

  /** Scroll to a row of a track, opening the groups around it. */
  const scrollToRow = (track: string, row: number): void => {
    const collapsedLine = model.collapsedLineOf(track);
    if (collapsedLine !== null) openGroupsAround(model, track);
    const line = model.tree.peek().byId.get(track);
    if (line === undefined || model.pinned.peek().byId.has(track)) return;
    const top = line.y + row * line.rowPx;
    const visibleHeight = model.treeHeight.peek();
    const scrollTop = Math.min(model.scrollTop.peek(), model.maxScroll.peek());
    if (top < scrollTop + 8) scrollTo(top - visibleHeight / 3);
    else if (top + line.rowPx > scrollTop + visibleHeight - 8) scrollTo(top - (2 * visibleHeight) / 3);
  };

  /** Scroll to a line of the tree. */
  const scrollToLine = (line: Line): void => {
    const scrollTop = Math.min(model.scrollTop.peek(), model.maxScroll.peek());
    const visibleHeight = model.treeHeight.peek();
    if (line.y < scrollTop) scrollTo(line.y);
    else if (line.y + line.height > scrollTop + visibleHeight) scrollTo(line.y + Math.min(line.height, visibleHeight) - visibleHeight);
  };

  const screenSpan = (slice: SliceRef): Span => {
    const from = slice.after_ns - model.shiftOf(slice.track);
    return { from, to: from + slice.duration_ns };
  };

  const selectSlice = (slice: SliceRef | null): void => {
    model.selected.value = slice;
    if (slice !== null && slice.event < 0) urlState.setSelected(null, 0);
    else urlState.setSelected(slice?.track ?? null, slice?.event ?? 0);
  };

  /** Select a slice anywhere in the run, and bring it into view. */
  const showSlice = (slice: SliceRef): void => {
    selectSlice(slice);
    scrollToRow(slice.track, slice.row);
    const visibleSpan = screenSpan(slice);
    const span = model.span.peek();
    const pixels = (widthOf(visibleSpan) / widthOf(span)) * model.size.peek().width;
    // Zoom in on slices that would be too thin to see.
    animateTo(pixels < 2 && slice.duration_ns > 0
      ? spanAround(visibleSpan, bounds(), 20)
      : revealRange(span, visibleSpan, bounds()));
  };

  const zoomTo = (slice: SliceRef): void => { animateTo(spanAround(screenSpan(slice), bounds())); };

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
    startMoving: (direction: Parameters<ViewAnimator["startMoving"]>[0]) => { animator.startMoving(direction); },
    stopMoving: (direction: Parameters<ViewAnimator["stopMoving"]>[0]) => { animator.stopMoving(direction); },
    setPointer: (x: number | null): void => { pointer = x; },
    zoom: (factor: number, x: number): void => {
      animator.cancel();
      const share = x / Math.max(1, model.size.peek().width);
      model.span.value = zoomSpan(model.span.peek(), factor, share, bounds());
    },
    pan: (dx: number, dy: number): void => {
      animator.cancel();
      const span = model.span.peek();
      const nsPerPixel = widthOf(span) / Math.max(1, model.size.peek().width);
      if (dx !== 0) model.span.value = panSpan(span, -dx * nsPerPixel, bounds());
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
      const centre = (span.from + span.to) / 2 + model.shiftOf(steps.group);
      return steps.numbers[Math.min(firstStepEndingAfter(steps, centre), steps.numbers.length - 1)] ?? null;
    },
    /** Jump to a step of the rank in the band; false if it does not have this step. */
    jumpToStep: (number: number): boolean => {
      const steps = model.band.peek();
      return steps !== null && showStep(steps, number);
    },
    /** Jump to the next or previous outlier of that rank, with wraparound. */
    jumpToOutlier: (direction: 1 | -1): void => {
      const steps = model.band.peek();
      if (steps === null) return;
      const span = model.span.peek();
      const centre = (span.from + span.to) / 2 + model.shiftOf(steps.group);
      const outlier = nextOutlier(steps, centre, direction) ?? nextOutlier(steps, direction > 0 ? -1 : Infinity, direction);
      if (outlier !== null) showStep(steps, outlier);
    },
    followEnd: (): void => {
      const spanWidth = widthOf(model.span.peek());
      const { end } = bounds();
      model.span.value = panSpan({ from: end - 0.95 * spanWidth, to: end + 0.05 * spanWidth }, 0, bounds());
    },
    selectNeighbour: (direction: 1 | -1): void => { selectNeighbour(model, direction, showSlice); },
    selectInOtherRow: (direction: 1 | -1): void => { selectInOtherRow(model, direction, showSlice); },
  };
}

/** Open all groups around a track. */
function openGroupsAround(model: Model, track: string): void {
  const { defaultState, toggledIds } = urlState.collapseState.peek();
  const next = new Set(toggledIds);
  // Opening a group may reveal another collapsed one: repeat up to the nesting depth.
  for (let depth = 0; depth < 20; depth++) {
    const collapsed = model.collapsedLineOf(track);
    if (collapsed === null) return;
    const id = shortId(collapsed.id);
    if (!next.delete(id)) next.add(id);
    urlState.setCollapseState({ defaultState, toggledIds: new Set(next) });
  }
}
