// Time of each rank by class, from the start of the job to its end; a click or a drag selects a range.
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

import type { JobRank, JobTimeView } from "../api/views";
import { addListeners } from "../base/listeners";
import { fillOf, type Fill } from "../base/job_classes";
import { palette } from "../base/palette";
import { countOf, duration } from "../base/quantities";
import { dark } from "../base/theme";
import { rulerMarks } from "../canvas/ticks";
import { useWholeView } from "../state/fetch";
import { param, setParams } from "../state/url";
import { extentOf, pieceAt, rangeOf, stepPiece, type Extent } from "./job_pieces";

const MAX_RANKS = 16;
/** More ranks have low lanes. */
const MAX_HIGH_LANES = 4;
/** A shorter drag is a click. */
const MIN_DRAG_PX = 6;
const STRIPE_PX = 6;
/** Labels of later ticks have no room. */
const MAX_TICK_RATIO = 0.9;
const HINT = "Click a piece or drag across the strip to show its range on all screens; with the keyboard, arrow keys and Enter.";

const from = param("from");
const to = param("to");

/** The strip, or what takes its place until it is loaded and where there is none. */
export function JobStrip({ children }: { children: ComponentChildren }) {
  const { data } = useWholeView("job-time");
  return data === null || data.ranks.length === 0 ? <>{children}</> : <Strips payload={data} />;
}

function Strips({ payload }: { payload: JobTimeView }) {
  const [text, setText] = useState<string | null>(null);
  const { ranks, duration_ns } = payload;
  const isNamed = ranks.length > 1;
  return (
    <div class={ranks.length > MAX_HIGH_LANES ? "job-strip low" : "job-strip"} data-testid="job-strip">
      {ranks.slice(0, MAX_RANKS).map((rank) => (
        <div key={`${rank.name} ${rank.node}`} class={isNamed ? "job-lane named" : "job-lane"}>
          {isNamed ? <span class="muted" title={rank.node}>{rank.name}</span> : null}
          <Lane rank={rank} payload={payload} onText={setText} />
        </div>
      ))}
      <div class={isNamed ? "job-lane named" : "job-lane"} aria-hidden="true">
        {isNamed ? <span /> : null}
        <div class="job-ruler muted">
          {rulerMarks(0, duration_ns, 800).ticks.filter(({ ns }) => ns <= MAX_TICK_RATIO * duration_ns).map(({ ns, label }) => <span key={ns} style={{ left: `${(100 * ns) / duration_ns}%` }}>{label}</span>)}
        </div>
      </div>
      {ranks.length <= MAX_RANKS ? null : <p class="muted">{countOf(ranks.length - MAX_RANKS, "more rank")}.</p>}
      <p class="job-strip-text" data-testid="job-strip-text">{text ?? HINT}</p>
    </div>
  );
}

interface LaneProps {
  rank: JobRank;
  payload: JobTimeView;
  onText: (text: string | null) => void;
}

function Lane({ rank, payload, onText }: LaneProps) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [index, setIndex] = useState(0);
  const [drag, setDrag] = useState<Extent | null>(null);
  const anchor = useRef<number | null>(null);
  const { intervals } = rank;
  const { duration_ns, start_after_ns } = payload;
  const isDark = dark.value;
  useEffect(() => (canvas.current === null ? undefined : keepDrawn(canvas.current, rank, duration_ns, isDark)), [rank, duration_ns, isDark]);

  const describe = (position: number): string => describePiece(payload, rank, position);
  const timeAt = (event: PointerEvent): number => {
    const box = (event.currentTarget as HTMLElement).getBoundingClientRect();
    return Math.round((duration_ns * Math.min(Math.max(0, event.clientX - box.left), box.width)) / Math.max(1, box.width));
  };
  const select = ({ start_ns, end_ns }: Extent): void => { setParams(rangeOf(start_ns + start_after_ns, end_ns + start_after_ns)); };
  const focus = (position: number): void => {
    setIndex(position);
    onText(describe(position));
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    const next = stepPiece(event.key, index, intervals.length);
    if (next !== null) focus(next);
    else if (event.key === "Enter" || event.key === " ") select(extentOf(intervals[index]));
    else return;
    event.preventDefault();
  };
  const onDown = (event: PointerEvent): void => {
    if (event.button !== 0) return;
    (event.currentTarget as HTMLElement).setPointerCapture(event.pointerId);
    anchor.current = timeAt(event);
  };
  const onMove = (event: PointerEvent): void => {
    const time = timeAt(event);
    onText(describe(pieceAt(intervals, time)));
    if (anchor.current !== null) setDrag({ start_ns: Math.min(anchor.current, time), end_ns: Math.max(anchor.current, time) });
  };
  const onUp = (event: PointerEvent): void => {
    if (anchor.current === null) return;
    const width = (event.currentTarget as HTMLElement).clientWidth;
    const isDrag = drag !== null && drag.end_ns - drag.start_ns >= (MIN_DRAG_PX * duration_ns) / Math.max(1, width);
    const position = pieceAt(intervals, anchor.current);
    stopDrag();
    if (!isDrag) focus(position);
    select(isDrag ? drag : extentOf(intervals[position]));
  };
  const stopDrag = (): void => {
    anchor.current = null;
    setDrag(null);
  };
  const band = drag ?? selectedExtent(start_after_ns, duration_ns);
  return (
    <div
      class="job-pieces"
      role="slider"
      tabIndex={0}
      aria-label={`Time of ${rank.name} by class`}
      aria-valuemin={0}
      aria-valuemax={Math.max(0, intervals.length - 1)}
      aria-valuenow={index}
      aria-valuetext={describe(index)}
      onKeyDown={onKeyDown}
      onFocus={() => { onText(describe(index)); }}
      onBlur={() => { onText(null); }}
      onPointerDown={onDown}
      onPointerMove={onMove}
      onPointerUp={onUp}
      onPointerCancel={stopDrag}
      onPointerLeave={() => { onText(null); }}
    >
      <canvas ref={canvas} aria-hidden="true" />
      {band === null ? null : (
        <i class="job-band" style={{ left: `${(100 * band.start_ns) / duration_ns}%`, width: `${(100 * (band.end_ns - band.start_ns)) / duration_ns}%` }} />
      )}
    </div>
  );
}

