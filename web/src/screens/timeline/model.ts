// State of a timeline: data, view and selection.
import { computed, signal } from "@preact/signals";

import type { EventDetails, RankSteps, TimelineView } from "../../api/views";
import { shortId } from "../../base/short_id";
import { dark, printing } from "../../base/theme";
import { ChunkCache } from "../../canvas/chunk_cache";
import type { Counter } from "../../canvas/counters";
import { headerHeight, type SliceRef, type Scene } from "../../canvas/scene";
import type { Slices } from "../../canvas/slices";
import { pathTo, pinnedTree, treeOf, type Line, type Shape } from "../../canvas/tree";
import { clampSpan, fullSpan, type Bounds, type Span } from "../../canvas/viewport";
import { notes } from "../../state/notes";
import { colourBy, emptyRows } from "./choices";
import { alignRanks, trackPaths as pathsOf } from "./alignment";
import { dependOn } from "./depend";
import { arrowsOf } from "./links";
import * as urlState from "./url_state";

const SLICE_BYTES = 12 * 2 ** 20;
const COUNTER_BYTES = 4 * 2 ** 20;
/** Upper bound of the height of pinned tracks, as a share. */
const PINNED_SHARE = 0.5;

export type Model = ReturnType<typeof createModel>;

export function createModel(initialView: TimelineView) {
  const state = createState(initialView);
  const layout = createLayout(state);
  return { ...state, ...layout, scene: createScene(state, layout) };
}

type State = ReturnType<typeof createState>;
type Layout = ReturnType<typeof createLayout>;

/** Data and interaction state. */
function createState(initialView: TimelineView) {
  const view = signal(initialView);
  const bounds = computed<Bounds>(() => ({ end: Math.max(1, view.value.end_after_ns) }));
  const start = urlState.urlSpan.peek() ?? urlState.range.peek();
  /** Range that is being drawn with the pointer. */
  const draftRange = signal<Span | null>(null);
  return {
    view,
    bounds,
    span: signal<Span>(start === null ? fullSpan(bounds.peek()) : clampSpan(start, bounds.peek())),
    size: signal({ width: 0, height: 0 }),
    scrollTop: signal(0),
    /** Row counts of tracks that need more rows than the tree states. */
    rowCounts: signal<ReadonlyMap<string, number>>(new Map()),
    hovered: signal<SliceRef | null>(null),
    draftRange,
    range: computed(() => draftRange.value ?? urlState.range.value),
    selected: signal<SliceRef | null>(null),
    details: signal<EventDetails | null>(null),
    /** Keep the end of a growing run in view. */
    followsEnd: signal(false),
    /** Kinds of the slices that were loaded. */
    kinds: signal<ReadonlySet<string>>(new Set()),
    /** Incremented when new data can be drawn. */
    dataVersion: signal(0),
    slices: new ChunkCache<Slices>(SLICE_BYTES),
    counters: new ChunkCache<Counter>(COUNTER_BYTES),
  };
}

/** Steps, alignment of ranks, and the tree of tracks. */
function createLayout({ view, size, rowCounts }: State) {
  /** Steps below their rank; a single rank's steps are in the band already. */
  const steps = computed(() => {
    const all = view.value.steps;
    return new Map(all.length < 2 ? [] : all.map((rankSteps) => [rankSteps.group, rankSteps]));
  });
  const band = computed<RankSteps | null>(() => {
    const all = view.value.steps.filter((rankSteps) => rankSteps.numbers.length > 0);
    return all.find((rankSteps) => rankSteps.group === urlState.bandGroup.value) ?? all[0] ?? null;
  });
  const alignment = computed(() => {
    const step = urlState.alignedStep.value;
    return step === null ? null : alignRanks(view.value.groups, view.value.steps, step);
  });
  const shape = computed<Shape>(() => {
    const { defaultState, toggledIds } = urlState.collapseState.value;
    return {
      groups: view.value.groups,
      steps: steps.value,
      isToggled: (id) => toggledIds.size > 0 && toggledIds.has(shortId(id)),
      defaultState,
      filter: urlState.trackFilter.value,
      hidesEmpty: emptyRows.value === "hide",
      rowCounts: rowCounts.value,
    };
  });
  /** All groups of tracks; the critical path is only in view where it is pinned. */
  const groups = computed(() => {
    const path = view.value.critical_path;
    return path === null ? view.value.groups : [path, ...view.value.groups];
  });
  const tree = computed(() => treeOf(shape.value));
  const pinned = computed(() =>
    pinnedTree({ ...shape.value, groups: groups.value }, urlState.pinnedIds.value, PINNED_SHARE * size.value.height));
  /** Height of the scrolling part of the canvas. */
  const treeHeight = computed(() => {
    const headerPx = headerHeight({ band: band.value, findings: view.value.findings });
    return Math.max(0, size.value.height - headerPx - pinned.value.height);
  });
  /** Collapsed groups by the tracks that they hide, for the current tree. */
  const collapsedLines = computed(() => {
    dependOn(tree);
    return new Map<string, Line | null>();
  });
  return {
    steps,
    band,
    alignment,
    tree,
    pinned,
    trackPaths: computed(() => pathsOf(groups.value)),
    treeHeight,
    maxScroll: computed(() => Math.max(0, tree.value.height - treeHeight.value)),
    shiftOf: (id: string): number => alignment.peek()?.shifts.get(id) ?? 0,
    collapsedLineOf: (track: string): Line | null => {
      const cached = collapsedLines.peek().get(track);
      if (cached !== undefined) return cached;
      const path = pathTo(view.peek().groups, track);
      const visibleGroups = path.map((group) => tree.peek().byId.get(group.id)).filter((line) => line !== undefined);
      const collapsed = visibleGroups.find((line) => !line.isOpen) ?? null;
      collapsedLines.peek().set(track, collapsed);
      return collapsed;
    },
  };
}

/** Everything that is drawn. */
function createScene(state: State, { alignment, tree, pinned, maxScroll, band, shiftOf, collapsedLineOf }: Layout) {
  const { view, span, size, scrollTop, slices, counters, selected, hovered, range, details, dataVersion } = state;
  return computed<Scene>(() => {
    dependOn(dataVersion, alignment);
    const origin = urlState.isRulerRelative.value ? (selected.value?.after_ns ?? range.value?.from ?? 0) : 0;
    return {
      span: span.value,
      width: size.value.width,
      height: size.value.height,
      dark: dark.value && !printing.value,
      end: view.value.end_after_ns,
      tree: tree.value,
      pinned: pinned.value,
      scrollTop: Math.min(scrollTop.value, maxScroll.value),
      slices,
      counters,
      shiftOf,
      query: urlState.searchText.value.trim().toLowerCase(),
      selected: selected.value,
      hovered: hovered.value,
      range: range.value,
      arrows: arrowsOf(details.value),
      band: band.value,
      findings: view.value.findings,
      standing: view.value.standing,
      notes: notes.value.notes,
      colourBy: colourBy.value,
      rulerOrigin: selected.value !== null && origin !== 0 ? origin - shiftOf(selected.value.track) : origin,
      collapsedLineOf,
    };
  });
}
