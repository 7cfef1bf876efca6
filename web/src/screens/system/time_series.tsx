// Metrics of a machine over time, grouped by kind; cores can be selected.
import { useMemo } from "preact/hooks";

import type { SystemSeriesView } from "../../api/views";
import { count } from "../../base/quantities";
import { TimePanel } from "../../parts/time_panel";
import { useSelect, useTextInput } from "../../parts/url_controls";
import { useView } from "../../state/fetch";
import { QualityNotes, ResourceView } from "../../widgets/resource_view";
import { isFlat, metricPlots, parseCores } from "./figures";

const KINDS = [
  ["all", "all"],
  ["gpu", "GPUs"],
  ["cpu", "CPU and cores"],
  ["memory", "memory"],
  ["io", "disks and network"],
  ["process", "processes"],
] as const;

export function MetricsOverTime({ node }: { node: string }) {
  const resource = useView("system-series", { name: node });
  return <ResourceView resource={resource}>{(payload) => <Content payload={payload} node={node} />}</ResourceView>;
}

function Content({ payload, node }: { payload: SystemSeriesView; node: string }) {
  const [kind, kindSelect] = useSelect("kind", "Show", KINDS);
  const [cores, coresInput] = useTextInput("cores", "Cores", { placeholder: "all, or 0-3,8", testid: "cores" });
  const series = payload.nodes.find((candidate) => candidate.node === node)?.series;
  const plots = useMemo(
    () => (series === undefined ? [] : metricPlots(payload, series, kind, parseCores(cores))),
    [payload, series, kind, cores],
  );
  if (series === undefined) return null;
  const flat = plots.filter(isFlat);
  const omitted = `${count(payload.left_out_count)} series are omitted to limit the size of the response`;
  return (
    <section aria-label="Metrics over time">
      <header class="head section-title">
        <h2>Metrics over time</h2>
        <div class="tools">{coresInput}{kindSelect}</div>
      </header>
      <QualityNotes quality={[]} notes={[...payload.notes, ...(payload.left_out_count === 0 ? [] : [omitted])]} />
      <div class="panels">
        {plots.filter((plot) => !isFlat(plot)).map((plot) => <TimePanel key={plot.title} block={plot} />)}
      </div>
      {flat.length === 0 ? null : (
        <details class="section-title" data-testid="flat-metrics">
          <summary>Unchanged over the time: {flat.map(({ title }) => title).join(", ")}</summary>
          <div class="panels">{flat.map((plot) => <TimePanel key={plot.title} block={plot} />)}</div>
        </details>
      )}
    </section>
  );
}
