// The list of jobs, asked for again when the server says that it has changed.
import { signal } from "@preact/signals";

import type { Loaded } from "../api/client";
import type { Jobs } from "../api/views";
import { useGet } from "./fetch";

const changes = signal(0);

/** The list. */
export function useJobs(): Loaded<Jobs> {
  return useGet<Jobs>("/api/jobs", {}, changes.value);
}

/** Listen to changes of the list until the function that comes back is called. */
export function following(): () => void {
  const events = new EventSource("/api/jobs/events");
  events.addEventListener("change", () => {
    changes.value += 1;
  });
  return () => {
    events.close();
  };
}
