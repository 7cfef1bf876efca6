// Statistics of the selected tensor over the steps, and its histograms.
import type { RecordedTensor, TensorView } from "../../api/views";
import { FigurePanel } from "../../charts/figure_panel";
import { StepLink } from "../../parts/timeline_link";
import { useView } from "../../state/fetch";
import { EmptyState, ResourceView } from "../../widgets/resource_view";
import { histogramFigure, tensorPlots } from "./figures";

interface Props {
  tensor: RecordedTensor;
  log: boolean;
}

export function Details({ tensor, log }: Props) {
  const resource = useView("tensor", { name: tensor.name, rank: tensor.rank === null ? null : String(tensor.rank) });
  return <ResourceView resource={resource}>{(payload) => <Content payload={payload} log={log} />}</ResourceView>;
}

function Content({ payload, log }: { payload: TensorView; log: boolean }) {
  if (payload.missing !== null) return <EmptyState text={payload.missing} />;
  const column = payload.first_step.findIndex((_, index) => (payload.nan_count[index] ?? 0) + (payload.infinite_count[index] ?? 0) > 0);
  const firstBroken = payload.first_step[column];
  const rank = payload.rank === null ? "" : `rank ${payload.rank}`;
  return (
    <section aria-label={`Tensor ${payload.name}`} data-testid="tensor-details">
      <header class="head section-title"><h2 class="name">{payload.name}</h2></header>
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
