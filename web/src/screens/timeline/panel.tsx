// Panel below the timeline: selected slice, summary or flame graph of the range.
import { effect, signal } from "@preact/signals";
import { PanelBottomClose, PanelBottomOpen, X } from "lucide";
import { useEffect } from "preact/hooks";

import { duration } from "../../base/quantities";
import { exactTime } from "../../canvas/ticks";
import { eachTrack } from "../../canvas/tree";
import { fullSpan, widthOf, type Span } from "../../canvas/viewport";
import { notes } from "../../state/notes";
import { IconButton } from "../../widgets/icon_button";
import { Select } from "../../widgets/select";
import type { Commands } from "./commands";
import { Details } from "./details";
import { RangeFlameGraph } from "./flame_graph";
import type { Model } from "./model";
import { Notes } from "./notes";
import { Splitter } from "./splitter";
import { Summary } from "./summary";
import { pinnedIds, range, setRange, urlSpan } from "./url_state";

type Tab = "slice" | "summary" | "flame" | "notes";

const TABS: readonly (readonly [Tab, string])[] = [
  ["slice", "Slice"], ["summary", "Range"], ["flame", "Flame graph"], ["notes", "Notes"],
];
/** Tracks of a summary: those on screen, all of a kind, or the pinned ones. */
type TrackKind = "host and device" | "host" | "device" | "pinned";

const tab = signal<Tab>("slice");
const open = signal(false);
const height = signal(280);
const selectedKind = signal<TrackKind>("host and device");
/** Tracks per request; the server omits further ones. */
const MAX_TRACKS = 400;

interface Props {
  model: Model;
  commands: Commands;
}

export function BottomPanel({ model, commands }: Props) {
  useEffect(() => {
    let [previousRange, previousSlice] = [range.peek(), model.selected.peek()];
    const showTab = (next: Tab): void => {
      tab.value = next;
      open.value = true;
    };
    if (previousRange !== null) showTab("summary");
    return effect(() => {
      const [currentRange, slice] = [range.value, model.selected.value];
      if (slice !== null && (slice.track !== previousSlice?.track || slice.event !== previousSlice.event || slice.after_ns !== previousSlice.after_ns)) showTab("slice");
      if (currentRange !== null && (currentRange.from !== previousRange?.from || currentRange.to !== previousRange.to)) showTab(tab.peek() === "flame" ? "flame" : "summary");
      if (currentRange === null && slice === null) open.value = false;
      [previousRange, previousSlice] = [currentRange, slice];
    });
  }, [model]);
  return (
    <section class={open.value ? "tl-panel" : "tl-panel closed"} aria-label="Details">
      {open.value ? <Splitter label="Height of the details panel" size={height} min={120} max={640} vertical={false} /> : null}
      <PanelHeader model={model} />
      {open.value ? (
        <div id="tl-panel-body" class="tl-panel-body" role="tabpanel" aria-labelledby={`tl-tab-${tab.value}`} tabIndex={0} style={{ height: `${height.value}px` }}>
          {tab.value === "slice" ? <div data-testid="timeline-details"><Details model={model} commands={commands} /></div> : null}
          {tab.value === "notes" ? <Notes model={model} commands={commands} /> : null}
          {tab.value === "summary" || tab.value === "flame" ? <RangeContent model={model} /> : null}
        </div>
      ) : null}
    </section>
  );
}

function PanelHeader({ model }: { model: Model }) {
  const selectedRange = range.value;
  return (
    <header class="tl-panel-head">
      <div role="tablist" aria-label="Details">
        {TABS.map(([key, label]) => (
          <button
            key={key}
            id={`tl-tab-${key}`}
            type="button"
            role="tab"
            aria-selected={open.value && tab.value === key}
            aria-controls={open.value ? "tl-panel-body" : undefined}
            onClick={() => {
              tab.value = key;
              open.value = true;
            }}
          >
            {label}{key === "notes" && notes.value.notes.length > 0 ? ` (${notes.value.notes.length})` : ""}
          </button>
        ))}
      </div>
      {selectedRange === null ? null : (
        <span class="chip">
          {exactTime(selectedRange.from)} to {exactTime(selectedRange.to)} ({duration(widthOf(selectedRange))}), all screens
          <IconButton class="" icon={X} label="Clear range" size={14} onClick={() => { setRange(null); }} />
        </span>
      )}
      {tab.value === "slice" || tab.value === "notes" || !open.value ? null : <TrackKindSelect model={model} />}
      <span class="tl-spacer" />
      <IconButton
        icon={open.value ? PanelBottomClose : PanelBottomOpen}
        label={open.value ? "Close details" : "Open details"}
        size={16}
        expanded={open.value}
        onClick={() => { open.value = !open.value; }}
      />
    </header>
  );
}

function TrackKindSelect({ model }: { model: Model }) {
  const choices: TrackKind[] = ["host and device", "host", "device"];
  if (model.pinned.value.lines.length > 0) choices.push("pinned");
  return <Select label="Tracks" value={selectedKind.value} choices={choices} onChange={(value) => { selectedKind.value = value; }} />;
}

function RangeContent({ model }: { model: Model }) {
  const selectedRange = range.value ?? model.draftRange.value;
  const shownRange = selectedRange ?? urlSpan.value ?? fullSpan(model.bounds.value);
  const tracks = tracksOf(model, selectedKind.value).join(",");
  const span: Span = { from: Math.max(0, Math.floor(shownRange.from)), to: Math.ceil(shownRange.to) };
  if (tracks === "") return <p class="muted tl-hint">No matching tracks.</p>;
  return (
    <>
      {selectedRange === null ? <p class="muted tl-hint">All that is on screen. Drag on the ruler, or hold Shift and drag anywhere, to select a range.</p> : null}
      {tab.value === "summary"
        ? <Summary model={model} range={span} tracks={tracks} />
        : <RangeFlameGraph range={span} tracks={tracks} />}
    </>
  );
}

function tracksOf(model: Model, kind: TrackKind): string[] {
  const trackIds: string[] = [];
  const pinned = new Set(pinnedIds.value);
  eachTrack(model.view.value.groups, (track) => {
    const isDevice = track.kind === "device";
    const matches = kind === "pinned"
      ? pinned.has(track.id)
      : kind === "host and device" || (kind === "device") === isDevice;
    if (track.kind !== "counter" && matches && trackIds.length < MAX_TRACKS) trackIds.push(track.id);
  });
  return trackIds;
}
