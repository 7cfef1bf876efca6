// Minimap above the timeline: the whole run with the window on it.
import { effect, signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";

import type { Track } from "../../api/views";
import { addListeners } from "../../base/listeners";
import { paintMinimap, type MinimapState } from "../../canvas/minimap";
import { slicesOf, type Slices } from "../../canvas/slices";
import { summaryTracks } from "../../canvas/tree";
import { clampSpan, widthOf, type Span } from "../../canvas/viewport";
import { fetchView } from "../../state/fetch";
import type { Commands } from "./commands";
import type { Model } from "./model";
import type { Search } from "./search";

const HEIGHT_PX = 44;
const MAX_TRACKS = 8;
const PIXELS = 700;
/** Distance from an edge of the window at which dragging resizes it. */
const EDGE_PX = 6;

interface Props {
  model: Model;
  commands: Commands;
  search: Search;
}

export function Minimap({ model, commands, search }: Props) {
  const canvasRef = useRef<HTMLCanvasElement>(null);
  useEffect(() => {
    const canvas = canvasRef.current;
    if (canvas === null) return undefined;
    return mountMinimap(canvas, model, commands, search);
  }, [model, commands, search]);
  return (
    <canvas
      ref={canvasRef}
      class="tl-minimap"
      role="img"
      aria-label="Minimap of the full run with the visible window"
      data-testid="timeline-minimap"
      style={{ height: `${HEIGHT_PX}px` }}
    />
  );
}

function mountMinimap(canvas: HTMLCanvasElement, model: Model, commands: Commands, search: Search): () => void {
  const context = canvas.getContext("2d");
  const tracks = signal<Slices[]>([]);
  const size = signal(canvas.clientWidth);
  let frame = 0;
  const state = (): MinimapState => {
    const scene = model.scene.value;
    return {
      width: size.value,
      height: HEIGHT_PX,
      end: model.bounds.value.end,
      dark: scene.dark,
      span: scene.span,
      range: scene.range,
      tracks: tracks.value,
      colourBy: scene.colourBy,
      outliers: outlierTimes(model),
      findings: scene.findings,
      matches: search.results.value?.matches.map((match) => match.after_ns) ?? [],
      selected: scene.selected,
    };
  };
  const stopDrawing = effect(() => {
    const view = state();
    cancelAnimationFrame(frame);
    frame = requestAnimationFrame(() => {
      const ratio = window.devicePixelRatio;
      canvas.width = Math.max(1, Math.round(view.width * ratio));
      canvas.height = Math.round(HEIGHT_PX * ratio);
      context?.setTransform(ratio, 0, 0, ratio, 0, 0);
      if (context !== null) paintMinimap(context, view);
    });
  });
  const stopLoading = loadOverview(model, tracks);
  const resizing = new ResizeObserver(() => { size.value = canvas.clientWidth; });
  resizing.observe(canvas);
  const stopBrush = bindBrush(canvas, model, commands);
  return () => {
    stopDrawing();
    stopLoading();
    stopBrush();
    resizing.disconnect();
    cancelAnimationFrame(frame);
  };
}

/** Load slices of the whole run for the most representative tracks; again when it has grown by a
 * tenth. */
function loadOverview(model: Model, tracks: { value: Slices[] }): () => void {
  let loadedEnd = 0;
  let abort = new AbortController();
  const stop = effect(() => {
    const { end } = model.bounds.value;
    if (loadedEnd > 0 && end < 1.1 * loadedEnd && end >= loadedEnd) return;
    loadedEnd = end;
    const tracksToLoad = overviewTracks(model);
    abort.abort();
    abort = new AbortController();
    if (tracksToLoad.length === 0) return;
    const ids = tracksToLoad.map((track) => track.id);
    fetchView("timeline-slices", { from_ns: 0, to_ns: end, pixels: PIXELS, tracks: ids.join(",") }, abort.signal).then(
      (view) => { tracks.value = [...slicesOf(view).values()]; },
      () => { loadedEnd = 0; }, // the main view reports the error; this is retried with it
    );
  });
  return () => {
    stop();
    abort.abort();
  };
}

function overviewTracks(model: Model): Track[] {
  const processes = model.view.value.groups.flatMap((group) => group.kind === "node" ? group.groups : [group]);
  const perProcess = Math.max(1, Math.floor(MAX_TRACKS / Math.max(1, processes.length)));
  return processes.slice(0, MAX_TRACKS).flatMap((group) => summaryTracks(group, perProcess)).slice(0, MAX_TRACKS);
}

function outlierTimes(model: Model): number[] {
  const steps = model.band.value;
  if (steps === null) return [];
  const indexByNumber = new Map(steps.numbers.map((number, index) => [number, index]));
  return steps.outliers.slice(0, 500).map((number) => steps.after_ns[indexByNumber.get(number) ?? -1] ?? 0);
}

/** Dragging the window moves it, dragging an edge resizes it, elsewhere it draws a new one. */
function bindBrush(canvas: HTMLCanvasElement, model: Model, commands: Commands): () => void {
  const time = (x: number): number => (x / Math.max(1, canvas.clientWidth)) * model.bounds.peek().end;
  const pixel = (ns: number): number => (ns / model.bounds.peek().end) * canvas.clientWidth;
  let drag: ((x: number) => Span) | null = null;
  let moved = false;
  const start = (event: PointerEvent): void => {
    if (event.button !== 0) return;
    canvas.setPointerCapture(event.pointerId);
    const x = event.offsetX;
    const current = model.span.peek();
    const at = time(x);
    moved = false;
    const [x0, x1] = [pixel(current.from), pixel(current.to)];
    if (x1 - x0 > 3 * EDGE_PX && Math.abs(x - x0) <= EDGE_PX) drag = (to) => ({ from: Math.min(time(to), current.to - 1), to: current.to });
    else if (x1 - x0 > 3 * EDGE_PX && Math.abs(x - x1) <= EDGE_PX) drag = (to) => ({ from: current.from, to: Math.max(time(to), current.from + 1) });
    else if (x > x0 && x < x1 && x1 - x0 < 0.95 * canvas.clientWidth) {
      drag = (to) => ({ from: current.from + time(to) - at, to: current.to + time(to) - at });
    } else drag = (to) => ({ from: Math.min(at, time(to)), to: Math.max(at, time(to)) });
  };
  const move = (event: PointerEvent): void => {
    if (drag === null) return;
    moved = true;
    model.span.value = clampSpan(drag(event.offsetX), model.bounds.peek());
  };
  const end = (event: PointerEvent): void => {
    if (drag === null) return;
    drag = null;
    if (moved || event.type !== "pointerup") return;
    const current = model.span.peek();
    const from = time(event.offsetX) - widthOf(current) / 2;
    commands.animateTo(clampSpan({ from, to: from + widthOf(current) }, model.bounds.peek()));
  };
  return addListeners(canvas, { pointerdown: start, pointermove: move, pointerup: end, pointercancel: end });
}
