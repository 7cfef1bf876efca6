// Asks for what the window shows and the tracks in view need, and drops what is no longer wanted.
import { effect, signal } from "@preact/signals";

import { countersOf, noCounter } from "../../canvas/counters";
import { answers, farther, plan, type Ask, type Want } from "../../canvas/plan";
import type { Piece } from "../../canvas/pieces";
import { noSlices, slicesOf } from "../../canvas/slices";
import { linesIn, type Line } from "../../canvas/tree";
import type { Span } from "../../canvas/viewport";
import { fetchView } from "../../state/fetch";
import { dependOn } from "./depend";
import { measured, note } from "./measure";
import type { Model } from "./model";

/** Questions wait until the window has been still for so long, but never longer than that. */
const STILL_MS = 60;
const LONGEST_MS = 220;
/** After a refusal, nothing is asked again before the reader moves or this has passed. */
const RETRY_MS = 4_000;
/** Lines this far out of view are asked for as well. */
const AHEAD_PX = 300;

/** A line of fewer values cannot be seen to be one. */
const FEW_VALUES = 3;

type Kind = "slices" | "counters";

interface Asked {
  kind: Kind;
  ask: Ask;
  abort: AbortController;
}

/** What the server last refused with; null when it answers. */
export const refused = signal<string | null>(null);

/** Starts asking; the function that is returned ends it. */
export function startLoading(model: Model): () => void {
  let asked: Asked[] = [];
  let timer = 0;
  let waitingSince = 0;

  const schedule = (): void => {
    measured.ready = false;
    const now = performance.now();
    if (timer === 0) waitingSince = now;
    else if (now - waitingSince > LONGEST_MS - STILL_MS) return; // what is scheduled comes soon
    clearTimeout(timer);
    timer = window.setTimeout(ask, STILL_MS);
  };

  const ask = (): void => {
    timer = 0;
    const wants = wanted(model);
    const { width } = model.size.peek();
    if (width === 0) return;
    const view = { span: model.span.peek(), pixels: width, end: model.bounds.peek().end };
    const kept = new Set<Asked>();
    for (const kind of ["slices", "counters"] as const) {
      const pieces = model[kind];
      const covered = (track: string, span: Span, level: number): boolean => {
        if (pieces.covers(track, span, level)) return true;
        const coming = asked.find((each) => each.kind === kind && answers(each.ask, track, span, level));
        if (coming !== undefined) kept.add(coming);
        return coming !== undefined;
      };
      for (const each of plan(wants[kind], view, covered)) {
        const next = { kind, ask: each, abort: new AbortController() };
        kept.add(next);
        void fetchPiece(next);
      }
    }
    for (const each of asked) if (!kept.has(each)) each.abort.abort();
    asked = [...kept];
    measured.ready = asked.length === 0;
  };

  const fetchPiece = async (next: Asked): Promise<void> => {
    const begun = performance.now();
    const { ask: { from, to, pixels, tracks }, kind, abort } = next;
    // A curve needs a value for every second pixel: it has the extremes between them, too.
    const columns = kind === "counters" ? Math.ceil(pixels / 2) : pixels;
    const options = { from_ns: from, to_ns: to, pixels: columns, tracks: tracks.join(",") };
    try {
      const left = kind === "slices"
        && keepSlices(model, next.ask, await fetchView("timeline-slices", options, abort.signal));
      const wider = kind === "counters"
        ? keepCounters(model, next.ask, await fetchView("timeline-counters", options, abort.signal))
        : null;
      note("queries", performance.now() - begun);
      refused.value = null;
      asked = asked.filter((each) => each !== next);
      if (wider !== null) void fetchPiece({ kind, ask: wider, abort });
      if (left) schedule();
      else if (asked.length === 0 && timer === 0) measured.ready = true;
    } catch (error) {
      asked = asked.filter((each) => each !== next);
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
    for (const each of asked) each.abort.abort();
    asked = [];
  };
}

type View<Name extends "timeline-slices" | "timeline-counters"> = Awaited<ReturnType<typeof fetchView<Name>>>;

/** Keeps an answer; true where tracks were left out of it, to be asked for again. */
function keepSlices(model: Model, ask: Ask, view: View<"timeline-slices">): boolean {
  const found = slicesOf(view);
  const left = new Set(view.omitted_tracks);
  const taller = new Map<string, number>();
  for (const track of ask.tracks) {
    if (left.has(track)) continue;
    const data = found.get(track) ?? noSlices();
    model.slices.add(track, piece(ask, data, data.complete));
    if (data.rowCount > knownRows(model, track)) taller.set(track, data.rowCount);
  }
  if (taller.size > 0) model.rows.value = new Map([...model.rows.peek(), ...taller]);
  model.arrived.value += 1;
  return left.size > 0 && left.size < ask.tracks.length;
}

/** Keeps an answer; what to ask for where it has too few values to draw. */
function keepCounters(model: Model, ask: Ask, view: View<"timeline-counters">): Ask | null {
  const found = countersOf(view);
  const sparse: string[] = [];
  for (const track of ask.tracks) {
    const data = found.get(track) ?? noCounter();
    const few = data.start.length < FEW_VALUES;
    model.counters.add(track, { ...piece(ask, data, false), sparse: few });
    if (few) sparse.push(track);
  }
  model.arrived.value += 1;
  const wider = farther(ask, sparse, model.bounds.peek().end);
  const unknown = wider?.tracks.filter((track) => !model.counters.covers(track, ask, wider.level));
  return wider === null || unknown?.length === 0 ? null : { ...wider, tracks: unknown ?? [] };
}

function piece<T extends { bytes: number }>(ask: Ask, data: T, complete: boolean): Piece<T> {
  const { from, to, level } = ask;
  return { from, to, level, complete, sparse: false, stale: false, bytes: data.bytes, data };
}

function knownRows(model: Model, track: string): number {
  const line = model.tree.peek().byId.get(track) ?? model.pinned.peek().byId.get(track);
  return Math.max(model.rows.peek().get(track) ?? 0, line?.track?.row_count ?? 0);
}

/** Tracks in view, those about to come into view, and pinned ones. */
function wanted(model: Model): Record<Kind, Want[]> {
  const top = model.scene.peek().scroll;
  const lines = [
    ...model.pinned.peek().lines,
    ...linesIn(model.tree.peek(), top - AHEAD_PX, top + model.treeHeight.peek() + AHEAD_PX),
  ];
  const found: Record<Kind, Want[]> = { slices: [], counters: [] };
  for (const line of lines) {
    for (const track of tracksOf(line)) {
      const kind = track.kind === "counter" ? "counters" : "slices";
      found[kind].push({ track: track.id, shift: model.shiftOf(track.id) });
    }
  }
  return found;
}

function tracksOf(line: Line) {
  return line.track === null ? line.summary : [line.track];
}
