// State of a timeline: data, view and selection.
import { computed, signal } from "@preact/signals";

import type { RankSteps, SliceView, TimelineView } from "../../api/views";
import { shortId } from "../../base/short_id";
import { dark, printing } from "../../base/theme";
import type { Counter } from "../../canvas/counters";
import { ChunkCache } from "../../canvas/chunk_cache";
import { headerHeight, type SliceRef, type Scene } from "../../canvas/scene";
import type { Slices } from "../../canvas/slices";
import { pathTo, pinnedTree, treeOf, type Line, type Shape } from "../../canvas/tree";
import { clampSpan, fullSpan, type Bounds, type Span } from "../../canvas/viewport";
import * as urlState from "./url_state";
import { alignRanks, trackPaths as pathsOf } from "./alignment";
import { dependOn } from "./depend";
import { arrowsOf } from "./links";

const SLICE_BYTES = 12 * 2 ** 20;
const COUNTER_BYTES = 4 * 2 ** 20;
/** Upper bound of the height of pinned tracks, as a share. */
const PINNED_SHARE = 0.5;

export type Model = ReturnType<typeof createModel>;

export function createModel(initialView: TimelineView) {
  const view = signal(initialView);
  const bounds = computed<Bounds>(() => ({ end: Math.max(1, view.value.end_after_ns) }));
  const start = urlState.urlSpan.peek() ?? urlState.range.peek();
  const span = signal<Span>(start === null ? fullSpan(bounds.peek()) : clampSpan(start, bounds.peek()));
  const size = signal({ width: 0, height: 0 });
  const scrollTop = signal(0);
  /** Row counts of tracks that need more rows than the tree states. */
  const rowCounts = signal<ReadonlyMap<string, number>>(new Map());
  const hovered = signal<SliceRef | null>(null);
  /** Range that is being drawn with the pointer. */
  const draftRange = signal<Span | null>(null);
  const selected = signal<SliceRef | null>(null);
  const details = signal<SliceView | null>(null);
  /** Keep the end of a growing run in view. */
  const followsEnd = signal(false);
  /** Incremented when new data can be drawn. */
  const dataVersion = signal(0);
  const slices = new ChunkCache<Slices>(SLICE_BYTES);
  const counters = new ChunkCache<Counter>(COUNTER_BYTES);

  /** A single rank's steps are in the band already. */
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
      rowCounts: rowCounts.value,
    };
  });
  const tree = computed(() => treeOf(shape.value));
  const pinned = computed(() =>
    pinnedTree(shape.value, urlState.pinnedIds.value, PINNED_SHARE * size.value.height));
  const trackPaths = computed(() => pathsOf(view.value.groups));
  const range = computed(() => draftRange.value ?? urlState.range.value);
  /** Height of the scrolling part of the canvas. */
  const treeHeight = computed(() => {
    const head = headerHeight({ band: band.value, findings: view.value.findings });
    return Math.max(0, size.value.height - head - pinned.value.height);
  });
  const maxScroll = computed(() => Math.max(0, tree.value.height - treeHeight.value));

  const shiftOf = (id: string): number => alignment.peek()?.shifts.get(id) ?? 0;
  /** Collapsed groups by the tracks that they hide, for the current tree. */
  const collapsedLines = computed(() => {
    dependOn(tree);
    return new Map<string, Line | null>();
  });
  const collapsedLineOf = (track: string): Line | null => {
    const cached = collapsedLines.peek().get(track);
    if (cached !== undefined) return cached;
    const path = pathTo(view.peek().groups, track);
    const visibleGroups = path.map((group) => tree.peek().byId.get(group.id)).filter((line) => line !== undefined);
    const collapsed = visibleGroups.find((line) => !line.isOpen) ?? null;
    collapsedLines.peek().set(track, collapsed);
    return collapsed;
  };

  const scene = computed<Scene>(() => {
    dependOn(dataVersion, alignment);
    const zero = urlState.isRulerRelative.value ? (selected.value?.after_ns ?? range.value?.from ?? 0) : 0;
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
      rulerOrigin: selected.value !== null && zero !== 0 ? zero - shiftOf(selected.value.track) : zero,
      collapsedLineOf,
    };
  });

  return {
    view, bounds, span, size, scrollTop, rowCounts, hovered, draftRange, selected, details, followsEnd, dataVersion, slices,
    counters, steps, band, alignment, tree, pinned, trackPaths, range, treeHeight, maxScroll, scene, shiftOf,
    collapsedLineOf,
  };
}
