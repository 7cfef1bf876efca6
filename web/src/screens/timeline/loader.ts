// Loader: requests data for the window and the visible tracks, and aborts requests that are not
// needed.
import { effect, signal } from "@preact/signals";

import type { Chunk } from "../../canvas/chunk_cache";
import { satisfies, widenRequest, planRequests, type ChunkRequest, type TrackRequest } from "../../canvas/chunk_requests";
import { countersOf, emptyCounter } from "../../canvas/counters";
import { emptySlices, kindOf, slicesOf } from "../../canvas/slices";
import { linesIn, type Line } from "../../canvas/tree";
import type { Span } from "../../canvas/viewport";
import { fetchView } from "../../state/fetch";
import { dependOn } from "./depend";
import { timelineMetrics, recordTiming } from "./metrics";
import type { Model } from "./model";

/** Requests wait until the window has settled, up to a maximum delay. */
const DEBOUNCE_MS = 60;
const MAX_DELAY_MS = 220;
/** Delay of a retry after an error. */
const RETRY_MS = 4_000;
/** Lines this far out of view are loaded as well. */
const PRELOAD_PX = 300;

/** Minimum number of values for a curve. */
const MIN_VALUES = 3;

type Kind = "slices" | "counters";

interface PendingRequest {
  kind: Kind;
  request: ChunkRequest;
  abort: AbortController;
}

/** Message of the last failed request; null after a success. */
export const loadError = signal<string | null>(null);

/** Start loading and return a function that stops it. */
export function startLoader(model: Model): () => void {
  let pending: PendingRequest[] = [];
  let timer = 0;
  let waitingSince = 0;

  const schedule = (): void => {
    timelineMetrics.ready = false;
    const now = performance.now();
    if (timer === 0) waitingSince = now;
    else if (now - waitingSince > MAX_DELAY_MS - DEBOUNCE_MS) return; // a scheduled request is due soon
    clearTimeout(timer);
    timer = window.setTimeout(sendRequests, DEBOUNCE_MS);
  };

  const sendRequests = (): void => {
    timer = 0;
    const tracks = neededTracks(model);
    const { width } = model.size.peek();
    if (width === 0) return;
    const view = { span: model.span.peek(), pixels: width, end: model.bounds.peek().end };
    const needed = new Set<PendingRequest>();
    for (const kind of ["slices", "counters"] as const) {
      const chunks = model[kind];
      const isCovered = (track: string, span: Span, level: number): boolean => {
        if (chunks.covers(track, span, level)) return true;
        const matching = pending.find((pendingRequest) => pendingRequest.kind === kind && satisfies(pendingRequest.request, track, span, level));
        if (matching !== undefined) needed.add(matching);
        return matching !== undefined;
      };
      for (const request of planRequests(tracks[kind], view, isCovered)) {
        const newRequest = { kind, request, abort: new AbortController() };
        needed.add(newRequest);
        void loadChunk(newRequest);
      }
    }
    for (const pendingRequest of pending) if (!needed.has(pendingRequest)) pendingRequest.abort.abort();
    pending = [...needed];
    timelineMetrics.ready = pending.length === 0;
  };

  const loadChunk = async (newRequest: PendingRequest): Promise<void> => {
    const startTime = performance.now();
    const { request: { from, to, pixels, tracks }, kind, abort } = newRequest;
    // A curve has minimum and maximum per value, so half as many values as pixels suffice.
    const columns = kind === "counters" ? Math.ceil(pixels / 2) : pixels;
    const options = { from_ns: from, to_ns: to, pixels: columns, tracks: tracks.join(",") };
    try {
      const isIncomplete = kind === "slices"
        && storeSlices(model, newRequest.request, await fetchView("timeline-slices", options, abort.signal));
      const retry = kind === "counters"
        ? storeCounters(model, newRequest.request, await fetchView("timeline-counters", options, abort.signal))
        : null;
      recordTiming("queries", performance.now() - startTime);
      loadError.value = null;
      pending = pending.filter((pendingRequest) => pendingRequest !== newRequest);
      if (retry !== null) void loadChunk({ kind, request: retry, abort });
      if (isIncomplete) schedule();
      else if (pending.length === 0 && timer === 0) timelineMetrics.ready = true;
    } catch (error) {
      pending = pending.filter((pendingRequest) => pendingRequest !== newRequest);
      if (abort.signal.aborted) return;
      loadError.value = error instanceof Error ? error.message : String(error);
      window.setTimeout(schedule, RETRY_MS);
    }
  };

  const stop = effect(() => {
    dependOn(model.span, model.size, model.scrollTop, model.tree, model.pinned, model.alignment);
    schedule();
  });
  return () => {
    stop();
    clearTimeout(timer);
    for (const pendingRequest of pending) pendingRequest.abort.abort();
    pending = [];
  };
}

