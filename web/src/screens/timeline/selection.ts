// Details of the selected slice, as named in the URL.
import { effect, signal } from "@preact/signals";

import { fetchView } from "../../state/fetch";
import type { Commands } from "./commands";
import { sliceRef } from "./links";
import type { Model } from "./model";
import { selectedKey } from "./url_state";

/** Error of the details request, or null. */
export const selectionError = signal<string | null>(null);

/** Follow the selection in the URL and return a function that stops it. */
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
        // A slice selected on the canvas is in view; one named by a link must be scrolled to.
        const ref = sliceRef(slice);
        model.selected.value = ref;
        if (!isSameSlice || isFirst) commands.scrollToRow(ref.track, ref.row);
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
