// Commands of the timeline, independent of key, button or pointer.
import type { RankSteps } from "../../api/views";
import { shortId } from "../../base/short_id";
import { firstStepEndingAfter } from "../../canvas/paint_steps";
import type { SliceRef } from "../../canvas/scene";
import type { Line } from "../../canvas/tree";
import { ViewAnimator } from "../../canvas/view_animator";
import { spanAround, panSpan, revealRange, fullSpan, widthOf, zoomSpan, type Span } from "../../canvas/viewport";
import { stepStart } from "./alignment";
import type { Model } from "./model";
import { selectNeighbour, selectInOtherRow } from "./slice_navigation";
import { nextOutlier } from "./steps";
import * as urlState from "./url_state";

const REDUCED_MOTION = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
/** Margin of a step that is jumped to: it takes about a third of the width. */
const STEP_MARGIN = 0.6;
/** Minimum distance of a row that is scrolled to from the edges. */
const ROW_MARGIN_PX = 8;

export type Commands = ReturnType<typeof createCommands>;

export function createCommands(model: Model) {
  const view = viewCommands(model);
  const scroll = scrollCommands(model);
  return { ...view, ...scroll, ...selectionCommands(model, view, scroll), ...stepCommands(model, view) };
}

type ViewCommands = ReturnType<typeof viewCommands>;
type ScrollCommands = ReturnType<typeof scrollCommands>;

const scrollTop = (model: Model): number => Math.min(model.scrollTop.peek(), model.maxScroll.peek());

function scrollTo(model: Model, y: number): void {
  model.scrollTop.value = Math.max(0, Math.min(model.maxScroll.peek(), y));
}

/** Zoom and pan. */
function viewCommands(model: Model) {
  /** Position of the pointer on the canvas, or null. */
  let pointer: number | null = null;
  const bounds = () => model.bounds.peek();
  const shareAt = (x: number): number => x / Math.max(1, model.size.peek().width);
  const animator = new ViewAnimator(
    {
      read: () => model.span.peek(),
      write: (span) => { model.span.value = span; },
      bounds,
      focus: () => (pointer === null ? 0.5 : shareAt(pointer)),
    },
    REDUCED_MOTION,
  );
  const animateTo = (span: Span): void => { animator.animateTo(span); };
  return {
    animateTo,
    startMoving: (direction: Parameters<ViewAnimator["startMoving"]>[0]) => { animator.startMoving(direction); },
    stopMoving: (direction: Parameters<ViewAnimator["stopMoving"]>[0]) => { animator.stopMoving(direction); },
    setPointer: (x: number | null): void => { pointer = x; },
    zoom: (factor: number, x: number): void => {
      animator.cancel();
      model.span.value = zoomSpan(model.span.peek(), factor, shareAt(x), bounds());
    },
    pan: (dx: number, dy: number): void => {
      animator.cancel();
      const span = model.span.peek();
      if (dx !== 0) model.span.value = panSpan(span, -shareAt(dx) * widthOf(span), bounds());
      if (dy !== 0) scrollTo(model, scrollTop(model) - dy);
    },
    showFullRun: (): void => { animateTo(fullSpan(bounds())); },
    followEnd: (): void => {
      const spanWidth = widthOf(model.span.peek());
      const { end } = bounds();
      model.span.value = panSpan({ from: end - 0.95 * spanWidth, to: end + 0.05 * spanWidth }, 0, bounds());
    },
  };
}

function scrollCommands(model: Model) {
  return {
    scrollTo: (y: number): void => { scrollTo(model, y); },
    /** Scroll to a row of a track, opening the groups around it. */
    scrollToRow: (track: string, row: number): void => {
      if (model.collapsedLineOf(track) !== null) openGroupsAround(model, track);
      const line = model.tree.peek().byId.get(track);
      if (line === undefined || model.pinned.peek().byId.has(track)) return;
      const y = line.y + row * line.rowPx;
      const [top, visibleHeight] = [scrollTop(model), model.treeHeight.peek()];
      if (y < top + ROW_MARGIN_PX) scrollTo(model, y - visibleHeight / 3);
      else if (y + line.rowPx > top + visibleHeight - ROW_MARGIN_PX) scrollTo(model, y - (2 * visibleHeight) / 3);
    },
    /** Scroll to a line of the tree. */
    scrollToLine: (line: Line): void => {
      const [top, visibleHeight] = [scrollTop(model), model.treeHeight.peek()];
      if (line.y < top) scrollTo(model, line.y);
      else if (line.y + line.height > top + visibleHeight) scrollTo(model, line.y + Math.min(line.height, visibleHeight) - visibleHeight);
    },
  };
}

function selectionCommands(model: Model, { animateTo }: ViewCommands, { scrollToRow }: ScrollCommands) {
  const bounds = () => model.bounds.peek();
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
    const sliceSpan = screenSpan(slice);
    const span = model.span.peek();
    const pixels = (widthOf(sliceSpan) / widthOf(span)) * model.size.peek().width;
    // Zoom in on slices that would be too thin to see.
    animateTo(pixels < 2 && slice.duration_ns > 0
      ? spanAround(sliceSpan, bounds(), 20)
      : revealRange(span, sliceSpan, bounds()));
  };
  const zoomTo = (slice: SliceRef): void => { animateTo(spanAround(screenSpan(slice), bounds())); };
  return {
    selectSlice,
    showSlice,
    zoomTo,
    /** Zoom to the selected slice, else to the range. */
    zoomToSelection: (): void => {
      const slice = model.selected.peek();
      const range = model.range.peek();
      if (slice !== null) zoomTo(slice);
      else if (range !== null) animateTo(spanAround(range, bounds(), 0.05));
    },
    selectNeighbour: (direction: 1 | -1): void => { selectNeighbour(model, direction, showSlice); },
    selectInOtherRow: (direction: 1 | -1): void => { selectInOtherRow(model, direction, showSlice); },
  };
}

/** Navigation by the steps of the rank in the band. */
function stepCommands(model: Model, { animateTo }: ViewCommands) {
  const showStep = (steps: RankSteps, number: number): boolean => {
    const start = stepStart(steps, number);
    if (start === null) return false;
    const from = start - model.shiftOf(steps.group);
    const durationNs = steps.duration_ns[steps.numbers.indexOf(number)] ?? 0;
    animateTo(spanAround({ from, to: from + durationNs }, model.bounds.peek(), STEP_MARGIN));
    return true;
  };
  /** Centre of the window, in the time of the rank. */
  const centre = (steps: RankSteps): number => {
    const span = model.span.peek();
    return (span.from + span.to) / 2 + model.shiftOf(steps.group);
  };
  return {
    showStep,
    /** Number of the step at the centre of the window, or null. */
    stepInView: (): number | null => {
      const steps = model.band.peek();
      if (steps === null) return null;
      return steps.numbers[Math.min(firstStepEndingAfter(steps, centre(steps)), steps.numbers.length - 1)] ?? null;
    },
    /** Jump to a step; false if the rank does not have it. */
    jumpToStep: (number: number): boolean => {
      const steps = model.band.peek();
      return steps !== null && showStep(steps, number);
    },
    /** Jump to the next or previous outlier, with wraparound. */
    jumpToOutlier: (direction: 1 | -1): void => {
      const steps = model.band.peek();
      if (steps === null) return;
      const outlier = nextOutlier(steps, centre(steps), direction) ?? nextOutlier(steps, direction > 0 ? -1 : Infinity, direction);
      if (outlier !== null) showStep(steps, outlier);
    },
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
