// Comparison of two runs: changes and their significance.
import { ArrowLeftRight } from "lucide";

import type { BeforeAfter, ComparedRun, Comparison, ContractDifference, ContractTerms, FigureChange, NameChanges, SettingChange, StepChange, StepChanges, TargetOutcome } from "../api/views";
import { MISSING, change, count, countOf, dollars, duration, inUnit, multiple, percent, relativeChange } from "../base/quantities";
import { phaseName } from "../base/phase_names";
import { sentence } from "../base/text";
import { FigurePanel } from "../charts/figure_panel";
import { LinkedTable } from "../parts/linked_table";
import { rowKey } from "../parts/row_key";
import { useGet } from "../state/fetch";
import { useJobs } from "../state/jobs";
import { link, baseRun, run, setParams } from "../state/url";
import { column, columns } from "../widgets/fields";
import { Fold } from "../widgets/fold";
import { Icon } from "../widgets/icon";
import { KeyValues } from "../widgets/key_values";
import { PageHeader } from "../widgets/page_header";
import { Panel } from "../widgets/panel";
import { Prose } from "../widgets/prose";
import { ResourceView, QualityNotes, EmptyState } from "../widgets/resource_view";
import { Select } from "../widgets/select";
import { Tiles } from "../widgets/tiles";
import { AlignedSteps } from "./compare/aligned_steps";
import "./compare/compare.css";
import { Contributions } from "./compare/contributions";
import { Differences } from "./compare/differences";
import { stepBars, stepWaterfall } from "./compare/waterfall";

export default function Compare() {
  const [base, comparedRun] = [baseRun.value, run.value];
  return (
    <>
      <PageHeader title="Compare">
        <RunSelects />
      </PageHeader>
      {base === null ? (
        <EmptyState title="No base run selected" text="select a base run above or in the list of jobs" />
      ) : base === comparedRun ? (
        <EmptyState title="Both runs are the same" text="select another base run" />
      ) : (
        <ComparisonLoader base={base} comparedRun={comparedRun ?? ""} />
      )}
    </>
  );
}

function RunSelects() {
  const { data } = useJobs();
  const jobs = (data?.jobs ?? []).filter((job) => job.problem === null);
  const [base, comparedRun] = [baseRun.value, run.value];
  const choices = (value: string | null) => [
    ...(value === null ? [["", "select a run"] as const] : jobs.some(({ id }) => id === value) ? [] : [value]),
    ...jobs.map(({ id, title }) => [id, title === null ? id : `${title} (${id})`] as const),
  ];
  return (
    <>
      <Select label="From" value={base ?? ""} choices={choices(base)} onChange={(id) => { setParams({ with: id === "" ? null : id }); }} />
      {base === null ? null : (
        <a class="quiet" href={link("compare", { run: base, with: comparedRun })} aria-label="Swap runs" title="Swap runs">
          <Icon icon={ArrowLeftRight} size={16} />
        </a>
      )}
      <Select label="To" value={comparedRun ?? ""} choices={choices(comparedRun)} onChange={(id) => { setParams({ run: id }); }} />
    </>
  );
}

function ComparisonLoader({ base, comparedRun }: { base: string; comparedRun: string }) {
  const resource = useGet<Comparison>("/api/compare", { base, run: comparedRun });
  return <ResourceView resource={resource}>{(payload) => <Content payload={payload} runs={[base, comparedRun]} />}</ResourceView>;
}

function Content({ payload, runs }: { payload: Comparison; runs: readonly string[] }) {
  return (
    <>
      <section class="verdict comparison" aria-label="Changes">
        <p class="eyebrow">Changes</p>
        <Headline text={payload.headline} />
        <Differences terms={payload.contract} />
        <div class="two-columns">
          <RunSummary title="From" summary={payload.base} />
          <RunSummary title="To" summary={payload.other} />
        </div>
      </section>
      {payload.notes.length === 0 ? null : <EmptyState title="Results may be inaccurate" text={payload.notes.join(" ")} />}
      {payload.steps === null ? null : <Steps steps={payload.steps} />}
      <AlignedSteps runs={runs} names={[payload.base.name, payload.other.name]} />
      <Targets rows={payload.targets} />
      {payload.contributions === null ? null : <Contributions contributions={payload.contributions} />}
      <BeforeAfterTable comparison={payload.before_after} />
      <Fold title="Parts of the step" about="intervals and noise; kernels and operators">
        {payload.steps === null ? null : <StepParts steps={payload.steps} />}
        {payload.kernels === null ? null : <NameChangesTable id="kernels" title="Kernels" changes={payload.kernels} />}
        {payload.operators === null ? null : <NameChangesTable id="operators" title="Operators" changes={payload.operators} />}
        {payload.names_missing === null ? null : <EmptyState title="Kernels and operators" text={payload.names_missing} />}
      </Fold>
      <Fold title="The runs" about={`commands, totals, ${countOf(payload.settings.length, "setting")} that ${payload.settings.length === 1 ? "differs" : "differ"}`}>
        <Commands runs={[payload.base, payload.other]} />
        <JobFigures rows={payload.figures} scope={payload.figures_of} />
        <ContractTable terms={payload.contract} />
        <Settings rows={payload.settings} sameCount={payload.same_setting_count} />
      </Fold>
    </>
  );
}

