// ECharts with only the components in use.
import { BarChart, BoxplotChart, HeatmapChart, LineChart, PieChart, ScatterChart } from "echarts/charts";
import {
  AriaComponent,
  GridComponent,
  LegendComponent,
  LegendScrollComponent,
  MarkAreaComponent,
  MarkLineComponent,
  TooltipComponent,
  VisualMapContinuousComponent,
} from "echarts/components";
import { init, use } from "echarts/core";
import { CanvasRenderer, SVGRenderer } from "echarts/renderers";

use([
  AriaComponent,
  BarChart,
  BoxplotChart,
  CanvasRenderer,
  GridComponent,
  HeatmapChart,
  LegendComponent,
  LegendScrollComponent,
  LineChart,
  MarkAreaComponent,
  MarkLineComponent,
  PieChart,
  SVGRenderer,
  ScatterChart,
  TooltipComponent,
  VisualMapContinuousComponent,
]);

export { init };
export type { EChartsType } from "echarts/core";
export type {
  EChartsOption,
  LegendComponentOption as LegendOption,
  TooltipComponentOption as TooltipOption,
} from "echarts";
