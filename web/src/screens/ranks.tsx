// Ranks: who makes the others wait, when, by how much and why; and their collectives.
import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";

import type { DistributedView, NodesView, RanksView } from "../api/views";
import { countOf, duration } from "../base/quantities";
import { LinkedTable } from "../parts/linked_table";
import { rowKey } from "../parts/row_key";
import { useCarryOver, useCommunication, useSelect } from "../parts/url_controls";
import { useText } from "../parts/url_options";
import { useView } from "../state/fetch";
import { columns } from "../widgets/fields";
import { Fold } from "../widgets/fold";
import { PageHeader } from "../widgets/page_header";
import { EmptyState, QualityNotes, ResourceView } from "../widgets/resource_view";
import { Communication } from "./ranks/communication";
import { rankFields } from "./ranks/fields";
import { RankDetail } from "./ranks/rank_detail";
import { RankMap } from "./ranks/rank_map";
import { durationRows, lateRows, type RankMap as RankMapRows } from "./ranks/rows";

export default function Ranks() {
  const [carryOver, carryOverSelect] = useCarryOver();
  const [communication, communicationSelect] = useCommunication();
  const ranks = useView("ranks", {});
  const nodes = useView("nodes", {});
  const distributed = useView("distributed", { carry_over: carryOver, communication });
  return (
    <>
      <PageHeader title="Ranks" />
      <ResourceView resource={ranks}>
        {(payload) => (payload.map === null ? null : <LateRanks payload={payload} />)}
      </ResourceView>
      <ResourceView resource={distributed} isSecond>
        {(payload) => <Distributed payload={payload} ranks={ranks.data} tools={payload.windows.length === 0 ? null : <>{carryOverSelect}{communicationSelect}</>} />}
      </ResourceView>
      <ResourceView resource={nodes} isSecond>{(payload) => <Nodes payload={payload} />}</ResourceView>
    </>
  );
}

function LateRanks({ payload }: { payload: RanksView }) {
  const map = useMemo(() => lateRows(payload), [payload]);
  const basis = `${countOf(payload.step_count, "step")}: ${payload.share_of}. Transfer ${duration(payload.mean_transfer_ns)} a step.`;
  const table = (
    <LinkedTable
      id="late-ranks"
      title="Lateness by rank"
      testid="table-late-ranks"
      description={basis}
      definition={payload.persistence_of}
      rows={payload.ranks}
      keyOf={(row) => rowKey(row.rank)}
      fields={rankFields(payload.ranks)}
    />
  );
  return (
    <>
      <h2 class="answer" data-testid="late-ranks">{payload.sentence}</h2>
      <QualityNotes quality={[]} range={payload.range} notes={payload.notes} />
      {map === null ? null : <LinkedRanks map={map} payload={payload} />}
      {payload.ranks.some(({ persistence }) => persistence !== null) ? table : <Fold title="Lateness by rank" about={basis}>{table}</Fold>}
    </>
  );
}

/** Map with the details of one rank, by default the latest. */
function LinkedRanks({ map, payload }: { map: RankMapRows; payload: RanksView }) {
  const [text, setText] = useText("rank");
  const rank = payload.ranks.find((candidate) => candidate.rank === text) ?? payload.ranks[0];
  return (
    <div class="rank-panels">
      <RankMap map={map} definition={`Lateness: ${payload.lateness_of}.`} selected={rank?.rank ?? null} onSelect={setText} />
      {rank === undefined ? null : <RankDetail rank={rank} isOfSentence={rank === payload.ranks[0] && rank.persistence !== null} latestStep={rank.persistence === null ? null : latestStep(map, rank.rank)} />}
    </div>
  );
}

/** Step in which a rank is latest; null if columns are several steps, or it is late in none. */
function latestStep(map: RankMapRows, name: string): number | null {
  const cells = map.rows.find((row) => row.name === name)?.cells.map((cell) => cell ?? 0) ?? [];
  const column = cells.reduce((best, value, index) => (value > (cells[best] ?? 0) ? index : best), 0);
  return map.stepsPerColumn > 1 || (cells[column] ?? 0) <= 0 ? null : Number(map.steps[column]);
}

/** Collectives; and the durations of steps where lateness is not known. */
function Distributed({ payload, ranks, tools }: { payload: DistributedView; ranks: RanksView | null; tools: ComponentChildren }) {
  const { windows, matrix } = payload;
  const [selected, windowSelect] = useSelect("window", "Window", windows.map((candidate) => candidate.name));
  const window = windows.find((candidate) => candidate.name === selected);
  const isLatenessMissing = ranks !== null && ranks.map === null;
  const map = useMemo(() => (isLatenessMissing ? durationRows(payload, window) : null), [payload, window, isLatenessMissing]);
  const isComparable = !isLatenessMissing || (map?.rows.length ?? 0) > 1 || (window?.collectives.length ?? 0) > 0;
  return (
    <>
      {isLatenessMissing ? (
        <>
          {payload.sentence === null
            ? <EmptyState title="No ranks to compare" text={ranks.sentence} />
            : <h2 class="answer" data-testid="late-ranks">{payload.sentence}</h2>}
        </>
      ) : null}
      {map === null || !isComparable ? null : <div class="rank-panels"><RankMap map={map} definition={`Bars: ${payload.share_of}.`} selected={null} /></div>}
      {payload.missing === null ? null : <EmptyState text={payload.missing} />}
      <QualityNotes quality={payload.quality} notes={[...(window?.notes ?? []), ...(matrix?.notes ?? [])]} />
      {isComparable || window !== undefined ? <Communication payload={payload} window={window} tools={windowSelect === null && tools === null ? null : <>{windowSelect}{tools}</>} /> : null}
    </>
  );
}

function Nodes({ payload }: { payload: NodesView }) {
  if (payload.nodes.length < 2) return null;
  const clocks = payload.clocks === null ? [] : (["clock_offset_ns", "clock_residual_ns"] as const);
  return (
    <LinkedTable
      id="nodes"
      title="Nodes"
      testid="table-nodes"
      description={payload.clocks === null ? payload.sentence : `${payload.sentence} ${payload.clocks}`}
      rows={payload.nodes}
      keyOf={(row) => rowKey(row.node)}
      fields={columns(
        "NodeRow", "node", "ranks", "late_ranks", "late_ratio", "mean_lateness_ns", "mean_waiting_ns", ...clocks,
      )}
    />
  );
}