/** First sentence as the heading, with the rest below. */
function Headline({ text }: { text: string }) {
  const end = text.indexOf(". ") + 1;
  const [first, rest] = end === 0 ? [text, ""] : [text.slice(0, end), text.slice(end)];
  return (
    <div data-testid="compare-headline">
      <h2>{first}</h2>
      {rest === "" ? null : <p>{rest}</p>}
    </div>
  );
}

function RunSummary({ title, summary }: { title: string; summary: ComparedRun }) {
  return (
    <div>
      <h3>{title}: {summary.name.slice(0, 120)}</h3>
      <p><Prose text={summary.headline} /></p>
      {summary.step_ns === null ? null : (
        <p class="muted">{countOf(summary.step_count, "step")}, mean {duration(summary.step_ns.mean)}. Verdict confidence {percent(summary.confidence_ratio)}.</p>
      )}
    </div>
  );
}

function Commands({ runs }: { runs: readonly ComparedRun[] }) {
  return (
    <Panel title="Commands" wide>
      <KeyValues entries={runs.map(({ name, command }) => [name.slice(0, 120), <code key={name}>{command.slice(0, 2000)}</code>])} />
    </Panel>
  );
}

function interval({ low_ns, high_ns }: StepChange): string {
  return low_ns === null || high_ns === null ? MISSING : `${change(low_ns, "ns")} to ${change(high_ns, "ns")}`;
}

function noiseText(figure: StepChange): string {
  if (figure.noise_ns === null) return "too few steps to estimate noise";
  return figure.beyond_noise ? "beyond noise" : "within noise";
}

function Steps({ steps }: { steps: StepChanges }) {
  return (
    <>
      <Tiles
        tiles={steps.figures.map((figure) => ({
          label: `Step, ${figure.name === "p50" ? "median" : figure.name}`,
          value: relativeChange(figure.change_ratio),
          caption: `${duration(figure.base_ns)} to ${duration(figure.other_ns)}; ${noiseText(figure)}`,
          testid: `compare-${figure.name}`,
        }))}
      />
      <div class="panels">
        <FigurePanel testid="step-bars" block={stepBars(steps)} description={`Breakdown of ${steps.share_of}.`} />
        <FigurePanel testid="waterfall" block={stepWaterfall(steps)} />
      </div>
    </>
  );
}

function StepParts({ steps }: { steps: StepChanges }) {
  return (
    <LinkedTable
      id="parts"
      title="Mean step by part"
      testid="table-compare-parts"
      description="The changes of the parts add up to the change of the mean."
      definition={steps.noise}
      rows={steps.parts}
      fields={columns(
        "StepChange", ["name", { value: (row) => phaseName(row.name) }], "base_ns", "other_ns", "change_ns", "change_ratio",
        column("interval", `${steps.interval_percent}% interval`, "none", interval),
        "noise_ns", ["beyond_noise", { draw: (row) => <NoiseLabel change={row} /> }],
      )}
    />
  );
}

/** Relation of a change to the noise of the steps. */
function NoiseLabel({ change: { noise_ns, beyond_noise, estimate_ns } }: { change: StepChange }) {
  if (noise_ns === null) return <span class="status-text quiet">too few steps</span>;
  if (!beyond_noise) return <span class="status-text quiet">within noise</span>;
  return estimate_ns > 0 ? (
    <span class="status-text bad"><span aria-hidden="true">▲</span> slower</span>
  ) : (
    <span class="status-text good"><span aria-hidden="true">▼</span> faster</span>
  );
}

