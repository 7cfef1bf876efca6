// Screens on one trace at a time: selection, quality notes and missing data.
import type { ComponentChildren } from "preact";

import type { Options } from "../base/client";
import type { QualityNote, RecordingName, TimeRange, Views } from "../api/views";
import { countOf } from "../base/quantities";
import { useView, useWholeView } from "../state/fetch";
import { param, setParams } from "../state/url";
import { Answer, PageHeader } from "../widgets/page_header";
import { EmptyState, QualityNotes, ResourceView } from "../widgets/resource_view";
import { Select } from "../widgets/select";
import { useCarryOver, useCommunication, useRowLimit } from "./url_controls";

interface TracePayload {
  trace: string;
  rank: number | null;
  missing: string | null;
  notes?: string[];
  /** What the trace shows, and what to do. */
  sentence?: string;
  quality: QualityNote[];
}

interface TracesPayload {
  range: TimeRange | null;
  share_of?: string;
  traces: TracePayload[];
  missing: string | null;
  quality: QualityNote[];
}

/** Views with one entry per trace. */
export type TraceViews = {
  [Name in keyof Views as Views[Name] extends TracesPayload ? Name : never]: Views[Name];
};

type TraceOf<Payload> = Payload extends { traces: (infer Trace)[] } ? Trace : never;

interface Props<Name extends keyof TraceViews> {
  view: Name;
  title: string;
  options?: Options;
  /** Controls next to the trace selection. */
  tools?: ComponentChildren;
  /** Select whether device work launched before the trace started is counted. */
  carryOver?: boolean;
  /** Select which kernels count as communication. */
  communication?: boolean;
  /** Select how many rows are requested. */
  rowLimit?: boolean;
  /** Tab bar above the content. */
  tabs?: ComponentChildren;
  /** Content of a run without traces. */
  withoutTrace?: ComponentChildren;
  children: (trace: TraceOf<TraceViews[Name]>, payload: TraceViews[Name]) => ComponentChildren;
}

const traceParam = param("trace");

/** Label of a trace: rank, first step, file and event count. */
export function traceLabel({ trace, rank, first_step, event_count }: RecordingName): string {
  const prefix = rank === null || trace.startsWith(`rank ${rank}`) ? null : `rank ${rank}`;
  const start = first_step === null ? null : `from step ${first_step}`;
  return [prefix, trace.slice(0, 80), start, countOf(event_count, "event")].filter((part) => part !== null).join(" · ");
}

/** Request the list of traces, which all of these screens share. */
export function useTraces() {
  return useWholeView("recordings");
}

/** Return the trace named in the URL, or the first. */
export function selectedTrace(traces: readonly RecordingName[]): RecordingName | undefined {
  return traces.find(({ trace }) => trace === traceParam.value) ?? traces[0];
}

export function TraceSelect({ traces }: { traces: readonly RecordingName[] }) {
  const selected = selectedTrace(traces);
  if (selected === undefined || traces.length < 2) return null;
  return (
    <Select
      label="Trace"
      value={selected.trace}
      choices={traces.map((candidate) => [candidate.trace, traceLabel(candidate)] as const)}
      onChange={(trace) => { setParams({ trace }, { replace: true }); }}
    />
  );
}

export function TraceScreen<Name extends keyof TraceViews>(props: Props<Name>) {
  const resource = useTraces();
  const [carryOver, carryOverSelect] = useCarryOver();
  const [communication, communicationSelect] = useCommunication();
  const [top, rowLimitSelect] = useRowLimit();
  const options = {
    ...(props.carryOver === true ? { carry_over: carryOver } : {}),
    ...(props.communication === true ? { communication } : {}),
    ...(props.rowLimit === true ? { top } : {}),
    ...props.options,
  };
  return (
    <>
      <PageHeader title={props.title}>
        {resource.data === null ? null : <TraceSelect traces={resource.data.recordings} />}
        {props.tools}
        {props.rowLimit === true ? rowLimitSelect : null}
        {props.carryOver === true ? carryOverSelect : null}
        {props.communication === true ? communicationSelect : null}
      </PageHeader>
      {props.tabs}
      <ResourceView resource={resource}>
        {(payload) => {
          const selected = selectedTrace(payload.recordings);
          return selected === undefined ? (
            (props.withoutTrace ?? <EmptyState text={payload.missing ?? "the run has no traces"} />)
          ) : (
            <TraceContent {...props} options={options} trace={selected.trace} />
          );
        }}
      </ResourceView>
    </>
  );
}

/** Content of a view for one trace. */
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
        // Fields that all of these views have, and fields of this one.
        const payload: TraceViews[Name] & TracesPayload = response;
        const part = payload.traces[0];
        if (part === undefined) return <EmptyState text={payload.missing ?? "no data was recorded"} />;
        return (
          <>
            <Answer text={part.sentence} />
            {part.missing === null
              ? <QualityNotes quality={[...payload.quality, ...part.quality]} notes={part.notes ?? []} range={payload.range} />
              : <EmptyState text={part.missing} />}
            {children(part as TraceOf<TraceViews[Name]>, payload)}
          </>
        );
      }}
    </ResourceView>
  );
}
