// Histograms of annotation durations for names that the reader adds; names are in the URL.
import { Plus, X } from "lucide";
import { useState } from "preact/hooks";

import type { AnnotationHistogram, AnnotationsView } from "../api/views";
import { duration } from "../base/quantities";
import { FigurePanel } from "../charts/figure_panel";
import { durationHistogram } from "../charts/from_payload";
import { useView } from "../state/fetch";
import { columns } from "../widgets/fields";
import { Icon } from "../widgets/icon";
import { IconButton } from "../widgets/icon_button";
import { Panel } from "../widgets/panel";
import { EmptyState, ResourceView } from "../widgets/resource_view";
import { LinkedTable } from "./linked_table";
import { toggleItem, useTexts } from "./url_options";

const MAX_TITLE_LENGTH = 120;

export function AnnotationHistograms({ suggestions }: { suggestions: readonly string[] }) {
  const [names, setNames] = useTexts("histogram");
  const [draft, setDraft] = useState("");
  const add = (event: Event): void => {
    event.preventDefault();
    const name = draft.trim();
    if (name !== "" && !names.includes(name)) setNames([...names, name]);
    setDraft("");
  };
  return (
    <section class="histograms" aria-label="Annotation histograms">
      <header class="head">
        <h2>Annotation histograms</h2>
        <form class="tools" onSubmit={add}>
          <label class="choice">
            <span>Annotation</span>
            <input
              type="text"
              list="annotation-names"
              placeholder="select or enter a name"
              value={draft}
              onInput={(event) => { setDraft(event.currentTarget.value); }}
              data-testid="histogram-name"
            />
          </label>
          <datalist id="annotation-names">
            {suggestions.slice(0, 200).map((name) => <option key={name} value={name.slice(0, 300)} />)}
          </datalist>
          <button type="submit" class="action"><Icon icon={Plus} size={15} /> Add</button>
        </form>
      </header>
      {names.length === 0 ? (
        <p class="muted">Add an annotation to see the distribution of its durations.</p>
      ) : (
        <div class="panels">
          {names.map((name) => (
            <HistogramPanel key={name} name={name} onClose={() => { setNames(toggleItem(names, name)); }} />
          ))}
        </div>
      )}
    </section>
  );
}

function HistogramPanel({ name, onClose }: { name: string; onClose: () => void }) {
  const resource = useView("annotations", { name });
  const close = <IconButton icon={X} label={`Remove histogram of ${name.slice(0, 80)}`} onClick={onClose} />;
  const histograms = resource.data === null ? [] : histogramsOf(resource.data);
  const kernels = resource.data === null ? [] : resource.data.sources.flatMap((source) => source.kernels);
  if (histograms.length === 0) {
    return (
      <Panel title={name.slice(0, MAX_TITLE_LENGTH)} tools={close}>
        <ResourceView resource={resource}>{(payload) => <EmptyState text={missingText(payload)} />}</ResourceView>
      </Panel>
    );
  }
  return (
    <>
      {histograms.map(({ source, histogram }, index) => (
        <FigurePanel
          key={source}
          block={histogramFigure(name, source, histogram)}
          description={`Total ${duration(histogram.total_ns)}`}
          tools={index === 0 ? close : undefined}
        />
      ))}
      {kernels.length === 0 ? null : (
        <LinkedTable
          id={`kernels-${name}`}
          title={`Kernels launched in ${name.slice(0, MAX_TITLE_LENGTH)}`}
          testid="table-annotated-kernels"
          rows={kernels}
          fields={columns("KernelGroup", "name", "calls", "total_ns", "share_ratio", "mean_ns")}
        />
      )}
    </>
  );
}

function missingText(payload: AnnotationsView): string {
  const reason = payload.missing ?? payload.sources.find((source) => source.missing !== null)?.missing;
  return reason ?? "no annotation has this name";
}

interface SourceHistogram {
  source: string;
  histogram: AnnotationHistogram;
}

/** Return the non-empty histograms with a label of their source. */
export function histogramsOf(payload: AnnotationsView): SourceHistogram[] {
  return payload.sources.flatMap((source) =>
    source.histograms
      .filter((histogram) => histogram.buckets.length > 0)
      .map((histogram) => ({
        source: [
          source.rank === null ? "" : `rank ${source.rank}`,
          histogram.on_device ? "on devices" : "on the host",
          payload.sources.length > 1 ? (source.trace ?? source.process ?? "").slice(0, 40) : "",
        ].filter(Boolean).join(", "),
        histogram,
      })),
  );
}

function histogramFigure(name: string, source: string, histogram: AnnotationHistogram) {
  const { buckets, bucket_ns, duration_ns } = histogram;
  const last = buckets[buckets.length - 1]?.from_ns ?? 0;
  return durationHistogram({
    title: `${name.slice(0, MAX_TITLE_LENGTH)} ${source}`,
    noun: "ranges",
    edges_ns: [...buckets.map((bucket) => bucket.from_ns), last + bucket_ns],
    series: [{ name: "all", counts: buckets.map((bucket) => bucket.count) }],
    marks_ns: duration_ns === null ? [] : [{ name: "p50", value: duration_ns.p50 }, { name: "p95", value: duration_ns.p95 }],
  });
}
