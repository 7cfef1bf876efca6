// Communication: collectives, their arrival on ranks, and the time of ranks in traces.
import type { ComponentChildren } from "preact";

import type { Arrivals as ArrivalsPayload, DistributedView, RankWindow } from "../../api/views";
import { sentence } from "../../base/text";
import { FigurePanel } from "../../charts/figure_panel";
import { LinkedTable } from "../../parts/linked_table";
import { rowKey } from "../../parts/row_key";
import { useSelect } from "../../parts/url_controls";
import { param } from "../../state/url";
import { columns } from "../../widgets/fields";
import { Collectives } from "./collectives";
import { rankName, rankTimeFigure, stepNames, transferFigure } from "./trace_figures";
import { Stragglers } from "./stragglers";

const step = param("step");

interface Props {
  payload: DistributedView;
  window: RankWindow | undefined;
  /** Controls of what is counted, and of which window. */
  tools: ComponentChildren;
}

export function Communication({ payload, window, tools }: Props) {
  const definition = `Communication: ${payload.communication_of}.`;
  return (
    <>
      {tools === null ? null : <p class="tools spaced">{tools}</p>}
      {window === undefined ? null : <Collectives window={window} communicationOf={definition} bandwidthOf={payload.bandwidth_of} />}
      <Arrivals arrivals={payload.arrivals} />
      <details class="panels-fold" open={step.value !== null && step.value !== ""}>
        <summary>Time of ranks in the traces, and the slowest rank of each step</summary>
        {window === undefined ? null : <RankTimes window={window} payload={payload} communicationOf={definition} />}
        {payload.matrix === null ? null : <Stragglers matrix={payload.matrix} />}
      </details>
    </>
  );
}

/** Shares are bars below the table, too. */
const WITHOUT_BAR = { display: "" };

function RankTimes({ window, payload, communicationOf }: { window: RankWindow; payload: DistributedView; communicationOf: string }) {
  const { ranks } = window;
  const [step, stepSelect] = useSelect("step", "Step", [["", "full trace"], ...stepNames(ranks)]);
  const rankTime = rankTimeFigure(ranks, step);
  const transfer = transferFigure(ranks, step);
  return (
    <>
      <LinkedTable
        title="Ranks in the traces"
        testid="table-ranks"
        definition={`Shares are of ${payload.share_of}. ${communicationOf}`}
        rows={ranks}
        keyOf={(row) => rowKey(rankName(row))}
        fields={columns(
          "RankTime", ["rank", { value: rankName }], "total_ns",
          ...(["computation_ratio", "overlap_ratio", "communication_ratio", "other_ratio", "hidden_ratio"] as const).map((name) => [name, WITHOUT_BAR] as const),
          "collective_count", "transfer_ns", "waiting_ns", "unmatched_ns", "last_count", "missing",
        )}
      />
      <div class="panels spaced">
        <FigurePanel wide={transfer === null} testid="rank-time" block={rankTime} definition={`Shares are of ${payload.share_of}.`} tools={stepSelect} />
        {transfer === null ? null : <FigurePanel testid="rank-waiting" block={transfer} definition={payload.transfer_of} />}
      </div>
    </>
  );
}

function Arrivals({ arrivals }: { arrivals: ArrivalsPayload }) {
  const { ranks, notes } = arrivals;
  if (ranks.length === 0) return null;
  return (
    <LinkedTable
      title="Collectives of the job"
      testid="table-arrivals"
      description={notes.length === 0 ? null : notes.map(sentence).join(" ")}
      definition={`Lateness: ${arrivals.lateness_of}.`}
      rows={ranks}
      keyOf={(row) => rowKey(row.rank)}
      fields={columns(
        "RankArrival", "rank", "node", "call_count", "matched_count", "last_count", "last_ratio",
        "median_ns", "p95_ns", "mean_ns", "caused_wait_ns",
      )}
    />
  );
}
