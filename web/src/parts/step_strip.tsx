// Step time of a run over its steps, in a picture of any height; it follows a running job.
import { useMemo } from "preact/hooks";

import type { StepSeries } from "../api/views";
import { Chart } from "../charts/chart";
import { describeFigure } from "../charts/figure";
import { stripFigure, stripHandlers } from "./step_series";

interface Props {
  series: StepSeries;
  height: number;
  /** Phase to colour, the others are grey; all if absent. */
  highlight?: string | undefined;
}

export function StepStrip({ series, height, highlight }: Props) {
  const { label, option } = useMemo(() => describeFigure(stripFigure(series, { height, highlight })), [series, height, highlight]);
  return <Chart option={option} label={label} height={height} renderer="canvas" {...stripHandlers(series)} />;
}
