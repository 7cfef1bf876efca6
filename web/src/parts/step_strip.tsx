// Step time of a run over its steps, in a picture of any height; it follows a running job.
import { useMemo } from "preact/hooks";

import type { StepSeries } from "../api/views";
import { palette } from "../base/palette";
import { phaseName } from "../base/phase_names";
import { dark } from "../base/theme";
import { Chart } from "../charts/chart";
import { describeFigure } from "../charts/figure";
import { partColour } from "../charts/step_strip";
import { namedPhases, stripFigure, stripHandlers } from "./step_series";

interface Props {
  series: StepSeries;
  height: number;
  /** Phases to colour, the others are grey; all if absent. */
  highlight?: readonly string[] | undefined;
}

export function StepStrip({ series, height, highlight }: Props) {
  const { label, option } = useMemo(() => describeFigure(stripFigure(series, { height, highlight })), [series, height, highlight]);
  const colours = palette(dark.value);
  return (
    <>
      <Chart option={option} label={label} height={height} renderer="canvas" {...stripHandlers(series)} />
      <ul class="strip-legend muted" aria-label="Colours of step time">
        {namedPhases(series, highlight).map((phase) => (
          <li key={phase}><i style={{ background: partColour(phase, colours, highlight) }} aria-hidden="true" />{phaseName(phase)}</li>
        ))}
        <li><i class="median" aria-hidden="true" />moving median</li>
      </ul>
    </>
  );
}
