// Hours and money of all runs: by class of time, bottleneck, fix and group, and the runs that waste most.
import type { Amount, Fleet, FleetCause, FleetClass, FleetFix, FleetGroup, FleetJob } from "../api/views";
import { count, countOf, dollars, inUnit, number, percent } from "../base/quantities";
import { capitalize } from "../base/text";
import { LinkedTable } from "../parts/linked_table";
import { rowKey } from "../parts/row_key";
import { useSelect } from "../parts/url_controls";
import { useText } from "../parts/url_options";
import { useGet } from "../state/fetch";
import { link } from "../state/url";
import { column, columns, type Field } from "../widgets/fields";
import { ClassBar, ClassLegend } from "../widgets/class_bar";
import { PageHeader } from "../widgets/page_header";
import { RankedBars } from "../widgets/ranked_bars";
import { Fold } from "../widgets/fold";
import { KeyValues, type Entry } from "../widgets/key_values";
import { Panel } from "../widgets/panel";
import { EmptyState, QualityNotes, ResourceView } from "../widgets/resource_view";
import { Select } from "../widgets/select";

const GROUPINGS = ["project", "user", "tag", "revision", "week"] as const;
const PERIODS = [["", "all"], ["7d", "last 7 days"], ["4w", "last 4 weeks"], ["12w", "last 12 weeks"]] as const;
const MAX_NAME = 400;

export default function FleetScreen() {
  const [by, bySelect] = useSelect("by", "Group by", GROUPINGS);
  const [since, sinceSelect] = useSelect("since", "Created", PERIODS);
  const [tag, setTag] = useText("tag");
  const resource = useGet<Fleet>("/api/fleet", { by, since, tag });
  const tags = [...new Set([...(resource.data?.tags ?? []), ...(tag === "" ? [] : [tag])])];
  return (
    <>
      <PageHeader title="Fleet" description={resource.data?.root.slice(0, MAX_NAME)}>
        {bySelect}
        {sinceSelect}
        {tags.length === 0 ? null : <Select label="Tag" value={tag} choices={[["", "all"], ...tags.map((name) => [name, name.slice(0, MAX_NAME)] as const)]} onChange={setTag} />}
      </PageHeader>
      <ResourceView resource={resource}>{(payload) => <Content payload={payload} />}</ResourceView>
    </>
  );
}

function Content({ payload }: { payload: Fleet }) {
  if (payload.run_count === 0) {
    return (
      <>
        <QualityNotes quality={[]} notes={payload.notes} />
        <EmptyState title="No runs to add up" text={`${payload.root} contains no run of this time that has ended`} />
        <Skipped payload={payload} />
      </>
    );
  }
  return (
    <>
      <h2 class="answer" data-testid="fleet-headline">{payload.headline}</h2>
      <Classes payload={payload} />
      <div class="panels thirds">
        <Ranking
          title="Bottlenecks"
          definition="All hours of the runs with this bottleneck"
          payload={payload}
          rows={payload.causes.map(({ title, amount, run_count }) => ({ name: title, amount, run_count }))}
        />
        <Ranking
          title="Predicted savings"
          definition="At most one fix per run, the one with the largest prediction. Upper bounds are in the table below only"
          payload={payload}
          rows={payload.fixes.map(({ title, saved, run_count }) => ({ name: title, amount: saved, run_count }))}
        />
        <Ranking
          title={`Wasted by ${payload.by}`}
          definition="Time in which jobs were stuck, down or repeated steps, and what their fixes are predicted to save"
          payload={payload}
          rows={payload.groups.map(({ name, wasted, run_count }) => ({ name, amount: wasted, run_count }))}
        />
      </div>
      <Jobs payload={payload} />
      <QualityNotes quality={[]} notes={payload.notes} />
      <Fold title="Tables" about={`totals; by ${payload.by}, class of time, bottleneck and fix`} testid="fleet-tables">
        <Tables payload={payload} />
        <Skipped payload={payload} />
      </Fold>
    </>
  );
}

/** Classes with a smaller share are in the table only. */
const MIN_CLASS_RATIO = 0.005;

