// Step time of a run over its steps, in a picture of any height; it follows a running job.
import { useMemo } from "preact/hooks";

import type { StepSeries } from "../api/views";
import { Chart } from "../charts/chart";
import { describeFigure } from "../charts/figure";
import { useView } from "../state/fetch";
import { stripFigure, stripHandlers } from "./step_series";

interface Props {
  /** Id of the run. */
  run: string;
  height: number;
  /** Phase to colour, the others are grey; all if absent. */
  highlight?: string | undefined;
}

/** Strip of the first rank with steps; nothing without any. */
export function StepStrip({ run, height, highlight }: Props) {
  const { data } = useView("step-series", { run });
  return data === null || data.steps.length === 0 ? null : <Strip series={data} height={height} highlight={highlight} />;
}

function Strip({ series, height, highlight }: Omit<Props, "run"> & { series: StepSeries }) {
  const { label, option } = useMemo(() => describeFigure(stripFigure(series, { height, highlight })), [series, height, highlight]);
  return <Chart option={option} label={label} height={height} renderer="canvas" {...stripHandlers(series)} />;
}
