// Overview of a run: verdict, status and utilization of the machines.
import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";

import type { Evidence, JobAccount, StuckAccount, Verdict } from "../api/report";
import type { ChangedSetting, NodeStatus, Overview as Payload, PriceUsed, QualityNote, ShortFinding, StepSeries } from "../api/views";
import { count, countOf, dollars, duration, percent } from "../base/quantities";
import { dateTime, sentence } from "../base/text";
import { rangeOf } from "../parts/job_pieces";
import { JobStrip } from "../parts/job_strip";
import { LinkedTable } from "../parts/linked_table";
import { useView } from "../state/fetch";
import { useRunName } from "../state/jobs";
import { screenTitle } from "../state/screen_titles";
import { link, run } from "../state/url";
import { columns, entries, tile } from "../widgets/fields";
import { Fold } from "../widgets/fold";
import { KeyValues } from "../widgets/key_values";
import { PageHeader } from "../widgets/page_header";
import { Panel } from "../widgets/panel";
import { Prose } from "../widgets/prose";
import { ResourceView, QualityNotes, Skeleton } from "../widgets/resource_view";
import { Stuck } from "../widgets/stuck";
import { Tiles, type Tile } from "../widgets/tiles";
import { DeathView, VerdictView } from "../widgets/verdict";

export default function Overview() {
  return <ResourceView resource={useView("overview")} headlineOf={({ verdict }) => verdict.headline}>{(payload) => <Content payload={payload} />}</ResourceView>;
}

/** Load a module with charts after the verdict, as their script is the largest; null until then. */
function useModule<Module>(load: () => Promise<Module>): Module | null {
  const [module, setModule] = useState<Module | null>(null);
  useEffect(() => { void load().then((loaded) => { setModule(() => loaded); }); }, [load]);
  return module;
}

const loadDashboard = () => import("./overview/dashboard");
const loadStrip = () => import("../parts/step_strip");

function LazyDashboard() {
  const module = useModule(loadDashboard);
  return module === null ? <Skeleton /> : <module.default />;
}

const STRIP_HEIGHT = 120;

/** Step time over the steps, the suspect's phases in colour; the place is kept until it is loaded. */
function StepTimes({ data, verdict }: { data: StepSeries | null; verdict: Verdict }) {
  const module = useModule(loadStrip);
  if (data?.steps.length === 0) return null;
  const rank = data !== null && data.ranks.length > 1 ? `, ${data.rank?.name ?? ""}` : "";
  return (
    <div data-testid="step-times">
      <h3>Step time{rank} <a class="muted" href={link("steps")}>{screenTitle("steps")}</a></h3>
      <div style={{ minHeight: `${STRIP_HEIGHT}px` }}>
        {module === null || data === null ? null : <module.StepStrip series={data} height={STRIP_HEIGHT} highlight={phasesOf(verdict)} />}
      </div>
    </div>
  );
}

/** Causes that are in several phases, or in another one on each rank. */
const WITHOUT_PHASE = ["straggler", "model_callbacks", "cpu_contention", "cpu_limit"];

/** Phases of the suspect; none where it is in all of them. */
function phasesOf({ suspect, cause, bars }: Verdict): readonly string[] | undefined {
  if (suspect === "data_pipeline") return ["data_wait", "data_loader"];
  if (suspect === "communication") return ["communication"];
  if (suspect !== "framework_overhead" || WITHOUT_PHASE.includes(cause)) return undefined;
  return bars.some(({ phase }) => phase === cause) ? [cause] : ["other", "runtime", "cpu_exec"];
}

/** URL of the screen that proves a part of the verdict, of samples in the time of the steps. */
function evidenceLink(view: string, series: StepSeries | null): string {
  const [start, end] = [series?.start_after_ns[0], series?.start_after_ns.at(-1)];
  return view !== "system" || start === undefined || end === undefined ? link(view) : link(view, rangeOf(start, end));
}

