// Figure over the time of the run; dragging selects a range for all screens.
import type { ComponentProps } from "preact";

import { FigurePanel } from "../charts/figure_panel";
import { setParams } from "../state/url";

export function TimePanel(props: Omit<ComponentProps<typeof FigurePanel>, "onRange">) {
  return <FigurePanel {...props} onRange={selectRange} />;
}

function selectRange(from: number, to: number): void {
  setParams({ from: String(Math.max(0, Math.round(from))), to: String(Math.max(1, Math.round(to))) });
}
