// Ranks of a job: computation, waiting and stragglers.
import type { Arrivals as ArrivalsPayload, DistributedView, RankTime, RankWindow } from "../api/views";
import { duration, percent } from "../base/quantities";
import { FigurePanel } from "../charts/figure_panel";
import { LinkedTable } from "../parts/linked_table";
import { rowKey } from "../parts/row_key";
import { CommunicationDefinition, useCarryOver, useCommunication, useSelect } from "../parts/url_controls";
import { useView } from "../state/fetch";
import { columns, tile } from "../widgets/fields";
import { PageHeader } from "../widgets/page_header";
import { ResourceView, QualityNotes, EmptyState } from "../widgets/resource_view";
import { Tiles } from "../widgets/tiles";
import { Collectives } from "./distributed/collectives";
import { rankTimeFigure, rankName, stepNames, transferFigure } from "./distributed/figures";
import { Stragglers } from "./distributed/stragglers";

export default function Distributed() {
  const [carryOver, carryOverSelect] = useCarryOver();
  const [communication, communicationSelect] = useCommunication();
  const resource = useView("distributed", { carry_over: carryOver, communication });
  return (
    <>
      <PageHeader title="Distributed">{carryOverSelect}{communicationSelect}</PageHeader>
      <ResourceView resource={resource}>{(payload) => <Content payload={payload} />}</ResourceView>
    </>
  );
}

function Content({ payload }: { payload: DistributedView }) {
  const { windows, matrix } = payload;
  const [selected, windowSelect] = useSelect("window", "Window", windows.map((candidate) => candidate.name));
  const window = windows.find((candidate) => candidate.name === selected);
  return (
    <>
      <QualityNotes quality={payload.quality} range={payload.range} notes={[...(window?.notes ?? []), ...(matrix?.notes ?? [])]} />
      {windowSelect === null ? null : <p class="tools spaced">{windowSelect}</p>}
      {payload.missing === null ? null : <EmptyState text={payload.missing} />}
      {window === undefined ? null : <CommunicationDefinition text={payload.communication_of} />}
      {window === undefined ? null : <Window window={window} payload={payload} />}
      <Arrivals arrivals={payload.arrivals} />
      {matrix === null ? null : <Stragglers matrix={matrix} />}
    </>
  );
}

function Window({ window, payload }: { window: RankWindow; payload: DistributedView }) {
  const { ranks } = window;
  const [step, stepSelect] = useSelect("step", "Step", [["", "full trace"], ...stepNames(ranks)]);
  const rankTime = rankTimeFigure(ranks, step);
  const transfer = transferFigure(ranks, step);
  return (
    <>
      {ranks.length === 1 && ranks[0] !== undefined ? <OneRank rank={ranks[0]} /> : null}
      <div class="panels">
        <FigurePanel wide={transfer === null} testid="rank-time" block={rankTime} description={`Shares are of ${payload.share_of}.`} tools={stepSelect} />
        {transfer === null ? null : <FigurePanel testid="rank-waiting" block={transfer} description={payload.transfer_of} />}
      </div>
      <LinkedTable
        title="Ranks"
        testid="table-ranks"
        description={`Shares are of ${payload.share_of}.`}
        rows={ranks}
        keyOf={(row) => rowKey(rankName(row))}
        fields={columns(
          "RankTime", ["rank", { value: rankName }], "total_ns",
          "computation_ratio", "overlap_ratio", "communication_ratio", "other_ratio", "hidden_ratio",
          "collective_count", "matched_count", "transfer_ns", "waiting_ns", "unmatched_ns", "last_count", "missing",
        )}
      />
      <Collectives window={window} bandwidthOf={payload.bandwidth_of} />
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
      description={[`Lateness: ${arrivals.lateness_of}.`, ...notes.map((note) => `${note}.`)].join(" ")}
      rows={ranks}
      keyOf={(row) => rowKey(row.rank)}
      fields={columns(
        "RankArrival", "rank", "node", "call_count", "matched_count", "last_count", "last_ratio",
        "median_ns", "p95_ns", "mean_ns", "caused_wait_ns",
      )}
    />
  );
}

function OneRank({ rank }: { rank: RankTime }) {
  return (
    <Tiles
      tiles={[
        ...(["computation", "overlap", "communication", "other"] as const).map((part) =>
          tile("RankTime", rank, `${part}_ratio`, { caption: duration(rank[`${part}_ns`]) }),
        ),
        tile("RankTime", rank, "collective_count", { caption: `${percent(rank.hidden_ratio, 1)} of their time is hidden` }),
      ]}
    />
  );
}
