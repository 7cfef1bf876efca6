// Screens about one recording at a time: which one, what is doubtful about it, what is missing.
import type { ComponentChildren } from "preact";

import type { Options } from "../api/client";
import type { QualityNote, RecordingName, TimeRange, Views } from "../api/views";
import { count } from "../base/quantities";
import { useView, useWholeView } from "../state/fetch";
import { param, setParams } from "../state/url";
import { ResourceView, QualityNotes, EmptyState } from "../widgets/resource_view";
import { Select } from "../widgets/select";
import { PageHeader } from "../widgets/page_header";

interface TracePayload {
  trace: string;
  rank: number | null;
  missing: string | null;
  notes?: string[];
  quality: QualityNote[];
}

interface TracesPayload {
  range: TimeRange | null;
  share_of?: string;
  traces: TracePayload[];
  missing: string | null;
  quality: QualityNote[];
}

/** Views that have a part for each recording. */
export type TraceViews = {
  [Name in keyof Views as Views[Name] extends TracesPayload ? Name : never]: Views[Name];
};

type TraceOf<Payload> = Payload extends { traces: (infer Trace)[] } ? Trace : never;

interface Props<Name extends keyof TraceViews> {
  view: Name;
  title: string;
  options?: Options;
  /** Choices besides that of the recording. */
  tools?: ComponentChildren;
  /** What stands above the recording's part: tabs. */
  tabs?: ComponentChildren;
  children: (trace: TraceOf<TraceViews[Name]>, payload: TraceViews[Name]) => ComponentChildren;
}

const traceParam = param("trace");

/** A recording in words: its rank, when it was made, how much it holds. */
export function traceLabel(recording: RecordingName): string {
  const rank = recording.rank === null ? "" : `rank ${recording.rank} · `;
  const step = recording.first_step === null ? "" : `from step ${recording.first_step} · `;
  return `${rank}${step}${recording.trace.slice(0, 80)} · ${count(recording.event_count)} events`;
}

/** What the run has recordings of; the same on every such screen. */
export function useTraces() {
  return useWholeView("recordings");
}

/** The recording of the address, or else the first one. */
export function selectedTrace(traces: readonly RecordingName[]): RecordingName | undefined {
  return traces.find((recording) => recording.trace === traceParam.value) ?? traces[0];
}

export function TraceSelect({ traces }: { traces: readonly RecordingName[] }) {
  const selected = selectedTrace(traces);
  if (selected === undefined || traces.length < 2) return null;
  return (
    <Select
      label="Recording"
      value={selected.trace}
      choices={traces.map((recording) => [recording.trace, traceLabel(recording)] as const)}
      onChange={(trace) => { setParams({ trace }, { replace: true }); }}
    />
  );
}

export function TraceScreen<Name extends keyof TraceViews>(props: Props<Name>) {
  const resource = useTraces();
  return (
    <>
      <PageHeader title={props.title}>
        {resource.data === null ? null : <TraceSelect traces={resource.data.recordings} />}
        {props.tools}
      </PageHeader>
      {props.tabs}
      <ResourceView resource={resource}>
        {(payload) => {
          const selected = selectedTrace(payload.recordings);
          return selected === undefined ? (
            <EmptyState text={payload.missing ?? "the run holds no recording"} />
          ) : (
            <TraceContent {...props} trace={selected.trace} />
          );
        }}
      </ResourceView>
    </>
  );
}

/** The part of a view that is about one recording. */
export function TraceContent<Name extends keyof TraceViews>({
  view,
  trace,
  options = {},
  children,
}: Omit<Props<Name>, "title"> & { trace: string }) {
  const resource = useView(view, { trace, ...options });
  return (
    <ResourceView resource={resource}>
      {(response) => {
        // What views have in common, and what is of this one.
        const payload: TraceViews[Name] & TracesPayload = response;
        const part = payload.traces[0];
        if (part === undefined) return <EmptyState text={payload.missing ?? "nothing was recorded here"} />;
        return (
          <>
            <QualityNotes quality={[...payload.quality, ...part.quality]} notes={part.notes ?? []} range={payload.range} />
            {part.missing === null ? null : <EmptyState text={part.missing} />}
            {children(part as TraceOf<TraceViews[Name]>, payload)}
          </>
        );
      }}
    </ResourceView>
  );
}
