// Columns of the list of runs.
import { Pencil } from "lucide";

import type { JobRow } from "../../api/views";
import { MISSING, count, dollars, duration, percent } from "../../base/quantities";
import { words } from "../../base/text";
import { link } from "../../state/url";
import { column, columns, type Field } from "../../widgets/fields";
import { IconButton } from "../../widgets/icon_button";
import { Sparkline } from "../../widgets/sparkline";

const STATUS_LABELS: Record<JobRow["status"], readonly [string, string, "good" | "bad" | "plain"]> = {
  InProgress: ["●", "in progress", "plain"],
  Stopping: ["◼", "stopping", "plain"],
  Completed: ["✓", "completed", "good"],
  Failed: ["✕", "failed", "bad"],
  Stopped: ["■", "stopped", "bad"],
  Unknown: ["?", "unknown", "plain"],
  Imported: ["↓", "imported", "plain"],
};

/** Class by which a state stands out. */
function toneOf({ status, monitor_lost, verdict }: JobRow): string {
  if (verdict?.stuck != null) return "alarm";
  return monitor_lost ? "bad" : STATUS_LABELS[status][2];
}

export function statusText({ status, monitor_lost, verdict }: JobRow): string {
  const label = STATUS_LABELS[status][1];
  const details = [label, ...(verdict?.stuck == null ? [] : ["stuck"]), ...(monitor_lost ? ["monitor lost"] : [])];
  return details.join(", ");
}

export function StatusLabel({ job }: { job: JobRow }) {
  const symbol = job.verdict?.stuck == null ? STATUS_LABELS[job.status][0] : "✕";
  return (
    <span class={`status-text ${toneOf(job)}`} title={job.verdict?.stuck ?? job.reason ?? undefined}>
      <span aria-hidden="true">{symbol}</span> {statusText(job)}
    </span>
  );
}

interface Actions {
  checkedIds: readonly string[];
  toggle: (id: string) => void;
  edit: (job: JobRow) => void;
}

/** All columns, in their order. */
export function jobFields({ checkedIds, toggle, edit }: Actions): Field<JobRow>[] {
  return columns<"JobRow", JobRow>(
    "JobRow",
    column("chosen", "✓", "none", (job) => checkedIds.includes(job.id), {
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
    ["name", { title: "run", value: (job) => job.name, draw: (job) => <NameCell job={job} edit={edit} /> }],
    ["status", { value: statusText, draw: (job) => <StatusLabel job={job} /> }],
    column("cause", "bottleneck", "none", causeText, { draw: (job) => <CauseCell job={job} /> }),
    column("saving_ratio", "saving", "ratio", (job) => job.verdict?.saving_ratio ?? null, {
      description: "Of the first fix with a prediction, as a share of step time",
      draw: ({ verdict }) => (
        <span title={verdict?.fix == null ? undefined : `${verdict.fix}: share of ${verdict.saving_of ?? ""}`}>
          {verdict?.saving_ratio == null ? MISSING : `${verdict.saving_is_bound ? "≤ " : ""}${percent(verdict.saving_ratio)}`}
        </span>
      ),
    }),
    ["step_median_ns", { unit: "ns", numeric: true, value: (job) => job.step_median_ns[job.step_median_ns.length - 1] ?? null, draw: (job) => <StepTimeCell values={job.step_median_ns} /> }],
    "steps_per_s", "duration_ns",
    ["goodput_ratio", { draw: (job) => percent(job.goodput_ratio) }],
    ["peak_memory_bytes", { title: "memory" }], "host",
    ["tags", { value: ({ tags }) => tags.join(", "), draw: ({ tags }) => <>{tags.map((tag) => <span key={tag} class="tag">{tag}</span>)}</> }],
    ["cost_usd", { draw: (job) => <span title={job.why_no_cost ?? job.price_said ?? undefined}>{dollars(job.cost_usd)}</span> }],
    "created_ms", "notes", "git_revision", "working_directory", "id", "rank_count",
    ["gpu_count", { draw: (job) => <span title={job.gpu_names.join(", ")}>{count(job.gpu_count)}</span> }],
    "first_step_ns", "size_bytes",
  );
}

function NameCell({ job, edit }: { job: JobRow; edit: (job: JobRow) => void }) {
  const name = job.name.slice(0, 400);
  if (job.problem !== null) return <span class="name" title={job.problem}>{name} <span class="muted">{job.problem}</span></span>;
  return (
    <span class="with-action">
      <a class="name" href={link("overview", { run: job.id, from: null, to: null })} title={[job.id, job.command, job.notes].join("\n").trim().slice(0, 1200)}>{name}</a>
      <IconButton icon={Pencil} label={`Edit title, tags and notes of ${name}`} size={13} onClick={() => { edit(job); }} />
    </span>
  );
}

function StepTimeCell({ values }: { values: readonly number[] }) {
  const [first, last] = [values[0], values[values.length - 1]];
  if (first === undefined || last === undefined) return <>{MISSING}</>;
  return <span class="step-time"><Sparkline values={values} label={`Moving median of the step time, from ${duration(first)} to ${duration(last)}`} /> {duration(last)}</span>;
}

/** Cause, or else the bottleneck, with its share; where a job is stuck, where. */
export function causeText({ verdict }: JobRow): string | null {
  if (verdict === null) return null;
  if (verdict.stuck !== null) return verdict.stuck;
  if (verdict.suspect === "insufficient_evidence" || verdict.suspect === "healthy") return verdict.words;
  return `${verdict.cause === "unknown" ? verdict.words : words(verdict.cause)}, ${percent(verdict.share_ratio)}`;
}

function CauseCell({ job }: { job: JobRow }) {
  const { verdict } = job;
  if (verdict === null) return <span class="muted">{job.problem === null ? "pending" : MISSING}</span>;
  return (
    <span class={verdict.stuck === null ? "name cause" : "name cause alarm"} title={[verdict.stuck, verdict.headline].filter((text) => text !== null).join("\n").slice(0, 800)}>
      {causeText(job)}
    </span>
  );
}
