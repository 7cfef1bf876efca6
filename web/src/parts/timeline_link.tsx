// Links from other screens to the timeline.
import { useState } from "preact/hooks";

import type { RankSteps } from "../api/views";
import { fetchView } from "../state/fetch";
import { navigate, link } from "../state/url";

/** Longer names are searched by prefix. */
const MAX_QUERY_LENGTH = 200;

export function TimelineLink({ name }: { name: string }) {
  return <a class="action" href={link("timeline", { find: name.slice(0, MAX_QUERY_LENGTH) })}>Show in timeline</a>;
}

/** URL of a timeline window around an interval, in nanoseconds after the origin, with other parameters. */
export function timelineAt(from_ns: number, to_ns: number, values: Record<string, string> = {}): string {
  const margin = Math.max(1, (to_ns - from_ns) / 2);
  return link("timeline", {
    t0: String(Math.max(0, Math.floor(from_ns - margin))),
    t1: String(Math.ceil(to_ns + margin)),
    ...values,
  });
}

/** Return the interval of a step on the given rank, or on the first rank that has it. */
export function intervalOfStep(ranks: readonly RankSteps[], step: number, rank: string): [number, number] | null {
  const ofRank = ranks.filter((steps) => steps.rank === rank);
  for (const steps of [...ofRank, ...ranks]) {
    const index = steps.numbers.indexOf(step);
    const start = steps.after_ns[index];
    if (start !== undefined) return [start, start + (steps.duration_ns[index] ?? 0)];
  }
  return null;
}

/** Link to a step on the timeline; its interval is requested on click. */
export function StepLink({ step, rank }: { step: number; rank: string }) {
  const [isMissing, setIsMissing] = useState(false);
  const open = (): void => {
    fetchView("timeline").then(
      ({ steps }) => {
        const interval = intervalOfStep(steps, step, rank);
        if (interval === null) setIsMissing(true);
        else navigate(timelineAt(...interval));
      },
      () => { setIsMissing(true); },
    );
  };
  return (
    <button type="button" class="line-link" onClick={open} title={isMissing ? "This step is not on the timeline" : "Show in timeline"} disabled={isMissing}>
      {step}
    </button>
  );
}
