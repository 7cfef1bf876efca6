// A run that grows: the server says when there is more to see.
import { effect, signal } from "@preact/signals";

import { run } from "./url";

/** Raised whenever the run on screen has grown. */
export const revision = signal(0);
/** The run was there and no longer is. */
export const isRunDeleted = signal(false);
/** Whether the page redraws when the run grows; the reader may hold it still. */
export const isLive = signal(true);

/** Listen to the run on screen. */
export function followRun(): void {
  effect(() => {
    const id = run.value;
    const live = isLive.value;
    isRunDeleted.value = false;
    if (id === null || !live) return undefined;
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