/** Range that all screens show, on the clock of the job; null without one. */
function selectedExtent(start_after_ns: number, duration_ns: number): Extent | null {
  if (from.value === null && to.value === null) return null;
  const [start, end] = [Number(from.value ?? 0), to.value === null ? Infinity : Number(to.value)];
  if (Number.isNaN(start) || Number.isNaN(end)) return null; // as a user typed it, such as 12.5s
  return { start_ns: Math.max(0, start - start_after_ns), end_ns: Math.min(duration_ns, end - start_after_ns) };
}

function describePiece({ classes }: JobTimeView, rank: JobRank, position: number): string {
  const piece = rank.intervals[position];
  if (piece === undefined) return "";
  const entry = classes.find(({ key }) => key === piece.key);
  const [first] = entry?.functions ?? [];
  const file = first?.file.split("/").pop() ?? "";
  const location = file === "" ? "" : ` (${file}${first?.line == null ? "" : `:${first.line}`})`;
  const mainFunction = first === undefined || piece.key === "steps" ? "" : `; mostly ${first.function}${location}`;
  const end_ns = piece.start_ns + piece.duration_ns;
  return `${rank.name}, ${entry?.title ?? piece.key}: ${duration(piece.duration_ns)}, from ${duration(piece.start_ns)} to ${duration(end_ns)}${mainFunction}`;
}

/** Draw the pieces of a rank, again whenever the canvas changes its size; returns a function that stops it. */
function keepDrawn(canvas: HTMLCanvasElement, rank: JobRank, duration_ns: number, isDark: boolean): () => void {
  const draw = (): void => { drawPieces(canvas, rank, duration_ns, isDark); };
  const observer = new ResizeObserver(draw);
  observer.observe(canvas);
  const detach = addListeners(window, { resize: draw }); // also when only the density of pixels changes
  return () => {
    observer.disconnect();
    detach();
  };
}

function drawPieces(canvas: HTMLCanvasElement, { intervals }: JobRank, duration_ns: number, isDark: boolean): void {
  const context = canvas.getContext("2d");
  if (context === null) return;
  const colours = palette(isDark);
  const density = window.devicePixelRatio;
  const [width, height] = [canvas.clientWidth * density, canvas.clientHeight * density];
  canvas.width = Math.max(1, Math.round(width));
  canvas.height = Math.round(height);
  for (const { key, start_ns, duration_ns: length_ns } of intervals) {
    const x = (width * start_ns) / duration_ns;
    context.fillStyle = styleOf(context, fillOf(key, colours), density);
    context.fillRect(x, 0, Math.max((width * length_ns) / duration_ns, density / 2), height);
  }
}

function styleOf(context: CanvasRenderingContext2D, { colour, stripe }: Fill, density: number): string | CanvasPattern {
  if (stripe === null) return colour;
  const size = Math.round(STRIPE_PX * density);
  const tile = document.createElement("canvas");
  tile.width = tile.height = size;
  const brush = tile.getContext("2d");
  if (brush === null) return colour;
  brush.fillStyle = colour;
  brush.fillRect(0, 0, size, size);
  brush.strokeStyle = stripe;
  brush.lineWidth = size / 4;
  for (const offset of [-size, 0, size]) {
    brush.beginPath();
    brush.moveTo(offset - 1, size + 1);
    brush.lineTo(offset + size + 1, -1);
    brush.stroke();
  }
  return context.createPattern(tile, "repeat") ?? colour;
}
