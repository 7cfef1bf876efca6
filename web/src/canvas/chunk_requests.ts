// What to ask the server for, so that the window and what lies around it can be drawn.
import { levelOf, widthOf, type Span } from "./viewport";

export interface TrackRequest {
  track: string;
  /** How far its times are moved on screen, for ranks that are aligned. */
  shift: number;
}

export interface ChunkRequest extends Span {
  level: number;
  pixels: number;
  tracks: string[];
}

/** Of the window's width, on each side: what is asked for, and what must be there. */
const MARGIN = 0.5;
const REQUIRED_MARGIN = 0.2;
/** Tracks in one question: answers stay small enough to come quickly. */
const MAX_TRACKS = 40;

export interface View {
  span: Span;
  pixels: number;
  /** End of what is recorded: nothing beyond is asked for. */
  end: number;
}

function widened(span: Span, share: number, shift: number, end: number): Span {
  const extra = widthOf(span) * share;
  const from = Math.floor(Math.max(0, span.from - extra + shift));
  const to = Math.ceil(Math.min(end, span.to + extra + shift));
  return { from, to: Math.max(to, from + 1) };
}

/** Questions for those tracks that are not covered, with a margin; those in view first. */
export function planRequests(
  tracksInView: readonly TrackRequest[],
  view: View,
  isCovered: (track: string, span: Span, level: number) => boolean,
): ChunkRequest[] {
  const level = levelOf(view.span, view.pixels);
  const byShift = new Map<number, string[]>();
  for (const { track, shift } of tracksInView) {
    const needed = widened(view.span, REQUIRED_MARGIN, shift, view.end);
    if (needed.from >= view.end || isCovered(track, needed, level)) continue;
    const tracks = byShift.get(shift) ?? [];
    if (!tracks.includes(track)) tracks.push(track);
    byShift.set(shift, tracks);
  }
  const requests: ChunkRequest[] = [];
  for (const [shift, tracks] of byShift) {
    const span = widened(view.span, MARGIN, shift, view.end);
    const pixels = Math.max(1, Math.ceil(widthOf(span) / 2 ** level));
    for (let at = 0; at < tracks.length; at += MAX_TRACKS) {
      requests.push({ ...span, level, pixels, tracks: tracks.slice(at, at + MAX_TRACKS) });
    }
  }
  return requests;
}

/** As far on each side as samples of a machine are found, however narrow the window is. */
const WIDE_MARGIN_NS = 10e9;
const WIDE_PIXELS = 1_000;

/** A question for counters that have hardly a value in a window; null where it was wide enough. */
export function widenRequest(ask: ChunkRequest, tracks: string[], end: number): ChunkRequest | null {
  if (tracks.length === 0 || widthOf(ask) > WIDE_MARGIN_NS) return null;
  const from = Math.max(0, ask.from - WIDE_MARGIN_NS);
  const to = Math.max(from + 1, Math.min(end, ask.to + WIDE_MARGIN_NS));
  return { from, to, level: levelOf({ from, to }, WIDE_PIXELS), pixels: WIDE_PIXELS, tracks };
}

/** Whether an answer that is on its way will cover a want. */
export function satisfies(ask: ChunkRequest, track: string, span: Span, level: number): boolean {
  return (
    ask.level === level &&
    ask.from <= span.from &&
    ask.to >= span.to &&
    ask.tracks.includes(track)
  );
}
