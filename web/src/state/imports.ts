// Imports of traces that this page has requested, and their progress.
import { signal } from "@preact/signals";

import { get, post, postFile } from "../base/client";
import type { ImportProgress, ImportRequest } from "../api/server";

const POLL_MS = 500;

export interface Import {
  /** Name for the user: the trace, or the number of traces. */
  title: string;
  /** Null until the server has accepted the request or received the file. */
  progress: ImportProgress | null;
  /** Reason why there is no run. */
  failure: string | null;
}

export const imports = signal<readonly Import[]>([]);

/** Import traces below the served directory as one run. */
export function importTraces(title: string, traces: readonly string[]): Promise<void> {
  const body: ImportRequest = { traces: [...traces] };
  return follow(title, post<ImportProgress>("/api/import", body));
}

/** Import a file of this browser. */
export function importFile(file: File): Promise<void> {
  return follow(file.name, postFile<ImportProgress>("/api/upload", { name: file.name }, file));
}

/** Poll the progress of an import until it is finished. */
async function follow(title: string, request: Promise<ImportProgress>): Promise<void> {
  let current: Import = { title, progress: null, failure: null };
  const update = (next: Partial<Import>): void => {
    const updated = { ...current, ...next };
    imports.value = imports.value.map((item) => (item === current ? updated : item));
    current = updated;
  };
  imports.value = [...imports.value, current];
  try {
    let progress = await request;
    update({ progress });
    while (!progress.finished) {
      await new Promise((resolve) => setTimeout(resolve, POLL_MS));
      progress = await get<ImportProgress>("/api/import", { import: progress.id });
      update({ progress, failure: progress.failure });
    }
  } catch (error) {
    update({ failure: error instanceof Error ? error.message : String(error) });
  }
}