type View<Name extends "timeline-slices" | "timeline-counters"> = Awaited<ReturnType<typeof fetchView<Name>>>;

/** Store a response; true if it omitted tracks that must be requested again. */
function storeSlices(model: Model, request: ChunkRequest, view: View<"timeline-slices">): boolean {
  const slicesByTrack = slicesOf(view);
  const omitted = new Set(view.omitted_tracks);
  const grownRows = new Map<string, number>();
  for (const track of request.tracks) {
    if (omitted.has(track)) continue;
    const data = slicesByTrack.get(track) ?? emptySlices();
    model.slices.add(track, toChunk(request, data, data.complete));
    if (data.rowCount > rowCount(model, track)) grownRows.set(track, data.rowCount);
  }
  const kinds = new Set(model.kinds.peek());
  for (const slices of slicesByTrack.values()) slices.name.forEach((_, index) => kinds.add(kindOf(slices, index)));
  if (kinds.size > model.kinds.peek().size) model.kinds.value = kinds;
  if (grownRows.size > 0) model.rowCounts.value = new Map([...model.rowCounts.peek(), ...grownRows]);
  model.dataVersion.value += 1;
  return omitted.size > 0 && omitted.size < request.tracks.length;
}

/** Store a response; returns a wider request for counters with too few values. */
function storeCounters(model: Model, request: ChunkRequest, view: View<"timeline-counters">): ChunkRequest | null {
  const counters = countersOf(view);
  const sparse: string[] = [];
  for (const track of request.tracks) {
    const data = counters.get(track) ?? emptyCounter();
    const isSparse = data.start.length < MIN_VALUES;
    model.counters.add(track, { ...toChunk(request, data, false), sparse: isSparse });
    if (isSparse) sparse.push(track);
  }
  model.dataVersion.value += 1;
  const retry = widenRequest(request, sparse, model.bounds.peek().end);
  const missingTracks = retry?.tracks.filter((track) => !model.counters.covers(track, request, retry.level));
  return retry === null || missingTracks?.length === 0 ? null : { ...retry, tracks: missingTracks ?? [] };
}

function toChunk<T extends { bytes: number }>(request: ChunkRequest, data: T, complete: boolean): Chunk<T> {
  const { from, to, level } = request;
  return { from, to, level, complete, sparse: false, stale: false, bytes: data.bytes, data };
}

function rowCount(model: Model, track: string): number {
  const line = model.tree.peek().byId.get(track) ?? model.pinned.peek().byId.get(track);
  return Math.max(model.rowCounts.peek().get(track) ?? 0, line?.track?.row_count ?? 0);
}

/** Tracks in view, tracks about to scroll into view, and pinned tracks. */
function neededTracks(model: Model): Record<Kind, TrackRequest[]> {
  const top = model.scene.peek().scrollTop;
  const lines = [
    ...model.pinned.peek().lines,
    ...linesIn(model.tree.peek(), top - PRELOAD_PX, top + model.treeHeight.peek() + PRELOAD_PX),
  ];
  const needed: Record<Kind, TrackRequest[]> = { slices: [], counters: [] };
  for (const line of lines) {
    for (const track of tracksOf(line)) {
      const kind = track.kind === "counter" ? "counters" : "slices";
      needed[kind].push({ track: track.id, shift: model.shiftOf(track.id) });
    }
  }
  return needed;
}

function tracksOf(line: Line) {
  return line.track === null ? line.summary : [line.track];
}
