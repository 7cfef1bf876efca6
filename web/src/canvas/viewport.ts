// Visible window of time, in nanoseconds after the origin of the run. Doubles are exact for a
// hundred days; pixels are computed from differences to the start of the window, so positions do
// not jitter.

export interface Span {
  from: number;
  to: number;
}

/** Extent that can be viewed, in nanoseconds; a margin shows where the data ends. */
export interface Bounds {
  end: number;
}

/** Narrowest window: a nanosecond is about twenty pixels wide. */
export const MIN_SPAN_NS = 50;
const MARGIN = 0.02;
/** Margin around a whole run. */
const OUTER_MARGIN = 0.006;

export function widthOf(span: Span): number {
  return span.to - span.from;
}

/** Clamp a window to a usable width within the bounds; a window that is too wide shows everything. */
export function clampSpan(span: Span, bounds: Bounds): Span {
  const end = Math.max(bounds.end, MIN_SPAN_NS);
  const margin = MARGIN * end;
  const widest = end + 2 * margin;
  const from = Number.isFinite(span.from) ? span.from : 0;
  const requested = Number.isFinite(span.to) ? span.to - from : end;
  const spanWidth = Math.min(widest, Math.max(MIN_SPAN_NS, requested));
  // A requested window that is too narrow or too wide keeps its centre.
  const middle = from + requested / 2;
  const centred = spanWidth === requested ? from : middle - spanWidth / 2;
  // A narrow window has a margin of half its width beyond the ends.
  const outerMargin = Math.min(margin, spanWidth / 2);
  const first = Math.min(Math.max(centred, -outerMargin), end + outerMargin - spanWidth);
  const start = spanWidth >= end ? (end - spanWidth) / 2 : first;
  return { from: start, to: start + spanWidth };
}

/** Zoom in (factor below 1) or out, keeping the time at a share of the width in position. */
export function zoomSpan(span: Span, factor: number, share: number, bounds: Bounds): Span {
  const spanWidth = Math.max(MIN_SPAN_NS, widthOf(span) * factor);
  const anchor = span.from + widthOf(span) * share;
  return clampSpan({ from: anchor - spanWidth * share, to: anchor + spanWidth * (1 - share) }, bounds);
}

export function panSpan(span: Span, byNs: number, bounds: Bounds): Span {
  return clampSpan({ from: span.from + byNs, to: span.to + byNs }, bounds);
}

/** Return the whole run with its margins. */
export function fullSpan(bounds: Bounds): Span {
  const end = Math.max(bounds.end, MIN_SPAN_NS);
  return { from: -OUTER_MARGIN * end, to: (1 + OUTER_MARGIN) * end };
}

/** Return a window that shows a range with a margin on both sides. */
export function spanAround(range: Span, bounds: Bounds, marginShare = 0.15): Span {
  const spanWidth = Math.max(widthOf(range), MIN_SPAN_NS / 2);
  const extra = spanWidth * marginShare;
  const middle = (range.from + range.to) / 2;
  return clampSpan({ from: middle - spanWidth / 2 - extra, to: middle + spanWidth / 2 + extra }, bounds);
}

/** Move a window of the same width to show a range, centred if it is out of view. */
export function revealRange(span: Span, range: Span, bounds: Bounds): Span {
  const spanWidth = widthOf(span);
  if (range.from >= span.from && range.to <= span.to) return span;
  if (range.from <= span.from && range.to >= span.to) return span;
  if (widthOf(range) > spanWidth) return spanAround(range, bounds);
  const middle = (range.from + range.to) / 2;
  return clampSpan({ from: middle - spanWidth / 2, to: middle + spanWidth / 2 }, bounds);
}

/** Interpolate between two windows, geometrically in width. */
export function interpolate(start: Span, target: Span, share: number): Span {
  if (share >= 1) return target;
  const [a, b] = [widthOf(start), widthOf(target)];
  const spanWidth = a * (b / a) ** share;
  if (Math.abs(b - a) < 1e-9 * a) {
    const from = start.from + (target.from - start.from) * share;
    return { from, to: from + spanWidth };
  }
  // The point at the same share of both windows stays in position.
  const anchor = (start.from * b - target.from * a) / (b - a);
  const from = anchor + ((start.from - anchor) * spanWidth) / a;
  return { from, to: from + spanWidth };
}

/** Mapping from times to pixels of one frame. */
export interface Scale {
  from: number;
  pixelsPerNs: number;
  width: number;
}

export function scaleOf(span: Span, pixels: number): Scale {
  return { from: span.from, pixelsPerNs: pixels / widthOf(span), width: pixels };
}

export function toPixel(scale: Scale, ns: number): number {
  return (ns - scale.from) * scale.pixelsPerNs;
}

export function toTime(scale: Scale, pixel: number): number {
  return scale.from + pixel / scale.pixelsPerNs;
}

/** Level of detail: the power of two of nanoseconds nearest to a pixel. */
export function levelOf(span: Span, pixels: number): number {
  return Math.max(0, Math.round(Math.log2(widthOf(span) / Math.max(1, pixels))));
}
