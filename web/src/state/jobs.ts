// List of jobs and names of runs, requested again when the server announces a change.
import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";

import { get, type Resource } from "../base/client";
import type { RunName } from "../api/server";
import type { Jobs } from "../api/views";
import { revision, useGet, useRequest } from "./fetch";

const listVersion = signal(0);

/** Request the list of jobs: at first all, then the changes. */
export function useJobs(): Resource<Jobs> {
  const resource = useRequest<Jobs>("jobs", listVersion.value, async (signal, last) =>
    mergeJobs(last, await get<Jobs>("/api/jobs", { since: last?.revision }, signal)));
  useEffect(() => {
    if (resource.data !== null && resource.data.unread_count > 0) reloadJobs();
  }, [resource.data]);
  return resource;
}

/** Complete a list of changes by the list before, in the order of complete ones. */
export function mergeJobs(before: Jobs | null, response: Jobs): Jobs {
  if (before === null || !response.is_partial) return response;
  if (response.jobs.length + response.removed.length === 0) return { ...response, jobs: before.jobs };
  const rows = new Map(before.jobs.map((job) => [job.id, job]));
  for (const id of response.removed) rows.delete(id);
  for (const job of response.jobs) rows.set(job.id, job);
  return { ...response, jobs: [...rows.values()].sort((a, b) => b.created_ms - a.created_ms || (a.id < b.id ? -1 : 1)) };
}

/** Name of a run and its verdict; at first the name of its directory. */
export function useRunSummary(id: string): RunName {
  const { data } = useGet<RunName>("/api/name", { run: id }, listVersion.value + revision.value);
  return data ?? { name: id.split("/").pop() ?? id, headline: null, advice: null };
}

export function useRunName(id: string): string {
  return useRunSummary(id).name;
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
