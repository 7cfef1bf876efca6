// Screens about one recording at a time: which one, what is doubtful about it, what is missing.
import type { ComponentChildren } from "preact";

import type { Options } from "../api/client";
import type { QualityNote, RecordingName, TimeRange, Views } from "../api/views";
import { count } from "../base/quantities";
import { useView, useWholeView } from "../state/fetch";
import { param, setParams } from "../state/url";
import { Answer, Doubts, Empty } from "../widgets/answer";
import { Choice } from "../widgets/choice";
import { Head } from "../widgets/head";

interface OfTrace {
  trace: string;
  rank: number | null;
  missing: string | null;
  notes?: string[];
  quality: QualityNote[];
}

interface OfTraces {
  range: TimeRange | null;
  share_of?: string;
  traces: OfTrace[];
  missing: string | null;
  quality: QualityNote[];
}

/** Views that have a part for each recording. */
export type TraceViews = {
  [Name in keyof Views as Views[Name] extends OfTraces ? Name : never]: Views[Name];
};

type TraceOf<Payload> = Payload extends { traces: (infer Trace)[] } ? Trace : never;

interface Props<Name extends keyof TraceViews> {
  view: Name;
  title: string;
  options?: Options;
  /** Choices besides that of the recording. */
  tools?: ComponentChildren;
  /** What stands above the recording's part: tabs. */
  above?: ComponentChildren;
  children: (trace: TraceOf<TraceViews[Name]>, payload: TraceViews[Name]) => ComponentChildren;
}

const chosen = param("trace");

/** A recording in words: its rank, when it was made, how much it holds. */
export function recordingWords(recording: RecordingName): string {
  const rank = recording.rank === null ? "" : `rank ${recording.rank} · `;
  const step = recording.first_step === null ? "" : `from step ${recording.first_step} · `;
  return `${rank}${step}${recording.trace.slice(0, 80)} · ${count(recording.event_count)} events`;
}

/** What the run has recordings of; the same on every such screen. */
export function useRecordings() {
  return useWholeView("recordings");
}

/** The recording of the address, or else the first one. */
export function shownRecording(all: readonly RecordingName[]): RecordingName | undefined {
  return all.find((each) => each.trace === chosen.value) ?? all[0];
}

export function RecordingChoice({ all }: { all: readonly RecordingName[] }) {
  const shown = shownRecording(all);
  if (shown === undefined || all.length < 2) return null;
  return (
    <Choice
      label="Recording"
      value={shown.trace}
      choices={all.map((each) => [each.trace, recordingWords(each)] as const)}
      onChoose={(trace) => { setParams({ trace }, { replace: true }); }}
    />
  );
}

export function TraceScreen<Name extends keyof TraceViews>(props: Props<Name>) {
  const answer = useRecordings();
  return (
    <>
      <Head title={props.title}>
        {answer.data === null ? null : <RecordingChoice all={answer.data.recordings} />}
        {props.tools}
      </Head>
      {props.above}
      <Answer of={answer}>
        {(payload) => {
          const shown = shownRecording(payload.recordings);
          return shown === undefined ? (
            <Empty text={payload.missing ?? "the run holds no recording"} />
          ) : (
            <OneTrace {...props} trace={shown.trace} />
          );
        }}
      </Answer>
    </>
  );
}

/** The part of a view that is about one recording. */
export function OneTrace<Name extends keyof TraceViews>({
  view,
  trace,
  options = {},
  children,
}: Omit<Props<Name>, "title"> & { trace: string }) {
  const answer = useView(view, { trace, ...options });
  return (
    <Answer of={answer}>
      {(found) => {
        // What views have in common, and what is of this one.
        const payload: TraceViews[Name] & OfTraces = found;
        const part = payload.traces[0];
        if (part === undefined) return <Empty text={payload.missing ?? "nothing was recorded here"} />;
        return (
          <>
            <Doubts quality={[...payload.quality, ...part.quality]} notes={part.notes ?? []} range={payload.range} />
            {part.missing === null ? null : <Empty text={part.missing} />}
            {children(part as TraceOf<TraceViews[Name]>, payload)}
          </>
        );
      }}
    </Answer>
  );
}
