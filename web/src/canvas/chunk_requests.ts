// Requests for the data that a window and its surroundings need.
import { levelOf, widthOf, type Span } from "./viewport";

export interface TrackRequest {
  track: string;
  /** Nanoseconds by which events are shifted on screen when ranks are aligned. */
  shift: number;
}

export interface ChunkRequest extends Span {
  level: number;
  pixels: number;
  tracks: string[];
}

/** Margin on each side, as a share of the window: what is requested, and what is required. */
const MARGIN = 0.5;
const REQUIRED_MARGIN = 0.2;
/** Tracks per request, to keep responses small and fast. */
const MAX_TRACKS = 40;

export interface View {
  span: Span;
  pixels: number;
  /** End of the recorded data. */
  end: number;
}

function widenSpan(span: Span, share: number, shift: number, end: number): Span {
  const extra = widthOf(span) * share;
  const from = Math.floor(Math.max(0, span.from - extra + shift));
  const to = Math.ceil(Math.min(end, span.to + extra + shift));
  return { from, to: Math.max(to, from + 1) };
}

/** Plan requests for tracks that are not covered, with a margin; tracks in view first. */
export function planRequests(
  tracksInView: readonly TrackRequest[],
  view: View,
  isCovered: (track: string, span: Span, level: number) => boolean,
): ChunkRequest[] {
  const level = levelOf(view.span, view.pixels);
  const byShift = new Map<number, string[]>();
  for (const { track, shift } of tracksInView) {
    const needed = widenSpan(view.span, REQUIRED_MARGIN, shift, view.end);
    if (needed.from >= view.end || isCovered(track, needed, level)) continue;
    const tracks = byShift.get(shift) ?? [];
    if (!tracks.includes(track)) tracks.push(track);
    byShift.set(shift, tracks);
  }
  const requests: ChunkRequest[] = [];
  for (const [shift, tracks] of byShift) {
    const span = widenSpan(view.span, MARGIN, shift, view.end);
    const pixels = Math.max(1, Math.ceil(widthOf(span) / 2 ** level));
    for (let offset = 0; offset < tracks.length; offset += MAX_TRACKS) {
      requests.push({ ...span, level, pixels, tracks: tracks.slice(offset, offset + MAX_TRACKS) });
    }
  }
  return requests;
}

/** Margin on each side in which samples of a machine are searched, however narrow the window. */
const WIDE_MARGIN_NS = 10e9;
const WIDE_PIXELS = 1_000;

/** Widen a request for counters with too few values in the window; null if it is wide enough already. */
export function widenRequest(request: ChunkRequest, tracks: string[], end: number): ChunkRequest | null {
  if (tracks.length === 0 || widthOf(request) > WIDE_MARGIN_NS) return null;
  const from = Math.max(0, request.from - WIDE_MARGIN_NS);
  const to = Math.max(from + 1, Math.min(end, request.to + WIDE_MARGIN_NS));
  return { from, to, level: levelOf({ from, to }, WIDE_PIXELS), pixels: WIDE_PIXELS, tracks };
}

/** Return true if a request in flight will cover an interval of a track. */
export function satisfies(request: ChunkRequest, track: string, span: Span, level: number): boolean {
  return (
    request.level === level &&
    request.from <= span.from &&
    request.to >= span.to &&
    request.tracks.includes(track)
  );
}
