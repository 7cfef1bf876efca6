// Use of the job's machines and time: the job, its nodes, and shares of phases, operators and kernels.
import { useMemo } from "preact/hooks";

import type { Pie } from "../../api/report";
import type { UsageView } from "../../api/views";
import { FigurePanel } from "../../charts/figure_panel";
import { pieOf } from "../../charts/from_payload";
import { LinkedTable } from "../../parts/linked_table";
import { useWholeView } from "../../state/fetch";
import { columns } from "../../widgets/fields";
import { KeyValues } from "../../widgets/key_values";
import { Panel } from "../../widgets/panel";
import { Prose } from "../../widgets/prose";
import { ResourceView } from "../../widgets/resource_view";

/** Upper bound of the slices of a pie in a narrow panel. */
const MAX_NARROW_SLICES = 4;

export function Usage() {
  return <ResourceView resource={useWholeView("usage")} isSecond>{(payload) => <Content payload={payload} />}</ResourceView>;
}

function Content({ payload }: { payload: UsageView }) {
  const { job_parts } = payload;
  const pies = useMemo(
    () => payload.framework.map((shares) => pieOf(shares.title, shares)).filter(({ slices }) => slices.length > 0),
    [payload],
  );
  const isNarrow = ({ slices }: Pie): boolean => slices.length <= MAX_NARROW_SLICES;
  return (
    <>
      <div class={job_parts === null ? "panels" : "panels side-by-side"}>
        {job_parts === null ? null : <FigurePanel testid="job-parts" block={pieOf(job_parts.title, job_parts)} />}
        <Panel title="Training job summary" wide={job_parts === null} testid="training-job">
          <KeyValues entries={Object.entries(payload.job)} />
          <Sentences texts={payload.job_notes} />
        </Panel>
      </div>
      {payload.nodes.length === 0 ? (
        <Panel title="System usage statistics" wide testid="system-usage"><Sentences texts={payload.node_notes} /></Panel>
      ) : (
        <LinkedTable
          id="usage"
          title="System usage statistics"
          testid="system-usage"
          definition={`Shares are of ${payload.nodes_of}.`}
          introduction={<Sentences texts={payload.node_notes} />}
          rows={payload.nodes}
          fields={columns("NodeStatistics", "node", "metric", "max", "p99", "p95", "p50", "min")}
        />
      )}
      <Panel title="Framework metrics summary" wide testid="framework-usage">
        <Sentences texts={[...payload.framework_notes, ...payload.missing_notes]} />
      </Panel>
      <Pies pies={pies.filter(isNarrow)} layout="pies" />
      <Pies pies={pies.filter((pie) => !isNarrow(pie))} layout="halves" />
    </>
  );
}

function Sentences({ texts }: { texts: readonly string[] }) {
  return <ul class="plain">{texts.map((text) => <li key={text}><Prose text={text} /></li>)}</ul>;
}

function Pies({ pies, layout }: { pies: readonly Pie[]; layout: "pies" | "halves" }) {
  if (pies.length === 0) return null;
  return (
    <div class={`panels ${layout}`}>
      {pies.map((pie) => <FigurePanel key={pie.title} testid="framework-share" block={pie} />)}
    </div>
  );
}
