// A range by path of names.
import type { Span } from "../../canvas/viewport";
import { FlameGraph } from "../../parts/flame_graph";
import { useView } from "../../state/fetch";
import { ResourceView } from "../../widgets/answer";

export function RangeFlame({ range, tracks }: { range: Span; tracks: string }) {
  const graph = useView("timeline-flame", { from_ns: range.from, to_ns: range.to, tracks });
  return (
    <ResourceView resource={graph}>
      {(view) => view.roots.length === 0
        ? <p class="muted tl-hint">Nothing ran in this range on these tracks.</p>
        : <FlameGraph roots={view.roots} left_out_ns={view.left_out_ns} label="Flame graph of the range" outermost="the outermost calls" />}
    </ResourceView>
  );
}
