// Late ranks: who makes the others wait, when, by how much and why.
import { useMemo } from "preact/hooks";

import type { NodesView, RankLateness, RanksView } from "../api/views";
import { countOf, duration } from "../base/quantities";
import { FigurePanel } from "../charts/figure_panel";
import { LinkedTable } from "../parts/linked_table";
import { rowKey } from "../parts/row_key";
import { useView } from "../state/fetch";
import { columns } from "../widgets/fields";
import { PageHeader } from "../widgets/page_header";
import { EmptyState, QualityNotes, ResourceView } from "../widgets/resource_view";
import { rankFields } from "./ranks/fields";
import { latenessGrid } from "./ranks/figures";

export default function Ranks() {
  const ranks = useView("ranks", {});
  const nodes = useView("nodes", {});
  return (
    <>
      <PageHeader title="Ranks" />
      <ResourceView resource={ranks}>{(payload) => <LateRanks payload={payload} />}</ResourceView>
      <ResourceView resource={nodes} isSecond>{(payload) => <Nodes payload={payload} />}</ResourceView>
    </>
  );
}

function LateRanks({ payload }: { payload: RanksView }) {
  const grid = useMemo(() => latenessGrid(payload), [payload]);
  if (grid === null) return <EmptyState text={payload.missing ?? payload.sentence} />;
  const basis = `${countOf(payload.step_count, "step")}: ${payload.share_of}. Transfer ${duration(payload.mean_transfer_ns)} a step.`;
  return (
    <>
      <h2 data-testid="late-ranks">{payload.sentence}</h2>
      <QualityNotes quality={[]} range={payload.range} notes={payload.notes} />
      <div class="panels spaced">
        <FigurePanel wide testid="lateness-map" block={grid} description={`Lateness: ${payload.lateness_of}.`} />
      </div>
      <LinkedTable
        id="late-ranks"
        title="Ranks"
        testid="table-late-ranks"
        description={`${basis} ${payload.persistence_of}.`}
        rows={payload.ranks}
        keyOf={(row: RankLateness) => rowKey(row.rank)}
        fields={rankFields(payload.ranks)}
      />
    </>
  );
}

function Nodes({ payload }: { payload: NodesView }) {
  if (payload.nodes.length === 0) return null;
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
