// List of all runs with status, verdict and cost.
import { useEffect, useMemo, useState } from "preact/hooks";

import type { JobRow, Jobs } from "../api/views";
import { count, countOf } from "../base/quantities";
import { LinkedTable } from "../parts/linked_table";
import { useMinute, useSelect } from "../parts/url_controls";
import { toggleItem, useText, useTexts } from "../parts/url_options";
import { followJobs, useJobs } from "../state/jobs";
import { link, openRuns } from "../state/url";
import { PageHeader } from "../widgets/page_header";
import { ResourceView, QualityNotes, EmptyState } from "../widgets/resource_view";
import { ColumnChoice, filledColumns, visibleColumns } from "./jobs/columns";
import { jobFields } from "./jobs/fields";
import { GROUP_OF, GROUPINGS, PERIODS, STATUS_FILTERS, filterJobs, hasStatus } from "./jobs/filters";
import { LabelsDialog } from "./jobs/labels_dialog";
import { ImportButton, ImportStates, TraceTable } from "./jobs/traces";

export default function JobsScreen() {
  const resource = useJobs();
  useEffect(() => followJobs(), []);
  return (
    <>
      <PageHeader title="Jobs" description={resource.data === null ? null : countText(resource.data)}>
        <Troubles jobs={resource.data?.jobs ?? []} />
        <SelectedRunActions jobs={resource.data?.jobs ?? []} />
      </PageHeader>
      <ImportStates />
      <ResourceView resource={resource}>{(payload) => <Content payload={payload} />}</ResourceView>
    </>
  );
}

function countText(payload: Jobs): string {
  const unread = payload.unread_count === 0 ? "" : `; ${count(payload.unread_count)} not read yet`;
  const pending = payload.pending_count === 0 ? "" : `; ${countOf(payload.pending_count, "verdict")} pending`;
  return `${countOf(payload.jobs.length, "run")} in ${payload.root}${unread}${pending}.`;
}

function Content({ payload }: { payload: Jobs }) {
  const [status, statusSelect] = useSelect("status", "Status", STATUS_FILTERS);
  const [period, periodSelect] = useSelect("since", "Created", PERIODS);
  const [from_ms, fromInput] = useMinute("created_from", "From");
  const [to_ms, toInput] = useMinute("created_to", "To");
  const [filter] = useText("filter");
  const [checkedIds, setCheckedIds] = useTexts("chosen");
  const [grouping, groupSelect] = useSelect("by", "Group by", GROUPINGS);
  const [edited, setEdited] = useState<JobRow | null>(null);
  const fields = useMemo(
    () => jobFields({ checkedIds, toggle: (id) => { setCheckedIds(toggleItem(checkedIds, id)); }, edit: setEdited }),
    [checkedIds.join("\n")],
  );
  const { jobs } = payload;
  const filled = useMemo(() => filledColumns(fields, jobs), [fields, jobs]);
  const rows = useMemo(() => filterJobs(jobs, status, period, { from_ms, to_ms }, Date.now()), [jobs, status, period, from_ms, to_ms]);
  if (jobs.length === 0) {
    return (
      <>
        <QualityNotes quality={[]} notes={payload.notes} />
        <EmptyState title="No runs yet" text={`${payload.root} contains no runs. Record one with \`stepscope run -- python train.py\`, or import a trace with \`stepscope import FILE -o RUN\``} />
        {payload.why_not_import === null ? <ImportButton /> : null}
        <TraceTable payload={payload} />
      </>
    );
  }
  return (
    <>
      <QualityNotes quality={[]} notes={payload.notes} />
      <LinkedTable
        title="Runs"
        testid="table-jobs"
        rows={rows}
        fields={visibleColumns(filled)}
        groupOf={GROUP_OF[grouping]}
        isHigh
        searchable
        tools={
          <>
            {groupSelect}
            {statusSelect}
            {periodSelect}
            {period === "range" ? <>{fromInput}{toInput}</> : null}
            <ColumnChoice fields={fields} />
            {payload.why_not_import === null ? <ImportButton /> : null}
          </>
        }
        footnote={filter === "" && rows.length < jobs.length ? `${count(jobs.length - rows.length)} hidden by filters` : null}
      />
      <TraceTable payload={payload} />
      {edited === null ? null : <LabelsDialog job={edited} onClose={() => { setEdited(null); }} />}
    </>
  );
}

/** Counts of the runs that are stuck or have failed, which select them. */
function Troubles({ jobs }: { jobs: readonly JobRow[] }) {
  return (
    <>
      {([["stuck", "stuck"], ["Failed", "failed"]] as const).map(([status, text]) => {
        const number = jobs.filter((job) => hasStatus(job, status)).length;
        return number === 0 ? null : <a key={status} class="badge alarm" href={link("", { status })}>{count(number)} {text}</a>;
      })}
    </>
  );
}

/** Actions on the selected runs: above the table, which does not move when they appear. */
function SelectedRunActions({ jobs }: { jobs: readonly JobRow[] }) {
  const [checkedIds] = useTexts("chosen");
  const ids = checkedIds.length === 0 ? [] : jobs.map((job) => job.id).filter((id) => checkedIds.includes(id));
  const [first, second] = ids;
  if (first === undefined) return null;
  const open = [...new Set([...openRuns.value, ...ids])];
  return (
    <>
      <a class="action" href={link("overview", { run: first, open })} data-testid="open-runs">
        Open {count(ids.length)}
      </a>
      {second === undefined || ids.length > 2 ? null : (
        // The list is newest first: the older run is the base of the comparison.
        <a class="action strong" href={link("compare", { run: first, with: second, open })} data-testid="compare-runs">
          Compare
        </a>
      )}
    </>
  );
}
