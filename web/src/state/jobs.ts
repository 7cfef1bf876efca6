// List of jobs, requested again when the server announces a change.
import { signal } from "@preact/signals";

import type { Resource } from "../base/client";
import type { Jobs } from "../api/views";
import { useGet } from "./fetch";

const listVersion = signal(0);

/** Request the list of jobs. */
export function useJobs(): Resource<Jobs> {
  return useGet<Jobs>("/api/jobs", {}, listVersion.value);
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
