// Numbers that the training script logged, as curves.
import type { ScalarSeries, TensorsView } from "../api/views";
import { countOf } from "../base/quantities";
import { TimePanel } from "../parts/time_panel";
import { LinkedTable } from "../parts/linked_table";
import { useText } from "../parts/options";
import { rowKey } from "../parts/row_key";
import { useView } from "../state/fetch";
import { Answer, Doubts, Empty } from "../widgets/answer";
import { column, field } from "../widgets/fields";
import { Head } from "../widgets/head";
import { scalarPlots } from "./tensors/plots";

export default function Tensors() {
  const answer = useView("tensors");
  const [filter, setFilter] = useText("name");
  return (
    <>
      <Head title="Tensors">
        <label class="choice">
          <span>Name</span>
          <input type="search" placeholder="any" value={filter} onInput={(event) => { setFilter(event.currentTarget.value); }} />
        </label>
      </Head>
      <Answer of={answer}>{(payload) => <Content payload={payload} filter={filter} />}</Answer>
    </>
  );
}

/** Curves that are drawn at once. */
const MOST_PLOTS = 24;

function Content({ payload, filter }: { payload: TensorsView; filter: string }) {
  if (payload.scalars.length === 0) {
    return (
      <>
        <Empty title="No numbers were logged" text={payload.missing ?? "nothing was logged"} />
        <p class="muted centred">{payload.tensors_missing}</p>
      </>
    );
  }
  const wanted = filter.trim().toLowerCase();
  const rows = payload.scalars.filter((each) => each.name.toLowerCase().includes(wanted));
  const plots = scalarPlots(rows);
  const left = Math.max(0, plots.length - MOST_PLOTS);
  return (
    <>
      <Doubts
        quality={[]}
        range={payload.range}
        notes={[
          payload.tensors_missing,
          ...(payload.left_out_count > 0 ? [`${countOf(payload.left_out_count, "more series", "more series")} are not shown: there are too many`] : []),
          ...(left > 0 ? [`the first ${MOST_PLOTS} names are drawn; filter by name to see the others`] : []),
        ]}
      />
      <div class="panels">
        {plots.slice(0, MOST_PLOTS).map((plot) => <TimePanel key={plot.title} block={plot} />)}
      </div>
      <LinkedTable
        title="Logged numbers"
        testid="table-scalars"
        rows={rows}
        keyOf={(row) => rowKey(row.name, row.process)}
        fields={[
          field("name"),
          column<ScalarSeries>("rank", "rank", "count", (row) => row.rank),
          field("process"),
          ...(["count", "mean", "min", "p50", "max"] as const).map((which) =>
            column<ScalarSeries>(which, which === "count" ? "values" : which, "none", (row) => row.statistics?.[which] ?? null, { numeric: true }),
          ),
          field("nan_count", { label: "no number" }),
        ]}
      />
    </>
  );
}
