// Steps of the job as watched, and of the traces.
import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";

import type { RankStepsView, StepSeries, StepsView, TraceStepsView } from "../api/views";
import type { Resource } from "../base/client";
import { count, countOf, duration, number, percent } from "../base/quantities";
import { phaseName } from "../base/phase_names";
import { capitalize } from "../base/text";
import { FigurePanel } from "../charts/figure_panel";
import { LinkedTable } from "../parts/linked_table";
import { rowKey } from "../parts/row_key";
import { describePoints, describeSteps, stripFigure, stripHandlers, type MeanPhase } from "../parts/step_series";
import { StuckJob } from "../parts/stuck_job";
import { StepLink } from "../parts/timeline_link";
import { TraceSelect, selectedTrace, useTraces } from "../parts/trace_screen";
import { useCarryOver, useSelect } from "../parts/url_controls";
import { useText } from "../parts/url_options";
import { useView } from "../state/fetch";
import { columns, innerColumns, tile } from "../widgets/fields";
import { Fold } from "../widgets/fold";
import { Answer, PageHeader } from "../widgets/page_header";
import { Panel } from "../widgets/panel";
import { Prose } from "../widgets/prose";
import { ResourceView, QualityNotes, EmptyState } from "../widgets/resource_view";
import { Tiles } from "../widgets/tiles";
import { phaseFigure } from "./steps/figures";

export default function Steps() {
  return (
    <ResourceView resource={useTraces()}>
      {({ recordings }) => (
        <Screen trace={selectedTrace(recordings)?.trace ?? null} traceSelect={<TraceSelect traces={recordings} />} />
      )}
    </ResourceView>
  );
}

function Screen({ trace, traceSelect }: { trace: string | null; traceSelect: ComponentChildren }) {
  const [carryOver] = useCarryOver();
  // With a trace named, the view would omit the steps of the watched job.
  const resource = useView("steps", { carry_over: carryOver });
  return (
    <>
      <PageHeader title="Steps">{traceSelect}</PageHeader>
      <StuckJob />
      <ResourceView resource={resource}>{(payload) => <Content payload={payload} selectedTrace={trace} />}</ResourceView>
    </>
  );
}

function Content({ payload, selectedTrace }: { payload: StepsView; selectedTrace: string | null }) {
  if (payload.ranks.length === 0 && payload.traces.length === 0) {
    return <EmptyState text={payload.missing ?? "no steps were recorded"} />;
  }
  return (
    <>
      {payload.ranks.length === 0 ? null : (
        <WatchedSteps ranks={payload.ranks} shareOf={payload.share_of}>
          {payload.stages === null ? null : <p class="muted" data-testid="mixed-stages"><Prose text={payload.stages} /></p>}
        </WatchedSteps>
      )}
      {payload.traces.filter(({ trace }) => trace === selectedTrace).map((trace) => (
        <TraceFold key={trace.trace} trace={trace} isFolded={payload.ranks.length > 0}><TraceSteps trace={trace} /></TraceFold>
      ))}
      <QualityNotes quality={payload.quality} range={payload.range} />
    </>
  );
}

/** Steps of a trace: folded below those of the watched job. */
function TraceFold({ trace, isFolded, children }: { trace: TraceStepsView; isFolded: boolean; children: ComponentChildren }) {
  if (!isFolded) return <>{children}</>;
  const mean = trace.step_count === 0 ? "" : `, mean ${duration(trace.mean_step_ns)}`;
  return (
    <Fold title={`Steps of the trace${trace.rank === null ? "" : ` of rank ${trace.rank}`}`} about={`${countOf(trace.step_count, "step")}${mean}`}>
      {children}
    </Fold>
  );
}

