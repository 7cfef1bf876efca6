// Asks for what the window shows and the tracks in view need, and drops what is no longer wanted.
import { effect, signal } from "@preact/signals";

import { countersOf, emptyCounter } from "../../canvas/counters";
import { satisfies, widenRequest, planRequests, type ChunkRequest, type TrackRequest } from "../../canvas/plan";
import type { Chunk } from "../../canvas/pieces";
import { emptySlices, slicesOf } from "../../canvas/slices";
import { linesIn, type Line } from "../../canvas/tree";
import type { Span } from "../../canvas/viewport";
import { fetchView } from "../../state/fetch";
import { dependOn } from "./depend";
import { measured, note } from "./measure";
import type { Model } from "./model";

/** Questions wait until the window has been still for so long, but never longer than that. */
const STILL_MS = 60;
const MAX_DELAY_MS = 220;
/** After a refusal, nothing is asked again before the reader moves or this has passed. */
const RETRY_MS = 4_000;
/** Lines this far out of view are asked for as well. */
const AHEAD_PX = 300;

/** A line of fewer values cannot be seen to be one. */
const FEW_VALUES = 3;

type Kind = "slices" | "counters";

interface Asked {
  kind: Kind;
  ask: ChunkRequest;
  abort: AbortController;
}

/** What the server last refused with; null when it answers. */
export const refused = signal<string | null>(null);

/** Starts asking; the function that is returned ends it. */
export function startLoading(model: Model): () => void {
  let pending: Asked[] = [];
  let timer = 0;
  let waitingSince = 0;

  const schedule = (): void => {
    measured.ready = false;
    const now = performance.now();
    if (timer === 0) waitingSince = now;
    else if (now - waitingSince > MAX_DELAY_MS - STILL_MS) return; // what is scheduled comes soon
    clearTimeout(timer);
    timer = window.setTimeout(ask, STILL_MS);
  };

  const ask = (): void => {
    timer = 0;
    const wants = neededTracks(model);
    const { width } = model.size.peek();
    if (width === 0) return;
    const view = { span: model.span.peek(), pixels: width, end: model.bounds.peek().end };
    const needed = new Set<Asked>();
    for (const kind of ["slices", "counters"] as const) {
      const pieces = model[kind];
      const covered = (track: string, span: Span, level: number): boolean => {
        if (pieces.covers(track, span, level)) return true;
        const coming = pending.find((request) => request.kind === kind && satisfies(request.ask, track, span, level));
        if (coming !== undefined) needed.add(coming);
        return coming !== undefined;
      };
      for (const chunk of planRequests(wants[kind], view, covered)) {
        const next = { kind, ask: chunk, abort: new AbortController() };
        needed.add(next);
        void fetchPiece(next);
      }
    }
    for (const request of pending) if (!needed.has(request)) request.abort.abort();
    pending = [...needed];
    measured.ready = pending.length === 0;
  };

  const fetchPiece = async (next: Asked): Promise<void> => {
    const startTime = performance.now();
    const { ask: { from, to, pixels, tracks }, kind, abort } = next;
    // A curve needs a value for every second pixel: it has the extremes between them, too.
    const columns = kind === "counters" ? Math.ceil(pixels / 2) : pixels;
    const options = { from_ns: from, to_ns: to, pixels: columns, tracks: tracks.join(",") };
    try {
      const isIncomplete = kind === "slices"
        && keepSlices(model, next.ask, await fetchView("timeline-slices", options, abort.signal));
      const wider = kind === "counters"
        ? keepCounters(model, next.ask, await fetchView("timeline-counters", options, abort.signal))
        : null;
      note("queries", performance.now() - startTime);
      refused.value = null;
      pending = pending.filter((request) => request !== next);
      if (wider !== null) void fetchPiece({ kind, ask: wider, abort });
      if (isIncomplete) schedule();
      else if (pending.length === 0 && timer === 0) measured.ready = true;
    } catch (error) {
      pending = pending.filter((request) => request !== next);
      if (abort.signal.aborted) return;
      refused.value = error instanceof Error ? error.message : String(error);
      window.setTimeout(schedule, RETRY_MS);
    }
  };

  const stop = effect(() => {
    dependOn(model.span, model.size, model.scroll, model.tree, model.pinned, model.aligned);
    schedule();
  });
  return () => {
    stop();
    clearTimeout(timer);
    for (const request of pending) request.abort.abort();
    pending = [];
  };
}

type View<Name extends "timeline-slices" | "timeline-counters"> = Awaited<ReturnType<typeof fetchView<Name>>>;

/** Keeps an answer; true where tracks were left out of it, to be asked for again. */
function keepSlices(model: Model, ask: ChunkRequest, view: View<"timeline-slices">): boolean {
  const slicesByTrack = slicesOf(view);
  const omitted = new Set(view.omitted_tracks);
  const taller = new Map<string, number>();
  for (const track of ask.tracks) {
    if (omitted.has(track)) continue;
    const data = slicesByTrack.get(track) ?? emptySlices();
    model.slices.add(track, piece(ask, data, data.complete));
    if (data.rowCount > knownRows(model, track)) taller.set(track, data.rowCount);
  }
  if (taller.size > 0) model.rows.value = new Map([...model.rows.peek(), ...taller]);
  model.arrived.value += 1;
  return omitted.size > 0 && omitted.size < ask.tracks.length;
}

/** Keeps an answer; what to ask for where it has too few values to draw. */
function keepCounters(model: Model, ask: ChunkRequest, view: View<"timeline-counters">): ChunkRequest | null {
  const counters = countersOf(view);
  const sparse: string[] = [];
  for (const track of ask.tracks) {
    const data = counters.get(track) ?? emptyCounter();
    const isSparse = data.start.length < FEW_VALUES;
    model.counters.add(track, { ...piece(ask, data, false), sparse: isSparse });
    if (isSparse) sparse.push(track);
  }
  model.arrived.value += 1;
  const wider = widenRequest(ask, sparse, model.bounds.peek().end);
  const unknown = wider?.tracks.filter((track) => !model.counters.covers(track, ask, wider.level));
  return wider === null || unknown?.length === 0 ? null : { ...wider, tracks: unknown ?? [] };
}

function piece<T extends { bytes: number }>(ask: ChunkRequest, data: T, complete: boolean): Chunk<T> {
  const { from, to, level } = ask;
  return { from, to, level, complete, sparse: false, stale: false, bytes: data.bytes, data };
}

function knownRows(model: Model, track: string): number {
  const line = model.tree.peek().byId.get(track) ?? model.pinned.peek().byId.get(track);
  return Math.max(model.rows.peek().get(track) ?? 0, line?.track?.row_count ?? 0);
}

/** Tracks in view, those about to come into view, and pinned ones. */
function neededTracks(model: Model): Record<Kind, TrackRequest[]> {
  const top = model.scene.peek().scrollTop;
  const lines = [
    ...model.pinned.peek().lines,
    ...linesIn(model.tree.peek(), top - AHEAD_PX, top + model.treeHeight.peek() + AHEAD_PX),
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
