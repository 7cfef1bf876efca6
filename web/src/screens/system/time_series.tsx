// Metrics of a machine over time, grouped by kind; cores can be selected.
import { useMemo } from "preact/hooks";

import { TimePanel } from "../../parts/time_panel";
import { useOption, useText } from "../../parts/url_options";
import { useView } from "../../state/fetch";
import { QualityNotes, ErrorNotice, Skeleton } from "../../widgets/resource_view";
import { Select } from "../../widgets/select";
import { parseCores, metricPlots } from "./figures";

const KINDS = [
  ["all", "all"],
  ["gpu", "GPUs"],
  ["cpu", "CPU and cores"],
  ["memory", "memory"],
  ["io", "disks and network"],
  ["process", "processes"],
] as const;

export function OverTime({ node }: { node: string }) {
  const [kind, setKind] = useOption("kind", KINDS.map(([key]) => key));
  const [cores, setCores] = useText("cores");
  const { data, error } = useView("system-series", { name: node });
  const series = data?.nodes.find((candidate) => candidate.node === node)?.series;
  const plots = useMemo(
    () => (data === null || series === undefined ? [] : metricPlots(data, series, kind, parseCores(cores))),
    [data, series, kind, cores],
  );
  if (data === null) return error === null ? <Skeleton /> : <ErrorNotice text={error.message} />;
  if (series === undefined) return null;
  return (
    <section aria-label="Metrics over time">
      <header class="head section-title">
        <h2>Metrics over time</h2>
        <div class="tools">
          <label class="choice">
            <span>Cores</span>
            <input
              type="text"
              placeholder="all, or 0-3,8"
              value={cores}
              onChange={(event) => { setCores(event.currentTarget.value.trim()); }}
              data-testid="cores"
            />
          </label>
          <Select label="Show" value={kind} choices={KINDS} onChange={(value) => { setKind(value as typeof kind); }} />
        </div>
      </header>
      <QualityNotes quality={[]} notes={[...data.notes, ...(data.left_out_count === 0 ? [] : [`${data.left_out_count} series are omitted to limit the size of the response`])]} />
      <div class="panels">
        {plots.map((plot) => <TimePanel key={plot.title} block={plot} />)}
      </div>
    </section>
  );
}
