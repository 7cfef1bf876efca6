// Notes and saved views of the current run, which are stored with it.
import { effect, signal } from "@preact/signals";

import type { NotesRequest, RunNotes } from "../api/server";
import { get, post } from "../base/client";
import { revision } from "./live";
import { run } from "./url";

const NONE: RunNotes = { notes: [], views: [] };

export const notes = signal<RunNotes>(NONE);
/** Reason why the last change was not stored; null if it was. */
export const notesError = signal<string | null>(null);

/** Follow the notes of the current run. */
export function followNotes(): void {
  let shownRun: string | null = null;
  effect(() => {
    const [id] = [run.value, revision.value];
    if (id !== shownRun) notes.value = NONE;
    shownRun = id;
    if (id === null) return undefined;
    const abort = new AbortController();
    get<RunNotes>("/api/notes", { run: id }, abort.signal).then(
      (stored) => { notes.value = stored; },
      () => undefined, // the screen says that the server does not respond
    );
    return () => { abort.abort(); };
  });
}

/** Add and remove notes and saved views. */
export async function changeNotes(change: Omit<NotesRequest, "run">): Promise<void> {
  try {
    notes.value = await post<RunNotes>("/api/notes", { run: run.peek(), ...change });
    notesError.value = null;
  } catch (error) {
    notesError.value = error instanceof Error ? error.message : String(error);
  }
}
