// Summary of a range: busy time by track, and self time by name.
import { useMemo, useState } from "preact/hooks";

import type { NameTime, SummaryView, TrackSummary } from "../../api/views";
import { duration } from "../../base/quantities";
import { widthOf, type Span } from "../../canvas/viewport";
import { useView } from "../../state/fetch";
import { DataTable } from "../../widgets/data_table";
import { column, columns, type Field } from "../../widgets/fields";
import { ResourceView } from "../../widgets/resource_view";
import { Select } from "../../widgets/select";
import type { Model } from "./model";
import { setSearchText } from "./url_state";

/** Requested names per track. */
const NAMES_PER_TRACK = 200;

interface NameRow extends NameTime {
  track: string;
  share_ratio: number;
}

const ALL_TRACKS = "";

interface Props {
  model: Model;
  range: Span;
  tracks: string;
}

export function Summary({ model, range, tracks }: Props) {
  const summary = useView("timeline-summary", { from_ns: range.from, to_ns: range.to, tracks, top: NAMES_PER_TRACK });
  return (
    <div class="tl-summary" data-testid="timeline-summary">
      <ResourceView resource={summary}>{(view) => <Tables view={view} model={model} range={range} />}</ResourceView>
    </div>
  );
}

function Tables({ view, model, range }: { view: SummaryView; model: Model; range: Span }) {
  const [track, setTrack] = useState(ALL_TRACKS);
  const names = model.trackPaths.value;
  const nameOf = (id: string): string => innermostFirst(names.get(id) ?? id);
  const rows = useMemo(() => nameRows(view, range, track, nameOf), [view, range, track, names]);
  const choices = [
    [ALL_TRACKS, "all tracks"] as const,
    ...view.tracks.filter((trackSummary) => trackSummary.event_count > 0).map((trackSummary) => [trackSummary.track, nameOf(trackSummary.track)] as const),
  ];
  return (
    <>
      <DataTable
        title="Names by self time"
        definition={`Shares of the range (${duration(widthOf(range))}); events are clipped to it.`}
        rows={rows}
        fields={NAME_FIELDS}
        onRow={(row) => { setSearchText(row.name.slice(0, 400)); }}
        tools={<Select label="On" value={track} choices={choices} onChange={setTrack} />}
        footnote={omittedNamesText(view, track)}
      />
      <DataTable
        title="Tracks"
        definition="Busy: union of the events of a track, as a share of the range."
        rows={view.tracks}
        fields={trackFields(nameOf)}
        footnote={view.notes.length === 0 ? null : view.notes.join("; ")}
      />
    </>
  );
}

/** Put the track before its groups: cells are truncated at the right. */
function innermostFirst(name: string): string {
  return name.split(" › ").reverse().join(" ‹ ");
}

const NAME_FIELDS: Field<NameRow>[] = columns<"NameTime", NameRow>(
  "NameTime", ["name", { isLongName: true }], "self_ns", column("share_ratio", "of the range", "ratio", (row) => row.share_ratio),
  "total_ns", "count", "mean_ns", "max_ns", column("track", "track", "none", (row) => row.track),
);

export function nameRows(
  view: SummaryView,
  range: Span,
  track: string,
  nameOf: (id: string) => string,
): NameRow[] {
  const all = view.tracks.filter((trackSummary) => track === ALL_TRACKS || trackSummary.track === track);
  const rows = all.flatMap((trackSummary) =>
    trackSummary.names.map((name) => ({
      ...name,
      track: nameOf(trackSummary.track),
      share_ratio: name.self_ns / Math.max(1, widthOf(range)),
    })));
  return rows.sort((a, b) => b.self_ns - a.self_ns);
}

function omittedNamesText(view: SummaryView, track: string): string | null {
  const all = view.tracks.filter((trackSummary) => track === ALL_TRACKS || trackSummary.track === track);
  const omittedCount = all.reduce((sum, trackSummary) => sum + trackSummary.name_count - trackSummary.names.length, 0);
  return omittedCount > 0 ? `${omittedCount} names with less time omitted` : null;
}

function trackFields(nameOf: (id: string) => string): Field<TrackSummary>[] {
  return columns(
    "TrackSummary", ["track", { value: (row) => nameOf(row.track) }],
    "busy_ratio", "busy_ns", "gap_count", "longest_gap_ns", "event_count", "name_count",
  );
}
