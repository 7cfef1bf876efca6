// Steps that a critical path or simulated fixes are of, and the error of their replay.
import type { CriticalPathOf, WhatIfOf } from "../../api/views";
import { count, countOf } from "../../base/quantities";
import { tile } from "../../widgets/fields";
import { Tiles, type Tile } from "../../widgets/tiles";

type Replayed = Pick<CriticalPathOf | WhatIfOf, "traces" | "step_count" | "step_ns" | "replay_error_ratio">;

export function replayTiles(replayed: Replayed, extra: Tile | null = null) {
  return (
    <Tiles
      tiles={[
        tile("CriticalPathOf", replayed as CriticalPathOf, "step_ns", { caption: `of ${countOf(replayed.step_count, "step")}`, testid: "path-step" }),
        tile("CriticalPathOf", replayed as CriticalPathOf, "replay_error_ratio", { testid: "path-error" }),
        ...(extra === null ? [] : [extra]),
      ]}
    />
  );
}

const MAX_LISTED = 4;

/** Names of the traces, of many only the first. */
export function tracesOf({ traces }: Replayed): string {
  const listed = traces.slice(0, MAX_LISTED).map((trace) => trace.slice(0, 80)).join(", ");
  return traces.length > MAX_LISTED ? `${listed} and ${count(traces.length - MAX_LISTED)} more` : listed;
}