/** All hours of the unit that is wasted, by class of time. */
function Classes({ payload }: { payload: Fleet }) {
  const { total } = payload;
  const key = mainHours(payload);
  const all = total[key];
  const units = (["gpu_hours", "core_hours"] as const).filter((unit) => total[unit] > 0);
  const sums = [...units.map((unit) => `${number(total[unit])} ${UNITS[unit]}`), ...(total.usd === null ? [] : [dollars(total.usd)])];
  const parts = payload.classes.filter(({ amount }) => amount[key] >= MIN_CLASS_RATIO * all).map(({ key: name, title, amount }) => {
    const text = amountText(amount, key);
    return { key: name, title, ratio: amount[key] / all, amount: text, description: `${title}: ${text}` };
  });
  return all === 0 ? null : (
    <Panel
      title={`Time by class: ${sums.join(", ")}`}
      definition={units.length < 2 ? null : `Shares and hours are those of ${UNITS[key]}${total.usd === null ? "" : "; money is of all runs with a price"}`}
      testid="fleet-classes"
    >
      <ClassBar parts={parts} />
      <ClassLegend label="Hours by class of time" parts={parts} />
    </Panel>
  );
}

/** Hours, and money where a price is known. */
function amountText(amount: Amount, key: Hours): string {
  return `${inUnit(amount[key], "hours")}${amount.usd === null ? "" : `, ${dollars(amount.usd)}`}`;
}

function Jobs({ payload }: { payload: Fleet }) {
  if (payload.jobs.length === 0) return null;
  const wasted = amountColumns("wasted", payload.jobs, (row) => row.wasted);
  return (
    <LinkedTable
      id="jobs"
      title="Runs that waste most"
      testid="table-fleet-jobs"
      definition="Wasted: time in which the job was stuck, down or repeated steps, and what its fix is predicted to save. The bar is its share of the run"
      rows={payload.jobs}
      fields={columns<"FleetJob", FleetJob>(
        "FleetJob",
        ["name", { title: "run", draw: (job) => <RunCell job={job} /> }],
        ...wasted, "wasted_ratio",
        ["sentence", { title: "what is wrong, what to do", wraps: true, draw: ({ sentence, fix }) => <>{sentence}{fix === null ? null : <b> Fix: {fix}.</b>}</> }],
        ["fix", { isHidden: true }], ["user", { isHidden: true }], ["project", { isHidden: true }],
      )}
    />
  );
}

function RunCell({ job: { id, name, user, project } }: { job: FleetJob }) {
  return (
    <>
      <a class="name briefer" href={link("overview", { run: id, from: null, to: null })} title={id.slice(0, 4 * MAX_NAME)}>{name.slice(0, MAX_NAME)}</a>
      <span class="name briefer muted" title={project.slice(0, 4 * MAX_NAME)}>{[user, project.split("/").at(-1)].filter(Boolean).join(", ").slice(0, MAX_NAME)}</span>
    </>
  );
}

function Tables({ payload }: { payload: Fleet }) {
  return (
    <>
      <Panel title="Totals"><KeyValues entries={totals(payload)} /></Panel>
      <LinkedTable
        id="classes"
        title="Class of time"
        testid="table-fleet-classes"
        definition="Shares of the hours of all runs. Runs whose time is not divided are a class of their own"
        rows={payload.classes}
        fields={columns<"FleetClass", FleetClass>(
          "FleetClass", "title", payload.total.gpu_hours > 0 && "gpu_ratio", payload.total.core_hours > 0 && "core_ratio",
          ...amountColumns("", payload.classes, (row) => row.amount), "run_count",
        )}
      />
      <LinkedTable
        id="groups"
        title={`By ${payload.by}`}
        testid="table-fleet-groups"
        rows={payload.groups}
        fields={columns<"FleetGroup", FleetGroup>(
          "FleetGroup", ["name", { title: payload.by, value: ({ name }) => name.slice(0, MAX_NAME) }], "run_count",
          ...amountColumns("", payload.groups, (row) => row.amount), ...amountColumns("wasted", payload.groups, (row) => row.wasted),
        )}
      />
      <LinkedTable
        id="causes"
        title="Bottlenecks and their causes"
        testid="table-fleet-causes"
        definition="Hours of the runs, and those that the bottleneck itself takes"
        rows={payload.causes}
        fields={columns<"FleetCause", FleetCause>("FleetCause", "title", "run_count", ...amountColumns("", payload.causes, (row) => row.amount), ...amountColumns("bottleneck", payload.causes, (row) => row.owned))}
      />
      {payload.fixes.length === 0 ? null : (
        <LinkedTable
          id="fixes"
          title="Fixes"
          testid="table-fleet-fixes"
          definition="Predictions, one fix per run; upper bounds are those of other runs"
          rows={payload.fixes}
          fields={columns<"FleetFix", FleetFix>("FleetFix", "title", "run_count", ...amountColumns("saves", payload.fixes, (row) => row.saved), ...amountColumns("at most", payload.fixes, (row) => row.bound))}
        />
      )}
    </>
  );
}

