// Scalars logged by the training script, as curves, and statistics of tensors.
import type { ScalarSeries, TensorsView } from "../api/views";
import { countOf } from "../base/quantities";
import { LinkedTable } from "../parts/linked_table";
import { rowKey } from "../parts/row_key";
import { TimePanel } from "../parts/time_panel";
import { useText } from "../parts/url_options";
import { useView } from "../state/fetch";
import { columns, innerColumns } from "../widgets/fields";
import { PageHeader } from "../widgets/page_header";
import { ResourceView, QualityNotes, EmptyState } from "../widgets/resource_view";
import { scalarPlots } from "./tensors/figures";

export default function Tensors() {
  const resource = useView("tensors");
  const [filter, setFilter] = useText("name");
  return (
    <>
      <PageHeader title="Tensors">
        <label class="choice">
          <span>Name</span>
          <input type="search" placeholder="any" value={filter} onInput={(event) => { setFilter(event.currentTarget.value); }} />
        </label>
      </PageHeader>
      <ResourceView resource={resource}>{(payload) => <Content payload={payload} filter={filter} />}</ResourceView>
    </>
  );
}

/** Upper bound of plots drawn at once. */
const MAX_PLOTS = 24;

function Content({ payload, filter }: { payload: TensorsView; filter: string }) {
  if (payload.missing !== null) {
    return (
      <>
        <EmptyState title="No scalars logged" text={payload.missing} />
        <p class="muted centred">{payload.tensors_missing}</p>
      </>
    );
  }
  const query = filter.trim().toLowerCase();
  const rows = payload.scalars.filter((series) => series.name.toLowerCase().includes(query));
  const tensors = payload.tensors.filter((tensor) => tensor.name.toLowerCase().includes(query));
  const plots = scalarPlots(rows);
  const hiddenCount = Math.max(0, plots.length - MAX_PLOTS);
  return (
    <>
      <QualityNotes
        quality={[]}
        range={payload.range}
        notes={[
          ...(payload.tensors_missing === null ? [] : [payload.tensors_missing]),
          ...(payload.left_out_tensor_count > 0 ? [`${countOf(payload.left_out_tensor_count, "more tensor")} are omitted to limit the size of the response`] : []),
          ...(payload.left_out_count > 0 ? [`${countOf(payload.left_out_count, "more series", "more series")} are omitted to limit the size of the response`] : []),
          ...(hiddenCount > 0 ? [`showing the first ${MAX_PLOTS} names; filter by name to see others`] : []),
        ]}
      />
      <div class="panels">
        {plots.slice(0, MAX_PLOTS).map((plot) => <TimePanel key={plot.title} block={plot} />)}
      </div>
      {rows.length === 0 ? null : <ScalarTable rows={rows} />}
      {tensors.length === 0 ? null : (
        <LinkedTable
          title="Recorded tensors"
          testid="table-tensors"
          rows={tensors}
          keyOf={(row) => rowKey(row.name, row.mode, row.rank)}
          fields={columns(
            "RecordedTensor", "name", "rank", "shape", "dtype", "record_count", "step", "l2_by_step", "l2", "update_ratio",
            "mean", "standard_deviation", "min", "max", "zero_ratio", "non_finite_count",
          )}
        />
      )}
    </>
  );
}

function ScalarTable({ rows }: { rows: ScalarSeries[] }) {
  return (
    <LinkedTable
      title="Logged scalars"
      testid="table-scalars"
      rows={rows}
      keyOf={(row) => rowKey(row.name, row.process)}
      fields={columns(
        "ScalarSeries", "name", "rank", "process",
        ...innerColumns("Statistics", "none", (row: ScalarSeries) => row.statistics, "count", "mean", "min", "p50", "max").map((field) => ({ ...field, numeric: true })),
        "nan_count",
      )}
    />
  );
}
