// Frame and query timings, for benchmarks that drive the page.

export interface TimelineMetrics {
  /** Milliseconds of work per frame. */
  frames: number[];
  /** Milliseconds from request to response, per query. */
  queries: number[];
  /** Rectangles of the last frame. */
  rectangles: number;
  /** Rendering backend. */
  renderer: string;
  /** Everything in view is drawn at its level of detail. */
  ready: boolean;
  /** Set by benchmarks: frames then include the time until the GPU has finished. */
  finish: boolean;
}

declare global {
  interface Window {
    __stepscopeTimeline?: TimelineMetrics;
  }
}

const MAX_SAMPLES = 4_000;

export const timelineMetrics: TimelineMetrics = {
  frames: [], queries: [], rectangles: 0, renderer: "", ready: false, finish: false,
};

window.__stepscopeTimeline = timelineMetrics;

export function recordTiming(kind: "frames" | "queries", ms: number): void {
  const list = timelineMetrics[kind];
  list.push(ms);
  if (list.length > MAX_SAMPLES) list.splice(0, MAX_SAMPLES / 2);
}
