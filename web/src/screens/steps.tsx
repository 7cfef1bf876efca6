// Steps of the job as watched, and of the traces.
import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";

import type { RankStepsView, StepSeries, StepsView, TraceStepsView } from "../api/views";
import { count, duration, number, percent } from "../base/quantities";
import { capitalize, words } from "../base/text";
import { FigurePanel } from "../charts/figure_panel";
import { LinkedTable } from "../parts/linked_table";
import { rowKey } from "../parts/row_key";
import { describePoints, describeSteps, stripFigure, stripHandlers } from "../parts/step_series";
import { StepLink } from "../parts/timeline_link";
import { TraceSelect, selectedTrace, useTraces } from "../parts/trace_screen";
import { useCarryOver, useSelect } from "../parts/url_controls";
import { useText } from "../parts/url_options";
import { useView, useWholeView } from "../state/fetch";
import { columns, innerColumns, tile } from "../widgets/fields";
import { KeyValues } from "../widgets/key_values";
import { PageHeader } from "../widgets/page_header";
import { Panel } from "../widgets/panel";
import { ResourceView, QualityNotes, EmptyState } from "../widgets/resource_view";
import { Stuck } from "../widgets/stuck";
import { Tiles } from "../widgets/tiles";
import { categoryLabel, phaseFigure, traceStepsFigure } from "./steps/figures";

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
  const [carryOver, carryOverSelect] = useCarryOver();
  // With a trace named, the view would omit the steps of the watched job.
  const resource = useView("steps", { carry_over: carryOver });
  return (
    <>
      <PageHeader title="Steps">
        {traceSelect}
        {trace === null ? null : carryOverSelect}
      </PageHeader>
      <StuckJob />
      <ResourceView resource={resource}>{(payload) => <Content payload={payload} selectedTrace={trace} />}</ResourceView>
    </>
  );
}

/** Where the job is stuck, or was when it failed: no later step will come. */
function StuckJob() {
  const account = useWholeView("overview").data?.verdict.stuck ?? null;
  return account === null ? null : <Stuck account={account} />;
}

function Content({ payload, selectedTrace }: { payload: StepsView; selectedTrace: string | null }) {
  if (payload.ranks.length === 0 && payload.traces.length === 0) {
    return <EmptyState text={payload.missing ?? "no steps were recorded"} />;
  }
  return (
    <>
      <QualityNotes quality={payload.quality} range={payload.range} />
      {payload.stages === null ? null : <p class="muted" data-testid="mixed-stages">{payload.stages}</p>}
      {payload.ranks.length === 0 ? null : <WatchedSteps ranks={payload.ranks} shareOf={payload.share_of} />}
      {payload.traces.filter(({ trace }) => trace === selectedTrace).map((trace) => <TraceSteps key={trace.trace} trace={trace} />)}
    </>
  );
}

function WatchedSteps({ ranks, shareOf }: { ranks: RankStepsView[]; shareOf: string }) {
  const [first] = ranks;
  return (
    <>
      {first === undefined || ranks.length > 1 ? null : <RankTiles rank={first} />}
      <Strip ranks={ranks} />
      {ranks.length > 1 ? <div class="panels"><FigurePanel wide testid="step-phases" block={phaseFigure(ranks)} /></div> : null}
      <LinkedTable
        title={ranks.length > 1 ? "Steps by rank" : "Steps of the job"}
        testid="table-steps"
        definition="Watched over the full job; steps under the profiler and evaluation steps are excluded."
        rows={ranks}
        keyOf={(row) => rowKey(row.rank)}
        renderSelected={(row) => <PhaseTable rank={row} shareOf={shareOf} />}
        fields={columns(
          "RankStepsView", "rank", "step_count", "measured_count", "profiled_count",
          ...innerColumns("Statistics", "ns", (row: RankStepsView) => row.step_ns, "mean", "p50", "p95", "p99", "max", "outlier_count"),
          "evaluation_ns", "source", "clock",
        )}
      />
      {ranks.length > 1 || first === undefined ? null : <PhaseTable rank={first} shareOf={shareOf} />}
    </>
  );
}

