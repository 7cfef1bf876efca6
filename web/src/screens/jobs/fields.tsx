// Columns of the list of runs.
import type { JobRow } from "../../api/views";
import { MISSING, count, dollars, percent } from "../../base/quantities";
import { link } from "../../state/url";
import { column, columns, type Field } from "../../widgets/fields";

const STATUS_LABELS: Record<JobRow["status"], readonly [string, string, "good" | "bad" | "plain"]> = {
  InProgress: ["●", "in progress", "plain"],
  Stopping: ["◼", "stopping", "plain"],
  Completed: ["✓", "completed", "good"],
  Failed: ["✕", "failed", "bad"],
  Stopped: ["■", "stopped", "bad"],
  Unknown: ["?", "unknown", "plain"],
  Imported: ["↓", "imported", "plain"],
};

export function StatusLabel({ job }: { job: JobRow }) {
  const [symbol, label, tone] = STATUS_LABELS[job.status];
  const suffix = job.monitor_lost ? ", monitor lost" : "";
  return (
    <span class={`status-text ${job.monitor_lost ? "bad" : tone}`} title={job.reason ?? undefined}>
      <span aria-hidden="true">{symbol}</span> {label}{suffix}
    </span>
  );
}

export function jobFields(checkedIds: readonly string[], toggle: (id: string) => void): Field<JobRow>[] {
  return columns<"JobRow", JobRow>(
    "JobRow",
    column("chosen", "open", "none", (job) => checkedIds.includes(job.id), {
      draw: (job) => (
        <input
          type="checkbox"
          aria-label={`Select ${job.id.slice(0, 200)}`}
          checked={checkedIds.includes(job.id)}
          disabled={job.problem !== null}
          onChange={() => { toggle(job.id); }}
        />
      ),
    }),
    ["id", {
      draw: (job) =>
        job.problem === null ? (
          <a class="name" href={link("overview", { run: job.id, from: null, to: null })} title={job.command.slice(0, 800)}>
            {job.id.slice(0, 400)}
          </a>
        ) : (
          <span class="name" title={job.problem}>{job.id.slice(0, 400)} <span class="muted">{job.problem}</span></span>
        ),
    }],
    ["status", { value: (job) => STATUS_LABELS[job.status][1], draw: (job) => <StatusLabel job={job} /> }],
    ["verdict", { value: (job) => job.verdict?.words ?? null, draw: (job) => <VerdictCell job={job} /> }],
    "created_ms", "duration_ns",
    ["goodput_ratio", { draw: (job) => percent(job.goodput_ratio) }],
    ["cost_usd", { draw: (job) => <span title={job.why_no_cost ?? job.price_said ?? undefined}>{dollars(job.cost_usd)}</span> }],
    "rank_count",
    ["gpu_count", { draw: (job) => <span title={job.gpu_names.join(", ")}>{count(job.gpu_count)}</span> }],
    "size_bytes", "name", "first_step_ns",
  );
}

function VerdictCell({ job }: { job: JobRow }) {
  const { verdict } = job;
  if (verdict === null) return <span class="muted">{job.problem === null ? "pending" : MISSING}</span>;
  const hasEvidence = verdict.suspect !== "insufficient_evidence";
  return (
    <span class="name" title={verdict.headline.slice(0, 800)}>
      {verdict.words}
      {hasEvidence && verdict.suspect !== "healthy" ? <span class="muted"> {percent(verdict.share_ratio)}</span> : null}
    </span>
  );
}
