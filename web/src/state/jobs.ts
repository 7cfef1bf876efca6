// The list of jobs, asked for again when the server says that it has changed.
import { signal } from "@preact/signals";

import type { Resource } from "../api/client";
import type { Jobs } from "../api/views";
import { useGet } from "./fetch";

const listVersion = signal(0);

/** The list. */
export function useJobs(): Resource<Jobs> {
  return useGet<Jobs>("/api/jobs", {}, listVersion.value);
}

/** Listen to changes of the list until the function that comes back is called. */
export function followJobs(): () => void {
  const events = new EventSource("/api/jobs/events");
  events.addEventListener("change", () => {
    listVersion.value += 1;
  });
  return () => {
    events.close();
  };
}
