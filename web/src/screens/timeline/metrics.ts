// Times of frames and queries, for benchmarks that drive the page.

export interface TimelineMetrics {
  /** Milliseconds of work for each frame. */
  frames: number[];
  /** Milliseconds from asking to having, for each question. */
  queries: number[];
  /** Rectangles of the last frame. */
  rectangles: number;
  /** What draws. */
  renderer: string;
  /** Whether everything that is in view is drawn at its detail. */
  ready: boolean;
  /** Set by whoever measures: frames then include the time until they are drawn. */
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
