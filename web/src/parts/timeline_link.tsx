// Ways from other screens to a place on the timeline.
import { useState } from "preact/hooks";

import type { RankSteps } from "../api/views";
import { fetchView } from "../state/fetch";
import { navigate, link } from "../state/url";

/** Longer names are searched for by their beginning. */
const MAX_QUERY_LENGTH = 200;

export function TimelineLink({ name }: { name: string }) {
  return <a class="action" href={link("timeline", { find: name.slice(0, MAX_QUERY_LENGTH) })}>Show in timeline</a>;
}

/** The address of a window of the timeline around some time, in nanoseconds after the origin. */
export function timelineAt(from_ns: number, to_ns: number): string {
  const margin = Math.max(1, (to_ns - from_ns) / 2);
  return link("timeline", {
    t0: String(Math.max(0, Math.floor(from_ns - margin))),
    t1: String(Math.ceil(to_ns + margin)),
  });
}

/** Where a step ran: on the rank that is named so, or else on the first that has it. */
export function intervalOfStep(ranks: readonly RankSteps[], step: number, rank: string): [number, number] | null {
  const ofRank = ranks.filter((steps) => steps.title === rank);
  for (const steps of [...ofRank, ...ranks]) {
    const index = steps.numbers.indexOf(step);
    const start = steps.after_ns[index];
    if (start !== undefined) return [start, start + (steps.duration_ns[index] ?? 0)];
  }
  return null;
}

/** Goes to a step on the timeline; when it ran is asked for at the click. */
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
    <button type="button" class="quiet" onClick={open} title={isMissing ? "The timeline does not have this step" : "Show in timeline"} disabled={isMissing}>
      {step}
    </button>
  );
}
