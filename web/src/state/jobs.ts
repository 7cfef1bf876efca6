// List of jobs and names of runs, requested again when the server announces a change.
import { signal } from "@preact/signals";

import type { Resource } from "../base/client";
import type { RunName } from "../api/server";
import type { Jobs } from "../api/views";
import { revision, useGet } from "./fetch";

const listVersion = signal(0);

/** Request the list of jobs. */
export function useJobs(): Resource<Jobs> {
  return useGet<Jobs>("/api/jobs", {}, listVersion.value);
}

/** Name of a run: its title, else that of its directory, which is shown first. */
export function useRunName(id: string): string {
  const { data } = useGet<RunName>("/api/name", { run: id }, listVersion.value + revision.value);
  return data?.name ?? (id.split("/").pop() ?? id);
}

/** Request the list again: this page has changed it. */
export function reloadJobs(): void {
  listVersion.value += 1;
}

/** Follow changes of the list and return a function that stops it. */
export function followJobs(): () => void {
  const events = new EventSource("/api/jobs/events");
  events.addEventListener("change", reloadJobs);
  return () => {
    events.close();
  };
}
