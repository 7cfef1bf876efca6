// Curves of logged scalars, with smoothing, a logarithmic axis, and steps or time across.
import { useMemo } from "preact/hooks";

import type { ScalarSeries } from "../../api/views";
import { countOf } from "../../base/quantities";
import { FigurePanel } from "../../charts/figure_panel";
import { TimePanel } from "../../parts/time_panel";
import { useSelect } from "../../parts/url_controls";
import { useText } from "../../parts/url_options";
import { haveSteps, scalarPlots } from "./figures";

/** Upper bound of plots drawn at once. */
const MAX_PLOTS = 24;
const DEFAULT_SMOOTHING = 0.6;
const MAX_SMOOTHING = 0.99;

export function Curves({ scalars, isLog }: { scalars: readonly ScalarSeries[]; isLog: boolean }) {
  const [x, xSelect] = useSelect("x", "Horizontal axis", haveSteps(scalars) ? (["step", "time"] as const) : (["time"] as const));
  const [layout, layoutSelect] = useSelect("charts", "Charts", [["each", "one per name"], ["joined", "all in one"]] as const);
  const [smoothing, smoothingInput] = useSmoothing();
  const plots = useMemo(
    () => scalarPlots(scalars, { x, log: isLog, smoothing, isJoined: layout === "joined" }),
    [scalars, x, isLog, smoothing, layout],
  );
  if (scalars.length === 0) return null;
  const hiddenCount = Math.max(0, plots.length - MAX_PLOTS);
  const Frame = x === "time" ? TimePanel : FigurePanel;
  return (
    <section aria-label="Losses and scalars">
      <header class="head section-title">
        <h2>Losses and scalars</h2>
        <div class="tools">{smoothingInput}{xSelect}{layoutSelect}</div>
      </header>
      {hiddenCount === 0 ? null : <p class="muted">{`${countOf(hiddenCount, "more name")}: filter by name to see them.`}</p>}
      <div class="panels">
        {plots.slice(0, MAX_PLOTS).map((plot) => <Frame key={plot.title} block={plot} />)}
      </div>
    </section>
  );
}

function useSmoothing() {
  const [text, setText] = useText("smoothing");
  const parsed = text === "" ? DEFAULT_SMOOTHING : Number(text);
  const smoothing = parsed >= 0 ? Math.min(parsed, MAX_SMOOTHING) : DEFAULT_SMOOTHING;
  const input = (
    <label class="choice" key="smoothing" title="Exponential moving average, as in TensorBoard; the values are drawn faintly">
      <span>Smoothing</span>
      <input
        type="range" min="0" max={MAX_SMOOTHING} step="0.01" value={smoothing} data-testid="smoothing"
        onInput={(event) => { setText(event.currentTarget.value); }}
      />
      <output>{smoothing.toFixed(2)}</output>
    </label>
  );
  return [smoothing, input] as const;
}