/** Value of the change: speedup, hours and cost. */
function BeforeAfterTable({ comparison }: { comparison: BeforeAfter }) {
  if (comparison.rows.length === 0) return null;
  const summary = [
    comparison.speed_up === null || comparison.speed_up_by === null ? null : `${multiple(comparison.speed_up)} as fast by the ${comparison.speed_up_by}`,
    comparison.saved_hours === null ? null : `${inUnit(Math.abs(comparison.saved_hours), "instance-hours")} ${comparison.saved_hours < 0 ? "more" : "saved"}`,
    comparison.saved_usd === null ? null : `${dollars(Math.abs(comparison.saved_usd))} ${comparison.saved_usd < 0 ? "more" : "saved"}${comparison.saving_ratio === null ? "" : ` (${percent(comparison.saving_ratio, 1)})`}`,
    ...new Set([comparison.before_price, comparison.after_price].map((price) => price?.said ?? null)),
  ].filter((text) => text !== null);
  return (
    <>
      <LinkedTable
        id="worth"
        title="Before and after"
        testid="table-compare-worth"
        description={summary.length === 0 ? undefined : sentence(summary.join("; "))}
        rows={comparison.rows}
        fields={columns("BeforeAfterRow", "name", "text", ["change_ratio", { draw: (row) => row.change_text ?? MISSING }])}
      />
      <QualityNotes quality={[]} notes={comparison.notes} />
    </>
  );
}

function JobFigures({ rows, scope }: { rows: FigureChange[]; scope: string }) {
  return (
    <LinkedTable
      id="figures"
      title="Job totals"
      testid="table-compare-figures"
      description={`Figures of ${scope}.`}
      rows={rows}
      fields={columns("FigureChange", "name", "base", "other", "change_ratio")}
    />
  );
}

function NameChangesTable({ id, title, changes }: { id: string; title: string; changes: NameChanges }) {
  return (
    <LinkedTable
      id={id}
      title={title}
      testid={`table-compare-${id}`}
      description={`${changes.time_of}: ${duration(changes.base_ns)} to ${duration(changes.other_ns)} (${change(changes.change_ns, "ns")}).`}
      rows={changes.rows}
      keyOf={(row) => rowKey(row.name)}
      footnote={changes.rest_count === 0 ? null : `${count(changes.rest_count)} more names changed by ${change(changes.rest_ns, "ns")} in total`}
      fields={columns(
        "NameChange", "change_ns", "base_ns", "other_ns", "base_calls", "other_calls", "status",
        ["name", { isLongName: true }],
      )}
    />
  );
}

type ContractRow = ContractDifference & { group: string };

/** Comparability of the two runs: differing and unknown terms. */
function ContractTable({ terms }: { terms: ContractTerms[] }) {
  const groupsWithStatus = (status: string) => terms.filter((term) => term.standing === status).map((term) => term.group);
  const [same, unknown] = [groupsWithStatus("same"), groupsWithStatus("unknown")];
  const rows = terms.flatMap(({ group, differences }) => differences.map((difference) => ({ group, ...difference })));
  const summary = [
    same.length === 0 ? "" : `Same in both runs: ${same.join(", ")}.`,
    unknown.length === 0 ? "" : `Unknown for at least one run: ${unknown.join(", ")}.`,
  ].filter((text) => text !== "").join(" ");
  if (rows.length === 0) return <Panel title="Same workload" wide><p class="muted">{summary}</p></Panel>;
  return (
    <LinkedTable
      id="contract"
      title={groupsWithStatus("different").length === 0 ? "Same workload, as far as known" : "Different workloads"}
      testid="table-compare-contract"
      description={summary}
      rows={rows}
      keyOf={(row) => rowKey(row.group, row.name)}
      fields={columns<"ContractDifference", ContractRow>("ContractDifference", "name", column("group", "of", "none", ({ group }) => group), "base", "other", "standing")}
    />
  );
}

function Targets({ rows }: { rows: TargetOutcome[] }) {
  if (rows.length === 0) return null;
  return (
    <LinkedTable
      id="targets"
      title="Expected after the fix"
      testid="table-compare-targets"
      description="Targets of the verdict on the first run."
      rows={rows}
      keyOf={(row) => row.name}
      fields={columns("TargetOutcome", "text", "is_reached", "base", "other")}
    />
  );
}

function SettingValue({ text }: { text: string | null }) {
  return <span class="name briefer" title={text ?? undefined}>{text ?? MISSING}</span>;
}

function Settings({ rows, sameCount }: { rows: SettingChange[]; sameCount: number }) {
  const same = `Same in both runs: ${countOf(sameCount, "setting")}.`;
  if (rows.length === 0) return <Panel title="Configuration" wide><p class="muted">{same} No setting differs.</p></Panel>;
  return (
    <LinkedTable
      id="settings"
      title="Configuration differences"
      testid="table-compare-settings"
      description={same}
      rows={rows}
      keyOf={(row) => rowKey(row.group, row.name)}
      fields={columns(
        "SettingChange", "name", "group",
        ["base", { draw: ({ base }) => <SettingValue text={base} /> }],
        ["other", { draw: (row) => <SettingValue text={row.other} /> }],
      )}
    />
  );
}
