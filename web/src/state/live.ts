// Live updates: the server announces that the run has grown.
import { effect, signal } from "@preact/signals";

import { run } from "./url";

/** Incremented when the current run has grown. */
export const revision = signal(0);
/** The run was deleted while it was open. */
export const isRunDeleted = signal(false);

/** Follow the current run. */
export function followRun(): void {
  effect(() => {
    const id = run.value;
    isRunDeleted.value = false;
    if (id === null) return undefined;
    const events = new EventSource(`/api/events?${new URLSearchParams({ run: id }).toString()}`);
    events.addEventListener("change", () => {
      revision.value += 1;
    });
    events.addEventListener("gone", () => {
      isRunDeleted.value = true;
      events.close();
    });
    return () => {
      events.close();
    };
  });
}