function Content({ payload }: { payload: Payload }) {
  const { verdict } = payload;
  const quality = payload.quality.filter((note) => !payload.doubts.includes(note.sentence)); // which come before
  const { data: series } = useView("step-series");
  // Ranks without a trace change the answer where the step waits for other ranks; windows are of some ranks.
  const isFirst = ({ check }: QualityNote): boolean => payload.nodes.length === 0 && (check !== "missing_rank" || verdict.suspect === "communication");
  return (
    <>
      <PageHeader
        title={useRunName(run.value ?? payload.run_id)}
        description={timeText(payload)}
      >
        <span class={verdict.stuck === null ? "badge" : "badge alarm"} data-testid="job-status">{jobStatusText(payload.nodes, verdict.stuck)}</span>
      </PageHeader>
      <DeathView death={verdict.death} />
      {verdict.stuck === null ? null : <Stuck account={verdict.stuck} />}
      <QualityNotes quality={quality.filter(isFirst)} range={payload.range} />
      <VerdictView
        verdict={verdict}
        savings={payload.money?.fix_savings_usd ?? []}
        linkOf={(view) => [evidenceLink(view, series), screenTitle(view)]}
        strip={(bar) => <JobStrip>{bar}</JobStrip>}
        steps={<StepTimes data={series} verdict={verdict} />}
        isShort
      >
        <Tiles tiles={overviewTiles(payload)} />
      </VerdictView>
      <Leads payload={payload} />
      <QualityNotes quality={quality.filter((note) => !isFirst(note))} />
      <Details>
        <Findings findings={payload.findings} missing={payload.findings_missing} />
        <ConfigurationChanges changes={payload.configuration_changes} />
        {payload.nodes.length < 2 ? null : <Nodes nodes={payload.nodes} />}
        <RunFacts payload={payload} />
        <LazyDashboard />
      </Details>
    </>
  );
}

const DETAILS = "#details";

/** What is not the answer; nothing of it is loaded before it is opened. */
function Details({ children }: { children: ComponentChildren }) {
  return (
    <Fold
      title="Details"
      about="findings of rules, about this run, machines, framework, steps"
      testid="details"
      isOpen={location.hash === DETAILS}
      onToggle={(isOpen) => { history.replaceState(null, "", isOpen ? DETAILS : location.pathname + location.search); }}
    >
      {children}
    </Fold>
  );
}

/** Smaller shares are not worth a bar. */
const MIN_SHARE_RATIO = 0.005;

interface Lead {
  title: string;
  view: string;
  ratio: number | null;
  text: string;
}

/** Pictures that lead on. */
function Leads({ payload }: { payload: Payload }) {
  const leads = leadsOf(payload);
  return leads.length === 0 ? null : (
    <nav class="leads" aria-label="Where the time goes">
      {leads.map((lead) => (
        <a key={lead.title} href={link(lead.view)} data-testid={`lead-${lead.view}`}>
          <h3>{lead.title}</h3>
          {lead.ratio === null ? null : <span class="bar" aria-hidden="true"><i style={{ width: `${100 * lead.ratio}%` }} /></span>}
          <p>{lead.text}</p>
        </a>
      ))}
    </nav>
  );
}

function leadsOf(payload: Payload): Lead[] {
  const { verdict, gpu_busy_ratio, cpu_busy_ratio } = payload;
  const shareOf = (phase: string): number | null => verdict.bars.find((bar) => bar.phase === phase)?.share_ratio ?? null;
  const [wait, fetch] = [shareOf("data_wait"), shareOf("data_loader")];
  const communication = shareOf("communication");
  const [stepTime = ""] = verdict.share_of.split(","); // without the definition that follows
  const ranks = sentence(`${rankCountText(payload)}${payload.nodes.length > 0 ? "" : ","} ${rankCaption(payload)}`);
  const rankEvidence = verdict.evidence.find(({ source }) => source === "distributed");
  const isExchange = payload.rank_count > 1 && communication !== null && communication >= MIN_SHARE_RATIO;
  const leads: (Lead & { isEmpty: boolean })[] = [
    { title: "Input", isEmpty: wait === null && fetch === null, view: "input-pipeline", ratio: wait ?? fetch, text: inputText(wait, fetch, verdict.stuck === null ? stepTime : `${stepTime}, before the job was stuck`) },
    { title: "Device", isEmpty: gpu_busy_ratio === null, view: "gpu", ratio: gpu_busy_ratio, text: `GPUs are busy for ${percent(gpu_busy_ratio)}${payload.nodes.length > 0 ? "," : ""} ${busyCaption(payload)}.` },
    { title: "Ranks", isEmpty: payload.rank_count < 2 && missingRanks(payload) === undefined, view: "ranks", ratio: rankEvidence?.unit === "ns" ? rankRatio(rankEvidence, verdict) : isExchange ? communication : null, text: rankEvidence !== undefined ? `${ranks} ${rankEvidence.text}` : isExchange ? `${ranks} Communication takes ${percent(communication)} of ${stepTime}.` : ranks },
    { title: "System", isEmpty: cpu_busy_ratio === null, view: "system", ratio: cpu_busy_ratio, text: `CPUs are busy for ${percent(cpu_busy_ratio)} of the time, mean over nodes.` },
  ];
  return leads.filter(({ isEmpty }) => !isEmpty);
}