type Hours = "gpu_hours" | "core_hours";
const UNITS: Record<Hours, string> = { gpu_hours: "GPU-hours", core_hours: "core-hours" };

/** GPU-hours, or core-hours without any, or where these alone are wasted. */
function mainHours({ total, lost, saved, bound }: Fleet): Hours {
  const isWasted = (key: Hours): boolean => [lost, saved, bound].some((amount) => amount[key] > 0);
  return total.gpu_hours > 0 && (isWasted("gpu_hours") || !isWasted("core_hours")) ? "gpu_hours" : "core_hours";
}

/** Hours, and money where a price is known. */
function totals(payload: Fleet): Entry[] {
  const { total, lost, saved, bound, run_count, priced_count } = payload;
  const key = mainHours(payload);
  const part = (amount: Amount, text: string): string =>
    `${percent(total[key] === 0 ? null : amount[key] / total[key])}, ${amountText(amount, key)}; ${text}`;
  const hours = (["gpu_hours", "core_hours"] as const).filter((unit) => unit === key || total[unit] > 0);
  return [
    ...hours.map((unit) => [capitalize(UNITS[unit]), inUnit(total[unit], "hours")] as const),
    ...(total.usd === null ? [] : [["Cost", `${dollars(total.usd)} of ${countOf(priced_count, "run")} with a price`] as const]),
    ["Runs", count(run_count)],
    ["Lost", part(lost, "stuck, down or repeated")],
    ["Predicted saving", part(saved, "one fix per run")],
    ["At most", part(bound, "upper bounds, of other runs")],
  ];
}

/** Columns of amounts: those units that a row has. */
function amountColumns<Row extends object>(prefix: string, rows: readonly Row[], inner: (row: Row) => Amount): Field<Row>[] {
  const units = [["gpu", "GPU-hours", "hours", "gpu_hours"], ["core", "core-hours", "hours", "core_hours"], ["usd", "cost", "usd", "usd"]] as const;
  return units
    .filter(([, , , key]) => rows.some((row) => inner(row)[key]))
    .map(([id, title, unit, key]) => column<Row>(`${prefix.replace(" ", "-")}-${id}`, `${prefix} ${title}`.trim(), unit, (row) => inner(row)[key]));
}

const MAX_BARS = 4;

interface RankingProps {
  title: string;
  definition: string;
  payload: Fleet;
  rows: { name: string; amount: Amount; run_count: number }[];
}

/** Largest rows as bars. */
function Ranking({ title, definition, payload, rows }: RankingProps) {
  const key = mainHours(payload);
  const hours = (amount: Amount): number => amount[key];
  const shown = rows.filter(({ amount }) => hours(amount) > 0).sort((a, b) => hours(b.amount) - hours(a.amount)).slice(0, MAX_BARS);
  if (shown.length === 0) return null;
  const largest = Math.max(...shown.map(({ amount }) => hours(amount)));
  return (
    <Panel title={title} definition={`${definition}. Shares are of all ${UNITS[key]}`}>
      <RankedBars
        label={title}
        rows={shown.map(({ name, amount, run_count }) => ({
          name,
          ratio: hours(amount) / largest,
          value: inUnit(hours(amount), "hours"),
          detail: `${percent(hours(amount) / hours(payload.total))}, ${countOf(run_count, "run")}`,
        }))}
      />
    </Panel>
  );
}

function Skipped({ payload }: { payload: Fleet }) {
  if (payload.skipped.length === 0) return null;
  return (
    <LinkedTable
      id="skipped"
      title="Runs in no sum"
      testid="table-fleet-skipped"
      rows={payload.skipped}
      keyOf={(row) => rowKey(row.id)}
      fields={columns("SkippedRun", ["id", { value: ({ id }) => id.slice(0, MAX_NAME) }], "state", "reason")}
    />
  );
}
