// Losses and other scalars as curves, and statistics of tensors over the steps.
import type { ScalarSeries, TensorsView } from "../api/views";
import { countOf } from "../base/quantities";
import { sentence } from "../base/text";
import { LinkedTable } from "../parts/linked_table";
import { rowKey } from "../parts/row_key";
import { useSelect } from "../parts/url_controls";
import { useText } from "../parts/url_options";
import { useView } from "../state/fetch";
import { columns, innerColumns } from "../widgets/fields";
import { Answer, PageHeader } from "../widgets/page_header";
import { Prose } from "../widgets/prose";
import { ResourceView, QualityNotes, EmptyState } from "../widgets/resource_view";
import { Curves } from "./tensors/curves";
import { Details } from "./tensors/details";
import { Findings } from "./tensors/findings";
import { tensorKey } from "./tensors/keys";
import { Layers } from "./tensors/layers";

export default function Tensors() {
  const resource = useView("tensors");
  const [filter, setFilter] = useText("name");
  const [scale, scaleSelect] = useSelect("scale", "Scale", ["linear", "log"] as const);
  return (
    <>
      <PageHeader title="Tensors">
        <label class="choice">
          <span>Name</span>
          <input type="search" placeholder="any" value={filter} onInput={(event) => { setFilter(event.currentTarget.value); }} />
        </label>
        {scaleSelect}
      </PageHeader>
      <ResourceView resource={resource}>{(payload) => <Content payload={payload} filter={filter} isLog={scale === "log"} />}</ResourceView>
    </>
  );
}

interface ContentProps {
  payload: TensorsView;
  filter: string;
  isLog: boolean;
}

function Content({ payload, filter, isLog }: ContentProps) {
  const ranks = [...new Set(payload.tensors.map((tensor) => tensor.rank ?? 0))].sort((a, b) => a - b).map((rank) => [String(rank), `rank ${rank}`] as const);
  const [rank, rankSelect] = useSelect("rank", "Layers of", ranks);
  if (payload.missing !== null) {
    return (
      <>
        <EmptyState title="No scalars logged" text={payload.missing} />
        {payload.tensors_missing === null ? null : <p class="muted centred"><Prose text={sentence(payload.tensors_missing)} /></p>}
      </>
    );
  }
  const query = filter.trim().toLowerCase();
  const rows = payload.scalars.filter((series) => series.name.toLowerCase().includes(query));
  const tensors = payload.tensors.filter((tensor) => tensor.name.toLowerCase().includes(query));
  const collections = [...new Set(payload.tensors.map((tensor) => tensor.collection))];
  return (
    <>
      <Answer text={payload.sentence} />
      <QualityNotes
        quality={[]}
        range={payload.range}
        notes={[
          ...(payload.tensors_missing === null ? [] : [payload.tensors_missing]),
          ...(payload.left_out_tensor_count > 0 ? [`${countOf(payload.left_out_tensor_count, "more tensor")} are omitted to limit the size of the response`] : []),
          ...(payload.left_out_count > 0 ? [`${countOf(payload.left_out_count, "more series", "more series")} are omitted to limit the size of the response`] : []),
        ]}
      />
      <Findings payload={payload} />
      <Curves scalars={rows} isLog={isLog} />
      {rows.length === 0 ? null : <ScalarTable rows={rows} />}
      {rankSelect === null ? null : <p class="tools spaced">{rankSelect}</p>}
      <Layers collections={collections} rank={rankSelect === null ? null : rank} />
      {tensors.length === 0 ? null : (
        <LinkedTable
          id="tensor"
          title="Recorded tensors"
          description="Statistics of the last recorded step. Select a tensor to see its statistics and histograms over the steps."
          renderSelected={(row) => <Details tensor={row} findings={payload.findings} log={isLog} />}
          testid="table-tensors"
          rows={tensors}
          keyOf={tensorKey}
          fields={columns(
            "RecordedTensor", "name", tensors.some((row) => row.rank !== null) && "rank", "shape", "dtype", "record_count", "step", "l2", "update_ratio",
            "mean", "standard_deviation", "min", "max", "zero_ratio", "non_finite_count",
            ["rules", { value: (row) => row.rules.join(", ") }],
          )}
        />
      )}
    </>
  );
}

function ScalarTable({ rows }: { rows: ScalarSeries[] }) {
  const hasRanks = rows.some((row) => row.rank !== null);
  return (
    <LinkedTable
      title="Logged scalars"
      testid="table-scalars"
      rows={rows}
      keyOf={(row) => rowKey(row.name, row.process)}
      fields={columns(
        "ScalarSeries", "name", hasRanks && "rank", !hasRanks && new Set(rows.map((row) => row.process)).size > 1 && "process",
        ...innerColumns("Statistics", "none", (row: ScalarSeries) => row.statistics, "count", "mean", "min", "p50", "max").map((field) => ({ ...field, numeric: true })),
        "nan_count",
      )}
    />
  );
}
