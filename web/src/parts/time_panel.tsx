// Figure over the time of the run. Dragging selects a range for all screens; all figures of a screen
// show the time under the pointer.
import type { ComponentProps } from "preact";

import { NANOSECONDS, TimeAxisContext, type TimeAxis } from "../charts/cross_hair";
import { FigurePanel } from "../charts/figure_panel";
import { setParams } from "../state/url";

interface Props extends Omit<ComponentProps<typeof FigurePanel>, "onRange"> {
  axis?: TimeAxis;
}

export function TimePanel({ axis = NANOSECONDS, ...props }: Props) {
  return (
    <TimeAxisContext.Provider value={axis}>
      <FigurePanel {...props} onRange={(from, to) => { selectRange(axis, from, to); }} />
    </TimeAxisContext.Provider>
  );
}

function selectRange({ origin, unit, isColumns }: TimeAxis, from: number, to: number): void {
  const start = Math.max(0, Math.round(origin + from * unit));
  const end = Math.max(start + 1, Math.round(origin + (to + (isColumns ? 1 : 0)) * unit));
  setParams({ from: String(start), to: String(end) });
}
