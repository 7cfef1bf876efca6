// Filters and groups of the list of runs.
import type { JobRow } from "../../api/views";
import { NONE } from "../../base/quantities";

export type StatusFilter = "all" | "stuck" | JobRow["status"];

export const STATUS_FILTERS: readonly (readonly [StatusFilter, string])[] = [
  ["all", "all"],
  ["stuck", "stuck"],
  ["InProgress", "in progress"],
  ["Completed", "completed"],
  ["Failed", "failed"],
  ["Stopped", "stopped"],
  ["Stopping", "stopping"],
  ["Unknown", "unknown"],
  ["Imported", "imported"],
];

const HOUR_MS = 3_600_000;

export const PERIODS = [
  ["any", "any time"],
  ["hour", "last hour"],
  ["day", "last 24 hours"],
  ["week", "last 7 days"],
  ["month", "last 30 days"],
  ["range", "from … to …"],
] as const;

export type Period = (typeof PERIODS)[number][0];

const PERIOD_MS: Record<Exclude<Period, "range">, number> = {
  any: Infinity,
  hour: HOUR_MS,
  day: 24 * HOUR_MS,
  week: 7 * 24 * HOUR_MS,
  month: 30 * 24 * HOUR_MS,
};

const MINUTE_MS = 60_000;

/** Minutes as milliseconds since 1970; null where the range is open. */
export interface MinuteRange {
  from_ms: number | null;
  to_ms: number | null;
}

/** Select the runs of a status that were created in a period; both minutes of a range belong to it. */
export function filterJobs(jobs: readonly JobRow[], status: StatusFilter, period: Period, { from_ms, to_ms }: MinuteRange, now_ms: number): JobRow[] {
  const [start, end] = period === "range" ? [from_ms ?? -Infinity, (to_ms ?? Infinity) + MINUTE_MS] : [now_ms - PERIOD_MS[period], Infinity];
  return jobs.filter((job) => hasStatus(job, status) && start <= job.created_ms && job.created_ms < end);
}

/** Whether a run has a status; a stuck one has another one, too. */
export function hasStatus(job: JobRow, status: StatusFilter): boolean {
  return status === "all" || (status === "stuck" ? job.verdict?.stuck != null : job.status === status);
}

export const GROUPINGS = [["none", "nothing"], ["directory", "directory"], ["tag", "tags"], ["revision", "git revision"]] as const;

/** Heading of the group of a run; a run of several tags is in that of all of them. */
export const GROUP_OF: Record<(typeof GROUPINGS)[number][0], ((job: JobRow) => string) | undefined> = {
  none: undefined,
  directory: ({ id }) => id.split("/").slice(0, -1).join("/") || ".",
  tag: ({ tags }) => tags.join(", ") || "no tags",
  revision: ({ git_revision }) => git_revision ?? NONE,
};
