// Metrics of a machine over time: a plot of each subject, and folds of processes, cores and the rest.
import { useMemo } from "preact/hooks";

import type { HostMemoryView, SystemSeriesView } from "../../api/views";
import { count, duration } from "../../base/quantities";
import { uncapitalize } from "../../base/text";
import { TimePanel } from "../../parts/time_panel";
import { useTextInput } from "../../parts/url_controls";
import { useView } from "../../state/fetch";
import { Fold } from "../../widgets/fold";
import { QualityNotes, ResourceView } from "../../widgets/resource_view";
import { isFlat, metricPlots, parseCores, type MetricPlot } from "./figures";
import { JOB_MEMORY, ProcessMemory, memoryPlot } from "./host_memory";

export function MetricsOverTime({ node }: { node: string }) {
  const resource = useView("system-series", { name: node });
  const memory = useView("host-memory").data;
  return <ResourceView resource={resource}>{(payload) => <Content payload={payload} memory={memory} node={node} />}</ResourceView>;
}

interface Props {
  payload: SystemSeriesView;
  memory: HostMemoryView | null;
  node: string;
}

function Content({ payload, memory, node }: Props) {
  const [cores, coresInput] = useTextInput("cores", "Cores", { placeholder: "all, or 0-3,8", testid: "cores" });
  const series = payload.nodes.find((candidate) => candidate.node === node)?.series;
  const plots = useMemo(() => (series === undefined ? [] : metricPlots(payload, series, parseCores(cores))), [payload, series, cores]);
  const use = memory?.nodes.find((candidate) => candidate.node === node);
  if (series === undefined) return null;
  const changing = plots.filter((plot) => !isFlat(plot));
  const select = (section: MetricPlot["section"]): MetricPlot[] => changing.filter((plot) => plot.section === section);
  const [processes, ofCores] = [select("process"), select("core")];
  const rest = [...select("rest"), ...plots.filter(isFlat)].filter(({ title }) => use === undefined || title !== JOB_MEMORY);
  const omitted = `${count(payload.left_out_count)} series are omitted to limit the size of the response`;
  return (
    <section aria-label="Metrics over time">
      <header class="head section-title">
        <h2>Over time <small class="muted">means over {duration(payload.piece_ns)}</small></h2>
      </header>
      <QualityNotes quality={[]} notes={[...payload.notes, ...(payload.left_out_count === 0 ? [] : [omitted])]} />
      {use?.lines.map((line) => <p key={line}>{line}</p>)}
      <div class="panels multiples">
        {use === undefined || memory === null ? null : <TimePanel block={memoryPlot(memory, use)} />}
        <Plots plots={select("main")} />
      </div>
      {processes.length === 0 && use === undefined ? null : (
        <Fold title="Processes" about={titlesOf(processes)} testid="process-metrics">
          <div class="panels multiples"><Plots plots={processes} /></div>
          {use === undefined ? null : <ProcessMemory use={use} />}
        </Fold>
      )}
      {ofCores.length === 0 ? null : (
        <Fold title="Cores" about={titlesOf(ofCores)} testid="core-metrics">
          <p>{coresInput}</p>
          <div class="panels multiples"><Plots plots={ofCores} /></div>
        </Fold>
      )}
      {rest.length === 0 ? null : (
        <Fold title="Other metrics" about={titlesOf(rest)} testid="flat-metrics">
          <div class="panels multiples"><Plots plots={rest} /></div>
        </Fold>
      )}
    </section>
  );
}

function Plots({ plots }: { plots: readonly MetricPlot[] }) {
  return <>{plots.map((plot) => <TimePanel key={`${plot.title} ${plot.y.unit}`} block={plot} />)}</>;
}

function titlesOf(plots: readonly MetricPlot[]): string {
  return plots.map(({ title }) => (/^[A-Z][a-z]/.test(title) ? uncapitalize(title) : title)).join(", ");
}
