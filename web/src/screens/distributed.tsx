// Ranks of a job: computation, waiting and stragglers.
import type { DistributedView, RankTime, RankWindow } from "../api/views";
import { count, duration, percent } from "../base/quantities";
import { FigurePanel } from "../charts/figure_panel";
import { useCarryOver } from "../parts/carry_over";
import { LinkedTable } from "../parts/linked_table";
import { rowKey } from "../parts/row_key";
import { useOption } from "../parts/url_options";
import { useView } from "../state/fetch";
import { bar, column, field } from "../widgets/fields";
import { PageHeader } from "../widgets/page_header";
import { ResourceView, QualityNotes, EmptyState } from "../widgets/resource_view";
import { Select } from "../widgets/select";
import { Tiles } from "../widgets/tiles";
import { Collectives } from "./distributed/collectives";
import { rankTimeFigure, rankName, stepNames, transferFigure } from "./distributed/figures";
import { Stragglers } from "./distributed/stragglers";

export default function Distributed() {
  const [carryOver, carryOverSelect] = useCarryOver();
  const resource = useView("distributed", { carry_over: carryOver });
  return (
    <>
      <PageHeader title="Distributed">{carryOverSelect}</PageHeader>
      <ResourceView resource={resource}>{(payload) => <Content payload={payload} />}</ResourceView>
    </>
  );
}

function Content({ payload }: { payload: DistributedView }) {
  const { windows, matrix } = payload;
  const [selected, setSelected] = useOption("window", windows.length === 0 ? [""] : windows.map((candidate) => candidate.name));
  const window = windows.find((candidate) => candidate.name === selected);
  return (
    <>
      <QualityNotes quality={payload.quality} range={payload.range} notes={[...(window?.notes ?? []), ...(matrix?.notes ?? [])]} />
      {windows.length < 2 ? null : (
        <p class="tools spaced">
          <Select label="Window" value={selected} choices={windows.map((candidate) => candidate.name)} onChange={setSelected} />
        </p>
      )}
      {payload.missing === null ? null : <EmptyState text={payload.missing} />}
      {window === undefined ? null : <Window window={window} payload={payload} />}
      {matrix === null ? null : <Stragglers matrix={matrix} />}
    </>
  );
}

function Window({ window, payload }: { window: RankWindow; payload: DistributedView }) {
  const { ranks } = window;
  const steps = stepNames(ranks);
  const [step, setStep] = useOption("step", ["", ...steps]);
  const rankTime = rankTimeFigure(ranks, step);
  const transfer = transferFigure(ranks, step);
  const stepSelect =
    steps.length === 0 ? null : (
      <Select label="Step" value={step} choices={[["", "full trace"], ...steps]} onChange={setStep} />
    );
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
        fields={[
          column<RankTime>("rank", "rank", "none", rankName),
          field("total_ns"),
          bar("computation_ratio", "computation"),
          bar("overlap_ratio", "overlap"),
          bar("communication_ratio", "communication"),
          bar("other_ratio", "other"),
          field("hidden_ratio", { label: "hidden", description: "Share of collective time that overlaps with computation" }),
          field("collective_count", { label: "collectives" }),
          field("matched_count", { label: "matched" }),
          field("transfer_ns"),
          field("waiting_ns"),
          field("unmatched_ns"),
          field("last_count", { label: "last to arrive", description: "Matched collectives that this rank entered last" }),
          field("missing", { label: "note" }),
        ]}
      />
      <Collectives window={window} bandwidthOf={payload.bandwidth_of} />
    </>
  );
}

function OneRank({ rank }: { rank: RankTime }) {
  return (
    <Tiles
      tiles={[
        { label: "Computation", value: percent(rank.computation_ratio, 1), caption: duration(rank.computation_ns) },
        { label: "Overlap", value: percent(rank.overlap_ratio, 1), caption: duration(rank.overlap_ns) },
        { label: "Communication", value: percent(rank.communication_ratio, 1), caption: duration(rank.communication_ns) },
        { label: "Other", value: percent(rank.other_ratio, 1), caption: duration(rank.other_ns) },
        { label: "Collectives", value: count(rank.collective_count), caption: `${percent(rank.hidden_ratio, 1)} of their time is hidden` },
      ]}
    />
  );
}
