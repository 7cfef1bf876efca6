// Statistics of the selected tensor over the steps, and its histograms.
import { useEffect, useRef } from "preact/hooks";

import type { RecordedTensor, TensorFinding, TensorView } from "../../api/views";
import { FigurePanel } from "../../charts/figure_panel";
import { StepLink } from "../../parts/timeline_link";
import { useView } from "../../state/fetch";
import { EmptyState, ResourceView } from "../../widgets/resource_view";
import { histogramFigure, tensorPlots } from "./figures";
import { FindingsOfTensor } from "./findings";

interface Props {
  tensor: RecordedTensor;
  findings: readonly TensorFinding[];
  log: boolean;
}

export function Details({ tensor, findings, log }: Props) {
  const resource = useView("tensor", { name: tensor.name, rank: tensor.rank === null ? null : String(tensor.rank) });
  return <ResourceView resource={resource}>{(payload) => <Content payload={payload} tensor={tensor} findings={findings} log={log} />}</ResourceView>;
}

function Content({ payload, tensor, findings, log }: Props & { payload: TensorView }) {
  const section = useRef<HTMLElement>(null);
  useEffect(() => {
    section.current?.scrollIntoView({ block: "nearest" }); // a finding far above may have selected it
  }, [payload.name, payload.rank]);
  if (payload.missing !== null) return <EmptyState text={payload.missing} />;
  const column = payload.first_step.findIndex((_, index) => (payload.nan_count[index] ?? 0) + (payload.infinite_count[index] ?? 0) > 0);
  const firstBroken = payload.first_step[column];
  const rank = payload.rank === null ? "" : `rank ${payload.rank}`;
  return (
    <section ref={section} aria-label={`Tensor ${payload.name}`} data-testid="tensor-details">
      <header class="head section-title"><h2 class="name">{payload.name}</h2></header>
      <FindingsOfTensor tensor={tensor} findings={findings} />
      {firstBroken === undefined ? null : (
        <p>First step with NaN or infinite elements: <StepLink step={firstBroken} rank={rank} /></p>
      )}
      <div class="panels">
        {tensorPlots(payload, log).map((plot) => <FigurePanel key={plot.title} block={plot} />)}
        {payload.histogram === null ? null : <FigurePanel wide testid="tensor-histogram" block={histogramFigure(payload.histogram)} />}
      </div>
      {payload.histogram_missing === null ? null : <EmptyState title="No histograms" text={payload.histogram_missing} />}
    </section>
  );
}
