// Details of the selected slice.
import { Crosshair, Search as SearchIcon, SquareDashedMousePointer } from "lucide";

import type { EventDetails, LinkedEvent } from "../../api/views";
import { count, duration, inUnit, percent } from "../../base/quantities";
import { words } from "../../base/text";
import type { SliceRef } from "../../canvas/scene";
import { displayText } from "../../canvas/text";
import { exactTime } from "../../canvas/ticks";
import { StackFrames } from "../../parts/stack_frames";
import { Icon } from "../../widgets/icon";
import type { Commands } from "./commands";
import { RELATION_LABELS, linkRef } from "./links";
import type { Model } from "./model";
import { selectionError } from "./selection";
import { setSearchText, setRange } from "./url_state";

interface Props {
  model: Model;
  commands: Commands;
}

export function Details({ model, commands }: Props) {
  const selected = model.selected.value;
  const slice = model.details.value;
  if (selected === null) {
    return selectionError.value === null
      ? <p class="muted tl-hint">Select a slice to see its details.</p>
      : <p class="error-notice" role="alert">{selectionError.value}</p>;
  }
  const sliceDetails = slice?.track === selected.track && slice.event === selected.event ? slice : null;
  return (
    <div class="tl-details">
      <section class="tl-main">
        <h2 class="tl-title"><bdi>{displayText(selected.name)}</bdi></h2>
        <p class="muted tl-path"><bdi>{model.trackPaths.value.get(selected.track) ?? selected.track}</bdi></p>
        <TimingFacts selected={selected} slice={sliceDetails} />
        <div class="tl-buttons">
          <button type="button" class="action" onClick={() => { commands.zoomTo(selected); }}>
            <Icon icon={Crosshair} size={14} /> Zoom in
          </button>
          <button type="button" class="action" onClick={() => { setRange({ from: selected.after_ns, to: selected.after_ns + selected.duration_ns }); }}>
            <Icon icon={SquareDashedMousePointer} size={14} /> Select as range
          </button>
          <button type="button" class="action" onClick={() => { setSearchText(selected.name.slice(0, 400)); }}>
            <Icon icon={SearchIcon} size={14} /> Find this name
          </button>
        </div>
        {selected.event < 0 ? (
          <p class="muted">Several events, too short to draw at this zoom level. Zoom in to select one.</p>
        ) : null}
        {selectionError.value === null ? null : <p class="error-notice" role="alert">{selectionError.value}</p>}
      </section>
      {sliceDetails === null ? null : <PartsTable slice={sliceDetails} />}
      {sliceDetails === null ? null : <ArgumentTable slice={sliceDetails} />}
      {sliceDetails === null ? null : <LinkTable slice={sliceDetails} model={model} commands={commands} />}
      {sliceDetails === null ? null : <Stack slice={sliceDetails} />}
    </div>
  );
}

function TimingFacts({ selected, slice }: { selected: SliceRef; slice: EventDetails | null }) {
  const { after_ns, duration_ns } = selected;
  const spread = slice?.spread_ns ?? null;
  const facts: [string, string][] = spread === null
    ? [
        ["duration", `${duration(duration_ns)} (${count(duration_ns)} ns)`],
        ["start", `${exactTime(after_ns)} after the origin`],
        ["end", exactTime(after_ns + duration_ns)],
      ]
    : [
        ["sum", `${duration(duration_ns)} (${count(duration_ns)} ns)`],
        ["anywhere in", `${duration(spread)} from ${exactTime(after_ns)} after the origin`],
      ];
  if (slice !== null) {
    if (slice.self_ns !== null) {
      const share = duration_ns > 0 ? `, ${percent(slice.self_ns / duration_ns)} of its duration` : "";
      facts.push(["self time", `${duration(slice.self_ns)}${share}`]);
    }
    if (slice.step !== null) facts.push(["step", slice.step]);
    facts.push(["kind", words(slice.kind)]);
  }
  return (
    <dl class="tl-key-values">
      {facts.map(([name, value]) => <div key={name}><dt>{name}</dt><dd>{displayText(value, 300)}</dd></div>)}
    </dl>
  );
}

function PartsTable({ slice }: { slice: EventDetails }) {
  const parts = Object.entries(slice.parts);
  if (parts.length === 0) return null;
  return (
    <section>
      <h3>Parts</h3>
      <table class="tl-table">
        <caption class="hidden">Sums of time inside the slice</caption>
        <tbody>
          {parts.map(([name, ns]) => (
            <tr key={name}>
              <th scope="row"><bdi>{displayText(name, 100)}</bdi></th>
              <td class="number">{duration(ns)}</td>
              <td class="number muted">{percent(ns / Math.max(slice.duration_ns, 1))} of it</td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

function ArgumentTable({ slice }: { slice: EventDetails }) {
  const args = Object.entries(slice.args);
  if (args.length === 0) return null;
  return (
    <section>
      <h3>Arguments</h3>
      <table class="tl-table">
        <caption class="hidden">Arguments of the slice</caption>
        <tbody>
          {args.map(([name, value]) => (
            <tr key={name}><th scope="row"><bdi>{displayText(argumentTitle(name), 100)}</bdi></th><td><bdi>{formatArgument(name, value)}</bdi></td></tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

/** Units at the end of names of arguments, longer ones before their own endings. */
const ARGUMENT_UNITS = ["ns", "ratio", "percent", "bytes_per_s", "bytes", "gb_per_s", "flop", "count"];

function argumentUnit(name: string): string | undefined {
  return ARGUMENT_UNITS.find((unit) => name === unit || name.endsWith(`_${unit}`));
}

/** Turn the name of an argument into a title, without the unit that its value carries. */
function argumentTitle(name: string): string {
  const unit = argumentUnit(name);
  const stem = unit === undefined || unit === "count" || unit === name ? name : name.slice(0, -unit.length - 1);
  return words(stem);
}

/** Format an argument; numbers in the unit at the end of their name. */
export function formatArgument(name: string, value: unknown): string {
  const unit = argumentUnit(name);
  if (typeof value === "number" && unit !== undefined) return inUnit(value, unit);
  if (typeof value === "string") return displayText(value);
  return displayText(JSON.stringify(value));
}

function LinkTable({ slice, model, commands }: Props & { slice: EventDetails }) {
  if (slice.links.length === 0) return null;
  return (
    <section class="tl-links">
      <h3>Linked to</h3>
      <table class="tl-table">
        <caption class="hidden">Slices that this one is linked to</caption>
        <tbody>
          {slice.links.map((link) => (
            <tr key={`${link.relation} ${link.track} ${link.event}`}>
              <th scope="row">{RELATION_LABELS[link.relation]}</th>
              <td>
                <button type="button" class="tl-link" title={model.trackPaths.value.get(link.track)} onClick={() => { commands.showSlice(linkRef(link)); }}>
                  <bdi>{displayText(link.name, 300)}</bdi>
                </button>
              </td>
              <td class="number">{duration(link.duration_ns)}</td>
              <td class="number muted">{timeBetween(slice, link)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

/** Time by which the linked slice starts earlier or later. */
function timeBetween(slice: EventDetails, link: LinkedEvent): string {
  const offsetNs = link.after_ns - slice.after_ns;
  return offsetNs < 0 ? `${duration(-offsetNs)} earlier` : `${duration(offsetNs)} later`;
}

function Stack({ slice }: { slice: EventDetails }) {
  if (slice.stack.length === 0) return null;
  return (
    <section>
      <h3>Python stack, innermost first</h3>
      <StackFrames frames={slice.stack} label="Python stack, innermost first" />
    </section>
  );
}
