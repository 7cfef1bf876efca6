// Legend of the kinds of slices, and choices on how the timeline is drawn and moved.
import { SlidersHorizontal } from "lucide";

import { countOf } from "../../base/quantities";
import { dark } from "../../base/theme";
import { css, inLegendOrder, kindColourIndex, sliceColours } from "../../canvas/colours";
import { Menu } from "../../widgets/menu";
import { Select } from "../../widgets/select";
import { colourBy, emptyRows, wheel } from "./choices";
import type { Model } from "./model";

export function Legend({ model }: { model: Model }) {
  const kinds = inLegendOrder(model.kinds.value);
  if (colourBy.value === "name" || kinds.length === 0) return null;
  const { fill } = sliceColours(dark.value);
  return (
    <ul class="tl-legend" aria-label="Colours of the slices" data-testid="timeline-legend">
      {kinds.map((kind) => (
        <li key={kind}><i style={{ background: css(fill[kindColourIndex(kind)] ?? 0) }} />{kind}</li>
      ))}
    </ul>
  );
}

export function ViewChoices({ model }: { model: Model }) {
  const { emptyCount } = model.tree.value;
  return (
    <Menu icon={SlidersHorizontal} label="View" testid="timeline-choices">
      {() => (
        <div class="tl-choices">
          <Select
            label="Colours"
            value={colourBy.value}
            choices={[["kind", "by kind"], ["name", "by name"]]}
            onChange={(value) => { colourBy.value = value; }}
          />
          <Select
            label="Wheel"
            value={wheel.value}
            choices={[["scroll", "scrolls, Ctrl zooms"], ["zoom", "zooms, Ctrl scrolls"]]}
            onChange={(value) => { wheel.value = value; }}
          />
          <Select
            label="Empty rows"
            value={emptyRows.value}
            choices={[["hide", "hidden"], ["show", "shown"]]}
            onChange={(value) => { emptyRows.value = value; }}
          />
          <p class="muted">{countOf(emptyCount, "row")} of this run {emptyCount === 1 ? "is" : "are"} empty: counters that stay 0, and marks of the profiler. The browser remembers these choices.</p>
        </div>
      )}
    </Menu>
  );
}
