// One step of each run on the same axis, from its start.
import { useCallback, useEffect, useRef, useState } from "preact/hooks";

import type { SlicesView, TimelineView, Track, TrackSlices } from "../../api/views";
import { get } from "../../base/client";
import { palette } from "../../base/palette";
import { duration } from "../../base/quantities";
import { dark } from "../../base/theme";
import { css, inLegendOrder, kindColourIndex, sliceColours } from "../../canvas/colours";
import { useGet } from "../../state/fetch";
import { link } from "../../state/url";
import { Panel } from "../../widgets/panel";
import { medianStep, stepTracks } from "./steps";

const ROW_PX = 14;
const PIXELS = 1200;

interface Props {
  /** Ids of the runs. */
  runs: readonly string[];
  names: readonly string[];
}

export function AlignedSteps({ runs, names }: Props) {
  const [first = "", second = ""] = runs;
  const timelines = [
    useGet<TimelineView>("/api/views/timeline", { run: first }).data,
    useGet<TimelineView>("/api/views/timeline", { run: second }).data,
  ];
  const steps = timelines.map((timeline) => (timeline === null ? null : medianStep(timeline.steps)));
  const [kinds, setKinds] = useState<ReadonlySet<string>>(new Set());
  const addKinds = useCallback((added: Iterable<string>) => { setKinds((all) => new Set([...all, ...added])); }, []);
  if (steps.includes(null)) return null;
  const longest_ns = Math.max(1, ...steps.map((step) => step?.duration_ns ?? 0));
  const { fill } = sliceColours(dark.value);
  return (
    <Panel title="Median step of each run" wide testid="aligned-steps" description="Both from the start of the step, on the same axis.">
      {timelines.map((timeline, index) => {
        const step = steps[index];
        if (timeline === null || step == null) return null;
        const run = runs[index] ?? "";
        const [t0, t1] = [step.after_ns, step.after_ns + step.duration_ns];
        return (
          <section key={run} class="aligned-step" aria-label={`Step ${step.number} of ${names[index] ?? run}`}>
            <h3>
              {index === 0 ? "From" : "To"}: <a href={link("timeline", { run, with: null, t0: String(t0), t1: String(t1) })}>step {step.number}, {duration(step.duration_ns)}</a>
              {" "}<span class="muted">{names[index]}</span>
            </h3>
            <StepLanes run={run} tracks={stepTracks(timeline.groups, step.group)} from_ns={t0} step_ns={step.duration_ns} axis_ns={longest_ns} onKinds={addKinds} />
          </section>
        );
      })}
      <p class="aligned-axis muted" aria-hidden="true"><span>0</span><span>{duration(longest_ns / 2)}</span><span>{duration(longest_ns)}</span></p>
      <ul class="aligned-legend" aria-label="Colours of the slices">
        {inLegendOrder(kinds).map((kind) => <li key={kind}><i style={{ background: css(fill[kindColourIndex(kind)] ?? 0) }} />{kind}</li>)}
      </ul>
    </Panel>
  );
}

interface LanesProps {
  run: string;
  tracks: readonly Track[];
  from_ns: number;
  step_ns: number;
  axis_ns: number;
  onKinds: (kinds: Iterable<string>) => void;
}

