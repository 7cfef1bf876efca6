// Input pipeline: waiting for batches, and a breakdown of batch creation.
import type { InputPipelineView, MakingView, RankPipeline, TfDataStageView, TracePipeline, WaitingView } from "../api/views";
import { count, countOf, percent } from "../base/quantities";
import { words } from "../base/text";
import { LinkedTable } from "../parts/linked_table";
import { useSelect } from "../parts/url_controls";
import { useView } from "../state/fetch";
import { columns, innerColumns, labelOf, tile } from "../widgets/fields";
import { KeyValues } from "../widgets/key_values";
import { Answer, PageHeader } from "../widgets/page_header";
import { Panel } from "../widgets/panel";
import { RankedBars } from "../widgets/ranked_bars";
import { ResourceView, QualityNotes, EmptyState } from "../widgets/resource_view";
import { ShareBar } from "../widgets/share_bar";
import { Tiles } from "../widgets/tiles";

export default function InputPipeline() {
  return <ResourceView resource={useView("input-pipeline")}>{(payload) => <Content payload={payload} />}</ResourceView>;
}

function Content({ payload }: { payload: InputPipelineView }) {
  const { ranks } = payload;
  const [selected, rankSelect] = useSelect("rank", "Rank", ranks.map((candidate) => candidate.rank));
  const rank = ranks.find((candidate) => candidate.rank === selected);
  return (
    <>
      <PageHeader title="Input pipeline" definition={`Shares are of ${payload.share_of}.`}>{rankSelect}</PageHeader>
      <Answer text={payload.sentence} />
      <QualityNotes quality={[]} range={payload.range} />
      {rank === undefined ? null : <Rank rank={rank} />}
      {payload.traces.length === 0 ? null : <TraceTable traces={payload.traces} />}
      {payload.tf_data.length === 0 ? null : <TfDataTable stages={payload.tf_data} />}
      {payload.missing === null ? null : <EmptyState text={payload.missing} />}
      {ranks.length < 2 ? null : <RankTable ranks={ranks} />}
    </>
  );
}

function Rank({ rank }: { rank: RankPipeline }) {
  const { waiting, making } = rank;
  if (making === null && !waiting.share_ratio && rank.missing !== null) return <EmptyState text={rank.missing} />;
  return (
    <>
      <Tiles
        tiles={[
          tile("WaitingView", waiting, "share_ratio", { caption: "of step time", testid: "data-wait" }),
          ...(waiting.starved_ratio === null ? [] : [tile("WaitingView", waiting, "starved_ratio", { caption: "of batch requests" })]),
          ...(making === null ? [] : [tile("MakingView", making, "mean_ns", { caption: `mean of ${count(making.batch_count)} batches` })]),
          ...(making === null || making.worker_busy_ratio === null ? [] : [tile("MakingView", making, "worker_busy_ratio", { caption: "of loop time" })]),
        ]}
      />
      <div class="panels">
        {!waiting.share_ratio ? null : (
          <Panel title="Step time by wait" wide>
            <ShareBar label="Step time by wait" segments={waitSegments(waiting, waiting.share_ratio)} />
          </Panel>
        )}
        {making === null ? null : <Stages making={making} />}
        {rank.loader === null ? null : <LoaderSettings loader={rank.loader} cores={rank.cores_available} />}
      </div>
      {rank.missing === null ? null : <EmptyState title="Incomplete data" text={rank.missing} />}
    </>
  );
}

/** Shares of step time, with the remainder. */
function waitSegments(waiting: WaitingView, share_ratio: number) {
  const parts = ["starting_ratio", "making_ratio", "handing_over_ratio"] as const;
  return [
    ...parts.map((part) => ({ name: labelOf("WaitingView", part).title, ratio: waiting[part] ?? 0 })),
    { name: "not waiting for data", ratio: Math.max(0, 1 - share_ratio) },
  ];
}

function Stages({ making }: { making: MakingView }) {
  const transforms = Object.entries(making.transforms).sort(([, a], [, b]) => b - a);
  return (
    <>
      {making.stages.length === 0 ? null : <LinkedTable
        title="Batch creation by stage"
        testid="table-stages"
        description={`Based on ${countOf(making.stack_sample_count, "stack sample")} of the workers${making.cpu_ratio === null ? "" : `; ${percent(making.cpu_ratio, 1)} of the time on CPU`}.`}
        rows={making.stages}
        fields={columns(
          "StageView", "name", "of_making_ratio", "of_step_ratio",
          ["labels", { numeric: false, value: (row) => Object.entries(row.labels).map(([name, ratio]) => `${name} ${percent(ratio, 1)}`).join(", ") }],
        )}
      />}
      {transforms.length === 0 ? null : (
        <Panel title="Transforms" definition="Shares of batch creation time, measured around each transform.">
          <RankedBars
            label="Transforms"
            rows={transforms.map(([name, ratio]) => ({ name, ratio, value: percent(ratio, 1) }))}
          />
        </Panel>
      )}
    </>
  );
}

function LoaderSettings({ loader, cores }: { loader: Record<string, unknown>; cores: number | null }) {
  const settings = Object.entries(loader).filter(([name]) => name !== "fact");
  return (
    <Panel title="DataLoader" wide description={cores === null ? null : `${count(cores)} cores available to the job.`}>
      <KeyValues entries={settings.map(([name, value]) => [words(name), formatSetting(value)] as const)} />
    </Panel>
  );
}

function formatSetting(value: unknown): string {
  if (value === null) return "not set";
  if (typeof value === "boolean") return value ? "yes" : "no";
  return typeof value === "string" || typeof value === "number" ? String(value).slice(0, 400) : JSON.stringify(value).slice(0, 400);
}

function RankTable({ ranks }: { ranks: RankPipeline[] }) {
  return (
    <LinkedTable
      id="ranks"
      title="All ranks"
      rows={ranks}
      fields={columns(
        "RankPipeline", "rank",
        ...innerColumns("WaitingView", "ratio", (row: RankPipeline) => row.waiting, "share_ratio"),
        ...innerColumns("MakingView", "ns", (row: RankPipeline) => row.making, "mean_ns"),
      )}
    />
  );
}

function TraceTable({ traces }: { traces: readonly TracePipeline[] }) {
  return (
    <LinkedTable
      title="Fetches in traces"
      testid="table-traces"
      definition="Fetches of batches by the training thread; waiting is the part that no work of the device hides."
      rows={traces}
      fields={columns(
        "TracePipeline", "rank",
        ["has_workers", { value: (row) => row.has_workers ? "workers" : "training process" }],
        "fetches_per_step", "fetch_step_ns", "exposed_ratio", "copy_ratio",
      )}
    />
  );
}

function TfDataTable({ stages }: { stages: readonly TfDataStageView[] }) {
  return (
    <LinkedTable
      title="Stages of tf.data"
      testid="table-tf-data"
      definition="Time without stages that are called in the same thread, with waits for other threads."
      rows={stages}
      fields={columns("TfDataStageView", "trace", "name", "total_ns", "call_count", "call_ns")}
    />
  );
}