function WatchedSteps({ ranks, shareOf, children }: { ranks: RankStepsView[]; shareOf: string; children: ComponentChildren }) {
  const [first] = ranks;
  if (ranks.length > 1) {
    return (
      <>
        <Strip ranks={ranks} />
        {children}
        <div class="panels"><FigurePanel wide testid="step-phases" block={phaseFigure(ranks)} /></div>
        <RankTable ranks={ranks} shareOf={shareOf} />
      </>
    );
  }
  if (first === undefined) return null;
  return (
    <>
      <Strip ranks={ranks} />
      {children}
      <RankTiles rank={first} />
      <PhaseTable rank={first} shareOf={shareOf} />
      <Fold title="More figures" about="percentiles, evaluation, source of the steps, outliers">
        <RankTable ranks={ranks} shareOf={shareOf} />
        <Outliers rank={first} />
      </Fold>
    </>
  );
}

function RankTable({ ranks, shareOf }: { ranks: RankStepsView[]; shareOf: string }) {
  return (
    <LinkedTable
      title={ranks.length > 1 ? "Steps by rank" : "Steps of the job"}
      testid="table-steps"
      definition="Watched over the full job; steps under the profiler and evaluation steps are excluded."
      rows={ranks}
      keyOf={(row) => rowKey(row.rank)}
      renderSelected={ranks.length === 1 ? undefined : (row) => <><PhaseTable rank={row} shareOf={shareOf} /><Outliers rank={row} /></>}
      fields={columns(
        "RankStepsView", "rank", "step_count", "measured_count", "profiled_count",
        ...innerColumns("Statistics", "ns", (row: RankStepsView) => row.step_ns, "mean", "p50", "p95", "p99", "max", "outlier_count"),
        "evaluation_ns", "source", "clock",
      )}
    />
  );
}

/** Steps over their numbers. */
function Strip({ ranks }: { ranks: readonly RankStepsView[] }) {
  const [rank] = useText("rank");
  return <SeriesPanel resource={useView("step-series", { rank })} phasesOf={(name) => ranks.find((candidate) => candidate.rank === name)?.phases} />;
}

interface SeriesProps {
  resource: Resource<StepSeries>;
  /** Phases of the rank of a name. */
  phasesOf: (rank: string) => readonly MeanPhase[] | undefined;
  tools?: ComponentChildren;
}

function SeriesPanel({ resource, phasesOf, tools }: SeriesProps) {
  return (
    <ResourceView resource={resource} isSecond>
      {(series) => (series.steps.length === 0
        ? <EmptyState text={series.missing ?? "no steps in this range"} />
        : <StripPanel series={series} phases={phasesOf(series.rank?.name ?? "")} tools={tools} />)}
    </ResourceView>
  );
}

const STRIP_HEIGHT = 330;
/** Narrower windows have no room for a histogram. */
const WIDE = "(min-width: 700px)";
const SCALES = ["linear", "logarithmic"] as const;

function StripPanel({ series, phases, tools }: { series: StepSeries; phases: readonly MeanPhase[] | undefined; tools: ComponentChildren }) {
  const [scale, scaleSelect] = useSelect("scale", "Scale", SCALES);
  const ranks = series.ranks.flatMap(({ rank: value, name }) => (value === null ? [] : [[String(value), name] as const]));
  const [, rankSelect] = useSelect("rank", "Rank", ranks, series.rank?.rank == null ? undefined : String(series.rank.rank));
  const block = useMemo(
    () => ({
      ...stripFigure(series, { height: STRIP_HEIGHT, isLog: scale === "logarithmic", hasHistogram: window.matchMedia(WIDE).matches }),
      note: describePoints(series),
    }),
    [series, scale],
  );
  return (
    <>
      <Answer text={`${describeSteps(series, phases)}.`} />
      <div class="panels">
        <FigurePanel wide testid="step-strip" block={block} tools={<>{tools === undefined ? rankSelect : tools}{scaleSelect}</>} {...stripHandlers(series)} />
      </div>
    </>
  );
}

