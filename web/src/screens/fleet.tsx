// Hours and money of all runs: by class of time, bottleneck, fix and group, and the runs that waste most.
import type { Amount, Fleet, FleetCause, FleetClass, FleetFix, FleetGroup, FleetJob } from "../api/views";
import { countOf, dollars, inUnit, number, percent } from "../base/quantities";
import { LinkedTable } from "../parts/linked_table";
import { rowKey } from "../parts/row_key";
import { useSelect } from "../parts/url_controls";
import { useText } from "../parts/url_options";
import { useGet } from "../state/fetch";
import { link } from "../state/url";
import { column, columns, type Field } from "../widgets/fields";
import { PageHeader } from "../widgets/page_header";
import { RankedBars } from "../widgets/ranked_bars";
import { Panel } from "../widgets/panel";
import { EmptyState, QualityNotes, ResourceView } from "../widgets/resource_view";
import { Select } from "../widgets/select";
import { Tiles, type Tile } from "../widgets/tiles";

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
      <p data-testid="fleet-headline"><strong>{payload.headline}</strong></p>
      <Tiles tiles={totals(payload)} />
      <div class="panels thirds">
        <Ranking
          title="Predicted savings"
          definition="At most one fix per run, the one with the largest prediction. Upper bounds are in the table below only"
          hours={mainHours(payload)}
          total={payload.total}
          rows={payload.fixes.map(({ title, saved, run_count }) => ({ name: title, amount: saved, run_count }))}
        />
        <Ranking
          title="Bottlenecks"
          definition="All hours of the runs with this bottleneck"
          hours={mainHours(payload)}
          total={payload.total}
          rows={payload.causes.map(({ title, amount, run_count }) => ({ name: title, amount, run_count }))}
        />
        <Ranking
          title={`Wasted by ${payload.by}`}
          definition="Time in which jobs were stuck, down or repeated steps, and what their fixes are predicted to save"
          hours={mainHours(payload)}
          total={payload.total}
          rows={payload.groups.map(({ name, wasted, run_count }) => ({ name, amount: wasted, run_count }))}
        />
      </div>
      <Jobs payload={payload} />
      <QualityNotes quality={[]} notes={payload.notes} />
      <details class="panels-fold" data-testid="fleet-tables">
        <summary>Tables by {payload.by}, class of time, bottleneck and fix</summary>
        <Tables payload={payload} />
        <Skipped payload={payload} />
      </details>
    </>
  );
}

function Jobs({ payload }: { payload: Fleet }) {
  if (payload.jobs.length === 0) return null;
  return (
    <LinkedTable
      id="jobs"
      title="Runs that waste most"
      testid="table-fleet-jobs"
      definition="Wasted: time in which the job was stuck, down or repeated steps, and what its fix is predicted to save"
      rows={payload.jobs}
      fields={columns<"FleetJob", FleetJob>(
        "FleetJob",
        ["name", { title: "run", draw: ({ id, name }) => <a class="name" href={link("overview", { run: id, from: null, to: null })} title={id.slice(0, 4 * MAX_NAME)}>{name.slice(0, MAX_NAME)}</a> }],
        ...amountColumns("wasted", payload.jobs, (row) => row.wasted), "wasted_ratio", "fix",
        "user", "project", ["sentence", { isLongName: true, draw: ({ sentence }) => <span class="name" title={sentence}>{sentence}</span> }],
      )}
    />
  );
}

function Tables({ payload }: { payload: Fleet }) {
  return (
    <>
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

/** Tiles of hours, and of money where a price is known. */
function totals(payload: Fleet): Tile[] {
  const { total, lost, saved, bound, run_count, priced_count } = payload;
  const key = mainHours(payload);
  const unit = UNITS[key];
  const rest = key === "gpu_hours" ? "core_hours" : "gpu_hours";
  const hours = (amount: Amount): number => amount[key];
  const part = (label: string, amount: Amount, caption: string): Tile => ({
    label,
    value: percent(hours(total) === 0 ? null : hours(amount) / hours(total)),
    caption: `${number(hours(amount))} of ${number(hours(total))} ${unit}${amount.usd === null ? "" : `, ${dollars(amount.usd)}`}; ${caption}`,
  });
  const added = total[rest] > 0 ? `; ${number(total[rest])} ${UNITS[rest]} in addition` : "";
  return [
    { label: unit, value: number(hours(total)), caption: `of ${countOf(run_count, "run")}${added}`, testid: "fleet-hours" },
    ...(total.usd === null ? [] : [{ label: "Cost", value: dollars(total.usd), caption: `of ${countOf(priced_count, "run")} with a price`, testid: "fleet-cost" }]),
    part("Lost", lost, "stuck, down or repeated"),
    part("Predicted saving", saved, "one fix per run"),
    part("At most", bound, "upper bounds, of other runs"),
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
  hours: Hours;
  total: Amount;
  rows: { name: string; amount: Amount; run_count: number }[];
}

/** Largest rows as bars. */
function Ranking({ title, definition, hours: key, total, rows }: RankingProps) {
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
          detail: `${percent(hours(amount) / hours(total))}, ${countOf(run_count, "run")}`,
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