function StepLanes({ run, tracks, from_ns, step_ns, axis_ns, onKinds }: LanesProps) {
  const [payload, setPayload] = useState<SlicesView | null>(null);
  const ids = tracks.map(({ id }) => id).join(",");
  useEffect(() => {
    const abort = new AbortController();
    const options = { run, tracks: ids, from_ns, to_ns: from_ns + axis_ns, pixels: PIXELS };
    const show = (slices: SlicesView): void => {
      setPayload(slices);
      onKinds(slices.tracks.flatMap((track) => drawnNames(track, step_ns).flatMap((name) => slices.kinds[name] ?? [])));
    };
    get<SlicesView>("/api/views/timeline-slices", options, abort.signal).then(show, () => { /* the lanes stay empty */ });
    return () => { abort.abort(); };
  }, [run, ids, from_ns, step_ns, axis_ns, onKinds]);
  const isEmpty = ({ id }: Track): boolean => payload?.tracks.some((track) => track.track === id && drawnNames(track, step_ns).length === 0) === true;
  return (
    <>
      {tracks.filter((track) => !isEmpty(track)).map((track) => (
        <div key={track.id} class="aligned-lane">
          <span class="muted" title={track.name}>{track.name}</span>
          <Lane payload={payload} track={track} step_ns={step_ns} axis_ns={axis_ns} />
        </div>
      ))}
    </>
  );
}

/** Names of the slices that are drawn, as indices. */
function drawnNames({ row, name, after_ns, duration_ns }: TrackSlices, step_ns: number): number[] {
  return name.filter((_, index) => (row[index] ?? 0) < MAX_ROWS && (after_ns[index] ?? 0) < step_ns && (after_ns[index] ?? 0) + (duration_ns[index] ?? 0) > 0);
}

interface LaneProps {
  payload: SlicesView | null;
  track: Track;
  step_ns: number;
  axis_ns: number;
}

function Lane({ payload, track, step_ns, axis_ns }: LaneProps) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const isDark = dark.value;
  const slices = payload?.tracks.find((candidate) => candidate.track === track.id);
  const rowCount = Math.max(1, Math.min(MAX_ROWS, slices?.row_count ?? track.row_count));
  useEffect(() => {
    const element = canvas.current;
    if (element === null) return undefined;
    const draw = (): void => {
      const context = element.getContext("2d");
      if (context === null) return;
      const density = window.devicePixelRatio;
      const width = element.clientWidth;
      element.width = Math.max(1, Math.round(width * density));
      element.height = Math.round(ROW_PX * rowCount * density);
      context.scale(density, density);
      context.fillStyle = palette(isDark).line;
      context.globalAlpha = 0.5;
      context.fillRect((width * step_ns) / axis_ns, 0, width, ROW_PX * rowCount); // after the step
      context.globalAlpha = 1;
      if (payload === null || slices === undefined) return;
      const { fill, text } = sliceColours(isDark);
      context.font = "10px system-ui, sans-serif";
      context.textBaseline = "middle";
      slices.after_ns.forEach((after_ns, index) => {
        const row = slices.row[index] ?? 0;
        const x = (width * Math.max(0, after_ns)) / axis_ns;
        const end = (width * Math.min(step_ns, after_ns + (slices.duration_ns[index] ?? 0))) / axis_ns;
        if (row >= rowCount || end <= 0 || x >= end) return;
        const name = payload.names[slices.name[index] ?? -1] ?? "";
        const colour = kindColourIndex(payload.kinds[slices.name[index] ?? -1] ?? "other");
        const packed = fill[colour] ?? 0;
        context.fillStyle = `rgb(${packed & 255} ${(packed >> 8) & 255} ${(packed >> 16) & 255})`;
        context.fillRect(x, row * ROW_PX, Math.max(0.5, end - x - 0.5), ROW_PX - 1);
        if (end - x > MIN_LABEL_PX) {
          context.fillStyle = text[colour] ?? "";
          context.fillText(name.slice(0, Math.floor((end - x - 6) / 5.5)), x + 3, (row + 0.5) * ROW_PX);
        }
      });
    };
    const observer = new ResizeObserver(draw);
    observer.observe(element);
    return () => { observer.disconnect(); };
  }, [payload, slices, rowCount, step_ns, axis_ns, isDark]);
  return <canvas ref={canvas} aria-hidden="true" style={{ height: `${ROW_PX * rowCount}px` }} />;
}

/** Deeper calls are on the timeline. */
const MAX_ROWS = 4;
const MIN_LABEL_PX = 36;