function RankTiles({ rank }: { rank: RankStepsView }) {
  return (
    <Tiles
      tiles={[
        tile("Statistics", rank.step_ns, "mean", { unit: "ns", label: "Mean step", caption: `of ${count(rank.measured_count)} measured steps`, testid: "step-mean" }),
        tile("Statistics", rank.step_ns, "p50", { unit: "ns", label: "Median", testid: "step-p50" }),
        tile("Statistics", rank.step_ns, "p95", { unit: "ns", label: "p95", testid: "step-p95" }),
        tile("Statistics", rank.step_ns, "outlier_count", { caption: rank.step_ns === null ? null : `longer than ${duration(rank.step_ns.outlier_threshold)}` }),
        tile("RankStepsView", rank, "step_count", { caption: rank.fetches_per_step ? `batches per step: ${number(rank.fetches_per_step)}` : null }),
      ]}
    />
  );
}

/** Upper bound of listed outlier steps. */
const MAX_OUTLIERS = 24;

function PhaseTable({ rank, shareOf }: { rank: RankStepsView; shareOf: string }) {
  return (
    <LinkedTable
      id="phases"
      title={`Phases of a step, ${rank.rank}`}
      testid="table-phases"
      definition={`Shares are of ${shareOf}.`}
      rows={rank.phases.filter((phase) => phase.mean_ns > 0)}
      fields={columns("PhaseShare", ["name", { value: (row) => phaseName(row.name) }], "share_ratio", "mean_ns", "p50_ns", "p95_ns")}
    />
  );
}

function Outliers({ rank }: { rank: RankStepsView }) {
  if (rank.outlier_steps.length === 0) return null;
  return (
    <Panel title="Outlier steps" description="Longest first; select a step to show it on the timeline.">
      <p class="links">
        {rank.outlier_steps.slice(0, MAX_OUTLIERS).map((step) => (
          <StepLink key={step} step={step} rank={rank.rank} />
        ))}
      </p>
    </Panel>
  );
}

/** Columns of a traced step that have a value in one. */
const PARTS = [
  "kernel_ns", "memcpy_ns", "memset_ns", "communication_ns", "runtime_ns", "data_loader_ns", "cpu_exec_ns", "other_ns", "device_work_count",
] as const;

function TraceSteps({ trace }: { trace: TraceStepsView }) {
  const [carryOver, carryOverSelect] = useCarryOver();
  const series = useView("step-series", { trace: trace.trace, carry_over: carryOver });
  return (
    <>
      {trace.step_count === 0 ? <QualityNotes quality={trace.quality} notes={trace.notes} /> : (
        <>
          <SeriesPanel resource={series} phasesOf={() => trace.categories.map(({ category, ...times }) => ({ name: category, ...times }))} tools={carryOverSelect} />
          <QualityNotes quality={trace.quality} notes={trace.notes} />
          <Tiles
            tiles={[
              tile("TraceStepsView", trace, "mean_step_ns", { caption: `of ${countOf(trace.measured_count, "step")}${trace.share_of.replace("mean step", "")}`, testid: "recorded-step-mean" }),
              tile("TraceStepsView", trace, "step_count", { caption: trace.cut_off.length === 0 ? null : `${trace.cut_off.length} incomplete steps excluded` }),
              ...trace.categories
                .filter((category) => (category.share_ratio ?? 0) >= 0.05)
                .map((category) => ({
                  label: capitalize(phaseName(category.category)),
                  value: percent(category.share_ratio, 1),
                  caption: `of the mean step, ${duration(category.mean_ns)}`,
                })),
            ]}
          />
          <LinkedTable
            id="recorded"
            title="Traced steps"
            testid="table-recorded-steps"
            definition="Each instant counts for the first active category: kernel, copy, set, communication, runtime call, data loader, other host work."
            rows={trace.steps}
            fields={columns(
              "RecordedStep", "step", "wall_ns",
              ...PARTS.filter((part) => trace.steps.some((step) => step[part])),
            )}
          />
          {trace.host_steps.length === 0 ? null : (
            <Fold title="Steps as marked on the host" about="device work between the marks of the host; it may belong to the previous step">
              <LinkedTable
                id="host"
                title="Steps as marked on the host"
                rows={trace.host_steps}
                fields={columns("HostStep", "step", "host_ns", "computation_ns", "communication_ns", "overlap_ns", "neither_ns")}
              />
            </Fold>
          )}
        </>
      )}
    </>
  );
}
