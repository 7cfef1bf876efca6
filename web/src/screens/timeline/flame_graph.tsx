// Flame graph of a range.
import type { Span } from "../../canvas/viewport";
import { FlameGraph } from "../../parts/flame_graph";
import { useView } from "../../state/fetch";
import { ResourceView } from "../../widgets/resource_view";

export function RangeFlameGraph({ range, tracks }: { range: Span; tracks: string }) {
  const resource = useView("timeline-flame", { from_ns: range.from, to_ns: range.to, tracks });
  return (
    <ResourceView resource={resource}>
      {(view) => view.roots.length === 0
        ? <p class="muted tl-hint">These tracks have no events in this range.</p>
        : <FlameGraph roots={view.roots} left_out_ns={view.left_out_ns} label="Flame graph of the range" outermost="the outermost calls" />}
    </ResourceView>
  );
}