/** Share of the mean step that the ranks wait or communicate. */
function rankRatio({ value }: Evidence, { mean_step_ns }: Verdict): number | null {
  return value === null || !mean_step_ns ? null : Math.min(1, value / mean_step_ns);
}

function inputText(wait: number | null, fetch: number | null, stepTime: string): string {
  return wait !== null ? `Waiting for batches takes ${percent(wait)} of ${stepTime}.` : `Fetching batches takes ${percent(fetch)} of ${stepTime}.`;
}

function timeText({ created_ns, started_ns, duration_ns, nodes }: Payload): string {
  const started = started_ns === null ? "" : `Started ${dateTime(started_ns / 1e6)}, duration ${duration(duration_ns)}.`;
  if (nodes.length > 0) return started;
  return `${started || `Duration ${duration(duration_ns)}; the trace states no date.`} Imported ${dateTime(created_ns / 1e6)}.`;
}

/** Status of the job over all nodes. */
export function jobStatusText(nodes: readonly NodeStatus[], stuck: StuckAccount | null): string {
  if (stuck !== null) return stuck.has_ended ? "Was stuck" : "Stuck";
  if (nodes.length === 0) return "Imported";
  const suffix = nodes.some((node) => node.monitor_lost) ? ", monitor lost" : "";
  const states = new Set(nodes.map(({ state }) => state.replace("InProgress", "In progress")));
  return `${[...states].join(", ")}${suffix}`;
}

function overviewTiles(payload: Payload): Tile[] {
  const { verdict, recordings } = payload;
  const hasEvidence = verdict.suspect !== "insufficient_evidence";
  const events = recordings.reduce((sum, recording) => sum + recording.event_count, 0);
  return [
    ...(hasEvidence && payload.suspect_step_ns !== null
      ? [tile("Overview", payload, "suspect_step_ns", { caption: `${percent(verdict.share_ratio)} of ${verdict.share_of}`, testid: "suspect-ms" })]
      : []),
    tile("Verdict", verdict, "mean_step_ns", {
      value: duration(payload.step_ns?.mean ?? verdict.mean_step_ns),
      caption: payload.step_ns === null ? "no steps measured" : `of ${count(payload.step_ns.count)} measured steps, p95 ${duration(payload.step_ns.p95)}`,
      testid: "step-mean",
    }),
    ...jobTiles(verdict.job),
    ...costTiles(payload.money),
    tile("Overview", payload, "rank_count", { caption: rankCaption(payload) }),
    tile("Overview", payload, "gpu_busy_ratio", { caption: busyCaption(payload), testid: "gpu-busy" }),
    tile("Overview", payload, "cpu_busy_ratio", { caption: payload.cpu_busy_ratio === null ? "no samples" : "mean over nodes and samples", testid: "cpu-busy" }),
    { label: "Traces", value: count(recordings.length), caption: recordings.length === 0 ? "no profiler traces" : countOf(events, "event") },
  ];
}

function jobTiles(job: JobAccount | null): Tile[] {
  if (job === null) return [];
  const device = job.device_goodput_ratio === null ? "" : `; device goodput ${percent(job.device_goodput_ratio)}`;
  return [
    tile("JobAccount", job, "goodput_ratio", { value: percent(job.goodput_ratio), caption: `of the job in steps whose result was kept${device}`, testid: "goodput" }),
    tile("JobAccount", job, "first_step_ns", { caption: "from the start of the job", testid: "first-step" }),
  ];
}

/** Count of the ranks; of an import also of those of the job. */
function rankCountText(payload: Payload): string {
  const { rank_count } = payload;
  const absent = missingRanks(payload);
  return absent?.of_count == null ? countOf(rank_count, "rank") : `${count(rank_count)} of ${countOf(absent.of_count, "rank")}`;
}

