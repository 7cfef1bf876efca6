// The window of time on screen, in nanoseconds after the run's origin. Doubles count those exactly
// for a hundred days; pixels are made from differences to the window's start, so nothing jitters.

export interface Span {
  from: number;
  to: number;
}

/** What can be looked at, in nanoseconds; a margin shows that there is nothing beyond. */
export interface Bounds {
  end: number;
}

/** The narrowest window: a nanosecond is then some twenty pixels wide. */
export const NARROWEST_NS = 50;
const MARGIN = 0.02;
/** Beside a whole run. */
const ROOM = 0.006;

export function width(span: Span): number {
  return span.to - span.from;
}

/** A window of a usable width within the bounds; windows too wide show everything. */
export function clamped(span: Span, bounds: Bounds): Span {
  const end = Math.max(bounds.end, NARROWEST_NS);
  const margin = MARGIN * end;
  const widest = end + 2 * margin;
  const from = Number.isFinite(span.from) ? span.from : 0;
  const asked = Number.isFinite(span.to) ? span.to - from : end;
  const wide = Math.min(widest, Math.max(NARROWEST_NS, asked));
  // What is asked for too narrow or too wide keeps its middle.
  const middle = from + asked / 2;
  const start = wide === asked ? from : middle - wide / 2;
  // A narrow window needs little margin beyond the ends: half of itself.
  const slack = Math.min(margin, wide / 2);
  const first = Math.min(Math.max(start, -slack), end + slack - wide);
  const placed = wide >= end ? (end - wide) / 2 : first;
  return { from: placed, to: placed + wide };
}

/** Nearer (factor below 1) or farther, where the time under a share of the width stays. */
export function zoomed(span: Span, factor: number, share: number, bounds: Bounds): Span {
  const wide = Math.max(NARROWEST_NS, width(span) * factor);
  const fixed = span.from + width(span) * share;
  return clamped({ from: fixed - wide * share, to: fixed + wide * (1 - share) }, bounds);
}

export function panned(span: Span, byNs: number, bounds: Bounds): Span {
  return clamped({ from: span.from + byNs, to: span.to + byNs }, bounds);
}

/** The whole run, with its margins. */
export function whole(bounds: Bounds): Span {
  const end = Math.max(bounds.end, NARROWEST_NS);
  return { from: -ROOM * end, to: (1 + ROOM) * end };
}

/** A window that shows a range with some room on both sides. */
export function around(range: Span, bounds: Bounds, room = 0.15): Span {
  const wide = Math.max(width(range), NARROWEST_NS / 2);
  const extra = wide * room;
  const middle = (range.from + range.to) / 2;
  return clamped({ from: middle - wide / 2 - extra, to: middle + wide / 2 + extra }, bounds);
}

/** The same width, moved as little as needed to show a range; centred where it is far away. */
export function revealed(span: Span, range: Span, bounds: Bounds): Span {
  const wide = width(span);
  if (range.from >= span.from && range.to <= span.to) return span;
  if (range.from <= span.from && range.to >= span.to) return span;
  if (width(range) > wide) return around(range, bounds);
  const middle = (range.from + range.to) / 2;
  return clamped({ from: middle - wide / 2, to: middle + wide / 2 }, bounds);
}

/** Part of the way from one window to another, by ratio where the widths differ. */
export function between(one: Span, other: Span, share: number): Span {
  if (share >= 1) return other;
  const [a, b] = [width(one), width(other)];
  const wide = a * (b / a) ** share;
  if (Math.abs(b - a) < 1e-9 * a) {
    const from = one.from + (other.from - one.from) * share;
    return { from, to: from + wide };
  }
  // The point that lies at the same share of both windows stays where it is.
  const fixed = (one.from * b - other.from * a) / (b - a);
  const from = fixed + ((one.from - fixed) * wide) / a;
  return { from, to: from + wide };
}

/** Maps times to pixels of one frame. */
export interface Scale {
  from: number;
  pixelsPerNs: number;
  width: number;
}

export function scaleOf(span: Span, pixels: number): Scale {
  return { from: span.from, pixelsPerNs: pixels / width(span), width: pixels };
}

export function toPixel(scale: Scale, ns: number): number {
  return (ns - scale.from) * scale.pixelsPerNs;
}

export function toTime(scale: Scale, pixel: number): number {
  return scale.from + pixel / scale.pixelsPerNs;
}

/** Which power of two of nanoseconds is nearest to a pixel. */
export function levelOf(span: Span, pixels: number): number {
  return Math.max(0, Math.round(Math.log2(width(span) / Math.max(1, pixels))));
}
