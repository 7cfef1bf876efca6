// Heat maps of all tensors over the steps: norms of gradients, and of updates of weights.
import { useMemo } from "preact/hooks";

import type { TensorHeatView } from "../../api/views";
import { FigurePanel } from "../../charts/figure_panel";
import { useView } from "../../state/fetch";
import { EmptyState, ResourceView } from "../../widgets/resource_view";
import { heatFigure } from "./figures";

interface MapProps {
  title: string;
  collection: string;
  reduction: string;
  rank: string | null;
}

/** Collections that have a heat map, with what it shows. */
const MAPS = [
  ["gradients", "l2", "Gradient norms by layer"],
  ["weights", "update_l2", "Update norms by layer"],
] as const;

export function Layers({ collections, rank }: { collections: readonly string[]; rank: string | null }) {
  const maps = MAPS.filter(([collection]) => collections.includes(collection));
  if (maps.length === 0) return null;
  return (
    <section aria-label="Layers over steps">
      <header class="head section-title"><h2>Layers over steps</h2></header>
      <div class="panels">
        {maps.map(([collection, reduction, title]) => (
          <LayerMap key={title} title={title} collection={collection} reduction={reduction} rank={rank} />
        ))}
      </div>
    </section>
  );
}

function LayerMap({ title, collection, reduction, rank }: MapProps) {
  const resource = useView("tensor-heat", { collection, reduction, rank });
  return <ResourceView resource={resource}>{(heat) => <HeatPanel title={title} heat={heat} />}</ResourceView>;
}

function HeatPanel({ title, heat }: { title: string; heat: TensorHeatView }) {
  const block = useMemo(() => heatFigure(title, heat), [title, heat]);
  const hasValues = heat.rows.some((row) => row.value.some((value) => value !== null) || row.non_finite_columns.length > 0);
  if (!hasValues) return <EmptyState title={title} text={heat.missing ?? "not recorded"} />;
  return <FigurePanel wide testid={`heat-${heat.collection ?? ""}`} block={block} />;
}