/** Note on the ranks of which an import has no trace. */
function missingRanks({ nodes, quality }: Payload) {
  return nodes.length > 0 ? undefined : quality.find(({ check }) => check === "missing_rank");
}

function rankCaption({ nodes, recordings, devices }: Payload): string {
  if (nodes.length > 0) return `on ${countOf(nodes.length, "node")}`;
  if (recordings.length === 0) return "no rank was watched";
  return devices.length > 0 ? devices.join(", ") : "in traces";
}

function busyCaption({ gpu_busy_ratio, nodes }: Payload): string {
  if (gpu_busy_ratio === null) return nodes.length > 0 ? "no GPU samples" : "no GPU work in traces";
  return nodes.length > 0 ? "mean over nodes, GPUs and samples" : "of step time in the traces";
}

function costTiles(cost: Payload["money"]): Tile[] {
  if (cost === null) return [];
  return [
    tile("Money", cost, "job_usd", { caption: `${countOf(cost.instance_count, "machine")} at ${dollars(cost.usd_per_hour)} per hour, ${cost.price.said}`, testid: "cost" }),
    ...(cost.step_usd === null
      ? []
      : [tile("Money", cost, "step_usd", {
          caption: cost.suspect_step_usd === null ? null : `${dollars(cost.suspect_step_usd)} of it for the suspect`,
          testid: "step-cost",
        })]),
  ];
}

/** Price with its provider, date and source. */
function PriceSource({ price }: { price: PriceUsed }) {
  const text = `${dollars(price.usd_per_hour)} per hour, ${price.said}`;
  return price.source === null ? <>{text}</> : <>{text}, <a href={price.source} rel="noreferrer">{price.source}</a></>;
}

function Findings({ findings, missing }: { findings: ShortFinding[]; missing: string | null }) {
  if (findings.length === 0) {
    return missing === null ? null : (
      <Panel title="Rule findings" description={missing} wide tools={<a class="quiet" href={link("insights")}>Evaluate now</a>}>
        {null}
      </Panel>
    );
  }
  return (
    <Panel title="Rule findings" wide tools={<a class="quiet" href={link("insights")}>All rules</a>}>
      <ul class="findings">
        {findings.map((finding) => (
          <li key={finding.rule}>
            <a href={link("insights", { rule: finding.rule })}>{finding.rule}</a>
            <span class="muted">{countOf(finding.triggered_count, "trigger")}</span>
            <p><Prose text={finding.sentence} /></p>
          </li>
        ))}
      </ul>
    </Panel>
  );
}

function ConfigurationChanges({ changes }: { changes: ChangedSetting[] }) {
  if (changes.length === 0) return null;
  return (
    <LinkedTable
      id="configuration"
      title="Configuration changes"
      testid="table-configuration"
      tools={<a class="quiet" href={link("configuration")}>Configuration</a>}
      rows={changes}
      fields={columns<"ChangedSetting", ChangedSetting>("ChangedSetting", "changed_ns", "setting", "before", "after", "by")}
    />
  );
}

function Nodes({ nodes }: { nodes: NodeStatus[] }) {
  return (
    <LinkedTable
      id="nodes"
      title="Nodes"
      testid="table-nodes"
      rows={nodes}
      fields={columns<"NodeStatus", NodeStatus>(
        "NodeStatus", "node", "state", ["reason", { value: (row) => (row.monitor_lost ? "monitor lost" : row.reason) }],
        "duration_ns", "gpu_busy_ratio", "cpu_busy_ratio",
      )}
    />
  );
}

function RunFacts({ payload }: { payload: Payload }) {
  const versions = Object.entries(payload.versions).map(([name, version]) => `${name} ${version}`);
  return (
    <Panel title="About this run" wide tools={<a class="quiet" href={link("compare")}>Compare with another run</a>}>
      <KeyValues
        entries={[
          ...entries(
            "Overview", payload,
            ["command", <code key="command">{payload.command.join(" ").slice(0, 2000)}</code>],
            "run_id", "working_directory",
            ["git_revision", payload.git_revision ?? "not in a git repository"],
            ["versions", versions.join(", ")],
          ),
          ...(payload.money === null ? [] : entries("Money", payload.money, ["usd_per_hour", <PriceSource key="price" price={payload.money.price} />])),
          ...(payload.money_missing === null ? [] : [["Cost", <Prose key="cost" text={sentence(payload.money_missing)} />] as const]),
        ]}
      />
    </Panel>
  );
}