/** Steps over their numbers. */
function Strip({ ranks }: { ranks: readonly RankStepsView[] }) {
  const [rank] = useText("rank");
  const resource = useView("step-series", { rank });
  return (
    <ResourceView resource={resource}>
      {(series) => (series.steps.length === 0
        ? <EmptyState text={series.missing ?? "no steps in this range"} />
        : <StripPanel series={series} rank={ranks.find(({ rank: name }) => name === series.rank?.name)} />)}
    </ResourceView>
  );
}

const STRIP_HEIGHT = 360;
/** Narrower windows have no room for a histogram. */
const WIDE = "(min-width: 700px)";
const SCALES = ["linear", "logarithmic"] as const;

function StripPanel({ series, rank }: { series: StepSeries; rank: RankStepsView | undefined }) {
  const [scale, scaleSelect] = useSelect("scale", "Scale", SCALES);
  const ranks = series.ranks.flatMap(({ rank: value, name }) => (value === null ? [] : [[String(value), name] as const]));
  const [, rankSelect] = useSelect("rank", "Rank", ranks);
  const block = useMemo(
    () => ({
      ...stripFigure(series, { height: STRIP_HEIGHT, isLog: scale === "logarithmic", hasHistogram: window.matchMedia(WIDE).matches }),
      note: describePoints(series),
    }),
    [series, scale],
  );
  return (
    <div class="panels">
      <FigurePanel
        wide
        testid="step-strip"
        block={block}
        description={`${describeSteps(series, rank)}.`}
        tools={<>{rankSelect}{scaleSelect}</>}
        {...stripHandlers(series)}
      />
    </div>
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
    <>
      <LinkedTable
        id="phases"
        title={`Phases of a step, ${rank.rank}`}
        testid="table-phases"
        definition={`Shares are of ${shareOf}.`}
        rows={rank.phases.filter((phase) => phase.mean_ns > 0)}
        fields={columns("PhaseShare", ["name", { value: (row) => words(row.name) }], "share_ratio", "mean_ns", "p50_ns", "p95_ns")}
      />
      {rank.outlier_steps.length === 0 ? null : (
        <Panel title="Outlier steps" description="Longest first; select a step to show it on the timeline.">
          <p class="links">
            {rank.outlier_steps.slice(0, MAX_OUTLIERS).map((step) => (
              <StepLink key={step} step={step} rank={rank.rank} />
            ))}
          </p>
        </Panel>
      )}
    </>
  );
}

/** Columns of a traced step that have a value in one. */
const PARTS = [
  "kernel_ns", "memcpy_ns", "memset_ns", "communication_ns", "runtime_ns", "data_loader_ns", "cpu_exec_ns", "other_ns", "device_work_count",
] as const;

function TraceSteps({ trace }: { trace: TraceStepsView }) {
  return (
    <>
      <h2 class="section-title">Steps of the trace {trace.rank === null ? "" : `of rank ${trace.rank}`}</h2>
      <QualityNotes quality={trace.quality} notes={trace.notes} />
      {trace.step_count === 0 ? null : (
        <>
          <Tiles
            tiles={[
              tile("TraceStepsView", trace, "mean_step_ns", { caption: "until its device work has finished", testid: "recorded-step-mean" }),
              tile("TraceStepsView", trace, "step_count", { caption: trace.cut_off.length === 0 ? null : `${trace.cut_off.length} incomplete steps excluded` }),
              ...trace.categories
                .filter((category) => (category.share_ratio ?? 0) >= 0.05)
                .map((category) => ({
                  label: capitalize(categoryLabel(category.category)),
                  value: percent(category.share_ratio, 1),
                  caption: `${duration(category.mean_ns)} per step`,
                })),
            ]}
          />
          <div class="panels">
            <FigurePanel wide block={traceStepsFigure(trace)} testid="recorded-steps" />
          </div>
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
            <LinkedTable
              id="host"
              title="Steps as marked on the host"
              definition="Device work between the marks of the host; it may belong to the previous step."
              rows={trace.host_steps}
              fields={columns("HostStep", "step", "host_ns", "computation_ns", "communication_ns", "overlap_ns", "neither_ns")}
            />
          )}
          <Panel title="About these steps">
            <KeyValues entries={[["Trace", trace.trace.slice(0, 300)], ["Shares are of", trace.share_of]]} />
          </Panel>
        </>
      )}
    </>
  );
}
