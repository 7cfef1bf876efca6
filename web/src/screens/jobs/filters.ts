// Filters of the list of runs.
import type { JobRow } from "../../api/views";

export type StatusFilter = "all" | JobRow["status"];

export const STATUS_FILTERS: readonly (readonly [StatusFilter, string])[] = [
  ["all", "all"],
  ["InProgress", "in progress"],
  ["Completed", "completed"],
  ["Failed", "failed"],
  ["Stopped", "stopped"],
  ["Stopping", "stopping"],
  ["Imported", "imported"],
];

const HOUR_MS = 3_600_000;

export const PERIODS = [
  ["any", "any time"],
  ["hour", "last hour"],
  ["day", "last 24 hours"],
  ["week", "last 7 days"],
  ["month", "last 30 days"],
] as const;

export type Period = (typeof PERIODS)[number][0];

const PERIOD_MS: Record<Period, number> = {
  any: Infinity,
  hour: HOUR_MS,
  day: 24 * HOUR_MS,
  week: 7 * 24 * HOUR_MS,
  month: 30 * 24 * HOUR_MS,
};

export function filterJobs(jobs: readonly JobRow[], status: StatusFilter, period: Period, now_ms: number): JobRow[] {
  return jobs.filter(
    (job) => (status === "all" || job.status === status) && now_ms - job.created_ms <= PERIOD_MS[period],
  );
}
