// Everything that is known of the selected slice, as the address names it.
import { effect, signal } from "@preact/signals";

import { fetchView } from "../../state/fetch";
import { selectedKey } from "./url_state";
import type { Commands } from "./commands";
import { sliceRef } from "./links";
import type { Model } from "./model";

/** Why there are no details; null where there are, or none are wanted. */
export const selectionError = signal<string | null>(null);

/** Follows the address; the function that is returned ends it. */
export function followSelection(model: Model, commands: Commands): () => void {
  let isFirst = true;
  let abort = new AbortController();
  const stop = effect(() => {
    const key = selectedKey.value;
    abort.abort();
    abort = new AbortController();
    selectionError.value = null;
    const selected = model.selected.peek();
    const isSameSlice = selected?.track === key?.track && selected?.event === key?.event;
    if (key === null) {
      model.details.value = null;
      if (selected !== null && selected.event >= 0) model.selected.value = null;
      return;
    }
    const { signal: aborted } = abort;
    fetchView("timeline-slice", { track: key.track, event: key.event }, aborted).then(
      (slice) => {
        model.details.value = slice;
        // What was selected on the canvas is there already; what a link named must be shown.
        const placed = sliceRef(slice);
        model.selected.value = placed;
        if (!isSameSlice || isFirst) commands.scrollToRow(placed.track, placed.row);
        isFirst = false;
      },
      (error: unknown) => {
        if (aborted.aborted) return;
        model.details.value = null;
        selectionError.value = error instanceof Error ? error.message : String(error);
      },
    );
  });
  return () => {
    stop();
    abort.abort();
  };
}
