// Annotated ranges in traces and span logs, with statistics by name.
import type { AnnotationGroup, Annotations as Source, AnnotationsView } from "../api/views";
import { count } from "../base/quantities";
import { AnnotationHistograms } from "../parts/annotation_histograms";
import { annotationNames } from "../parts/annotation_names";
import { LinkedTable } from "../parts/linked_table";
import { omittedRows, useRowLimit, useSelect } from "../parts/url_controls";
import { toggleItem, useTexts } from "../parts/url_options";
import { useView } from "../state/fetch";
import { columns } from "../widgets/fields";
import { Answer, PageHeader } from "../widgets/page_header";
import { sortBy } from "../widgets/sort_heading";
import { ResourceView, QualityNotes, EmptyState } from "../widgets/resource_view";

export default function AnnotationsScreen() {
  const [top, rowLimitSelect] = useRowLimit();
  const resource = useView("annotations", { top });
  return (
    <>
      <PageHeader title="Annotations">{rowLimitSelect}</PageHeader>
      <ResourceView resource={resource}>{(payload) => <Content payload={payload} />}</ResourceView>
    </>
  );
}

function sourceName(source: Source): string {
  const rank = source.rank === null ? "" : `rank ${source.rank} · `;
  return `${rank}${(source.trace ?? source.process ?? "").slice(0, 80)}`;
}

function Content({ payload }: { payload: AnnotationsView }) {
  const names = payload.sources.map(sourceName);
  const [selected, sourceSelect] = useSelect("source", "Trace or process", names);
  const [histograms, setHistograms] = useTexts("histogram");
  const source = payload.sources[Math.max(0, names.indexOf(selected))];
  if (source === undefined) return <EmptyState text={payload.missing ?? "the run has no annotations"} />;
  return (
    <>
      <Answer text={source.sentence} />
      <QualityNotes quality={[...payload.quality, ...source.quality]} range={payload.range} />
      {sourceSelect === null ? null : <p class="tools spaced">{sourceSelect}</p>}
      {source.annotations.length === 0 ? (
        <EmptyState text={source.missing ?? "no annotations in this source"} />
      ) : (
        <LinkedTable
          title="Annotations"
          testid="table-annotations"
          description={`${count(source.row_count)} names, host and device listed separately. Names that differ only in a number after # are merged. Select a row to add its histogram.`}
          rows={sortBy(source.annotations, (row) => row.self_ns, true)}
          footnote={omittedRows(source.annotations.length, source.row_count)}
          onRow={(row: AnnotationGroup) => { setHistograms(toggleItem(histograms, row.name)); }}
          fields={columns("AnnotationGroup", ["name", { isLongName: true }], "self_ns", "total_ns", "count", "mean_ns", "p50_ns", "p95_ns", "max_ns", "on_device")}
        />
      )}
      <AnnotationHistograms suggestions={annotationNames(payload)} />
    </>
  );
}
