// Timeline: every rank, thread, stream and counter of a run on one time axis.
import { effect, signal } from "@preact/signals";
import { useEffect, useMemo, useRef } from "preact/hooks";

import type { TimelineView } from "../../api/views";
import { duration } from "../../base/quantities";
import { RULER_PX, headerHeight } from "../../canvas/scene";
import { displayText } from "../../canvas/text";
import { clampSpan, fullSpan } from "../../canvas/viewport";
import { useView } from "../../state/fetch";
import { EmptyState, ErrorNotice, Skeleton } from "../../widgets/resource_view";
import { CanvasView } from "./canvas_view";
import { createCommands } from "./commands";
import { Help } from "./help";
import { bindKeys } from "./keys";
import { Legend } from "./legend";
import { startLoader } from "./loader";
import { Minimap } from "./minimap";
import { createModel, type Model } from "./model";
import { BottomPanel } from "./panel";
import { SEARCH_ID, createSearch } from "./search";
import { followSelection } from "./selection";
import { Splitter } from "./splitter";
import { Toolbar } from "./toolbar";
import { Pinned, TrackTree, TreeHeader } from "./tree";
import { urlSpan, setUrlSpan } from "./url_state";
import "./timeline.css";

/** Delay after the last change until the window is written to the URL. */
const URL_DELAY_MS = 300;

const namesWidth = signal(Math.min(320, Math.max(120, Math.round(window.innerWidth * 0.22))));

export default function Timeline() {
  // The timeline shows the whole run, whatever range is selected for other screens.
  const { data, error } = useView("timeline", { from_ns: null, to_ns: null });
  if (data === null) return error === null ? <Skeleton /> : <ErrorNotice text={error.message} />;
  if (data.missing !== null) return <EmptyState title="No timeline" text={data.missing} />;
  return <Workspace view={data} />;
}

function Workspace({ view }: { view: TimelineView }) {
  const model = useMemo(() => createModel(view), []);
  const commands = useMemo(() => createCommands(model), [model]);
  const search = useMemo(() => createSearch(model, commands), [model, commands]);
  const latestView = useRef(view);
  useEffect(() => {
    if (latestView.current === view) return;
    latestView.current = view;
    applyUpdate(model, view, commands.followEnd);
  }, [model, view]);
  useEffect(() => {
    const cleanups = [
      startLoader(model),
      followSelection(model, commands),
      search.start(),
      syncSpanWithUrl(model),
      bindKeys(commands, {
        focusSearch: () => { document.getElementById(SEARCH_ID)?.focus(); },
        nextMatch: (direction) => { void search.selectNext(direction); },
        nextOutlier: commands.jumpToOutlier,
      }),
    ];
    return () => { cleanups.forEach((cleanup) => { cleanup(); }); };
  }, [model, commands, search]);
  const headerPx = headerHeight({ band: model.band.value, findings: view.findings });
  return (
    <div class="tl" style={{ "--names": `${namesWidth.value}px` }}>
      <h1 class="hidden">Timeline</h1>
      <Toolbar model={model} commands={commands} search={search} />
      <div class="tl-body">
        <div class="tl-overview">
          <VisibleDuration model={model} />
          <Minimap model={model} commands={commands} search={search} />
        </div>
        <div class="tl-sidebar">
          <div class="tl-sidebar-head" style={{ height: `${headerPx}px` }}>
            <TreeHeader />
            {headerPx > RULER_PX ? <BandLabel model={model} /> : null}
          </div>
          <Pinned model={model} />
          <TrackTree model={model} commands={commands} />
        </div>
        <Splitter label="Width of the track names" size={namesWidth} min={120} max={600} vertical />
        <CanvasView model={model} commands={commands} />
      </div>
      <Legend model={model} />
      <BottomPanel model={model} commands={commands} />
      <SelectionStatus model={model} />
      <Help />
    </div>
  );
}

function VisibleDuration({ model }: { model: Model }) {
  const span = model.span.value;
  const visibleNs = Math.min(span.to, model.bounds.value.end) - Math.max(span.from, 0);
  return (
    <p class="tl-visible-duration">
      <b>{duration(Math.max(0, visibleNs))}</b> <span class="muted">of {duration(model.bounds.value.end)}</span>
    </p>
  );
}

function BandLabel({ model }: { model: Model }) {
  const band = model.band.value;
  return <p class="tl-band muted"><bdi>{band === null ? "findings" : `steps of ${displayText(band.title, 80)}`}</bdi></p>;
}

/** Announce the selection to screen readers. */
function SelectionStatus({ model }: { model: Model }) {
  const slice = model.selected.value;
  const text = slice === null
    ? ""
    : `${displayText(slice.name, 200)}, ${duration(slice.duration_ns)}, on ${displayText(model.trackPaths.value.get(slice.track) ?? "", 200)}`;
  return <p class="hidden" role="status" aria-live="polite" data-testid="timeline-status">{text}</p>;
}

/** Apply an updated tree: cached data is drawn until newer data arrives. */
function applyUpdate(model: Model, view: TimelineView, follow: () => void): void {
  const previousEnd = model.bounds.peek().end;
  const span = model.span.peek();
  const showsFullRun = span.from <= 0 && span.to >= previousEnd;
  model.slices.markStale();
  model.counters.markStale();
  model.view.value = view;
  if (model.followsEnd.peek()) follow();
  else if (showsFullRun) model.span.value = fullSpan(model.bounds.peek());
  else model.span.value = { ...span }; // requests what is in view
}

/** Keep URL and window in sync; the URL is written when the window has settled. */
function syncSpanWithUrl(model: Model): () => void {
  let timer = 0;
  let lastWritten = urlSpan.peek();
  const stopUrlWrites = effect(() => {
    const span = model.span.value;
    clearTimeout(timer);
    timer = window.setTimeout(() => {
      const isFullRun = span.from <= 0 && span.to >= model.bounds.peek().end;
      lastWritten = isFullRun ? null : span;
      setUrlSpan(lastWritten);
      lastWritten = urlSpan.peek();
    }, URL_DELAY_MS);
  });
  const stopUrlReads = effect(() => {
    const requested = urlSpan.value;
    if (requested === lastWritten || (requested?.from === lastWritten?.from && requested?.to === lastWritten?.to)) return;
    lastWritten = requested;
    model.span.value = requested === null ? fullSpan(model.bounds.peek()) : clampSpan(requested, model.bounds.peek());
  });
  return () => {
    stopUrlWrites();
    stopUrlReads();
    clearTimeout(timer);
  };
}
