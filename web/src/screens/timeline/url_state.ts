// State of the timeline in the URL, so that a copied link shows the same view.
import { computed } from "@preact/signals";

import type { Span } from "../../canvas/viewport";
import { toggleItem } from "../../parts/url_options";
import { param, setParams } from "../../state/url";

/** Groups and tracks that differ from their default state. */
export interface CollapseState {
  defaultState: "auto" | "open" | "closed";
  toggledIds: ReadonlySet<string>;
}

/** Parse a number; null if it is none. */
export function parseNumber(text: string | null): number | null {
  if (text === null || text.trim() === "") return null;
  const value = Number(text);
  return Number.isFinite(value) ? value : null;
}

export function parseSpan(from: string | null, to: string | null): Span | null {
  const [first, last] = [parseNumber(from), parseNumber(to)];
  return first !== null && last !== null && last > first ? { from: first, to: last } : null;
}

const MODES = { auto: "", open: "open.", closed: "closed." } as const;

export function parseCollapseState(text: string | null): CollapseState {
  const defaultState = text?.startsWith(MODES.open)
    ? "open"
    : text?.startsWith(MODES.closed) ? "closed" : "auto";
  const ids = (text ?? "").slice(MODES[defaultState].length).split(".").filter((id) => id !== "");
  return { defaultState, toggledIds: new Set(ids) };
}

export function formatCollapseState(collapseState: CollapseState): string | null {
  const text = MODES[collapseState.defaultState] + [...collapseState.toggledIds].join(".");
  return text === "" ? null : text;
}

const params = {
  t0: param("t0"), t1: param("t1"), from: param("from"), to: param("to"),
  track: param("track"), event: param("event"), pin: param("pin"), fold: param("fold"),
  find: param("find"), align: param("align"), band: param("band"), relative: param("relative"),
  filter: param("filter"), renderer: param("renderer"),
};

/** Window; null for the whole run. */
export const urlSpan = computed(() => parseSpan(params.t0.value, params.t1.value));
/** Range selected for all screens. */
export const range = computed(() => parseSpan(params.from.value, params.to.value));
export const collapseState = computed(() => parseCollapseState(params.fold.value));
export const pinnedIds = computed(() => (params.pin.value ?? "").split(",").filter((id) => id !== ""));
export const searchText = computed(() => params.find.value ?? "");
export const trackFilter = computed(() => params.filter.value ?? "");
/** Number of the step on which ranks are aligned. */
export const alignedStep = computed(() => parseNumber(params.align.value));
/** Group whose steps are in the band above all tracks. */
export const bandGroup = computed(() => params.band.value);
/** The ruler is relative to the start of the selection. */
export const isRulerRelative = computed(() => params.relative.value === "1");
export const selectedKey = computed(() => {
  const event = parseNumber(params.event.value);
  return params.track.value === null || event === null ? null : { track: params.track.value, event };
});

/** Return the preferred backend; `renderer=2d` in the URL shows the view without WebGL2. */
export function preferredRenderer(): "webgl2" | "2d" {
  return params.renderer.value === "2d" ? "2d" : "webgl2";
}

export function setUrlSpan(span: Span | null): void {
  const text = (ns: number): string => String(Math.round(ns * 100) / 100);
  const next = { t0: span === null ? null : text(span.from), t1: span === null ? null : text(span.to) };
  setParams(next, { replace: true });
}

export function setRange(span: Span | null): void {
  if (span === null) setParams({ from: null, to: null });
  else {
    const from = Math.max(0, Math.floor(span.from));
    setParams({ from: String(from), to: String(Math.max(from + 1, Math.ceil(span.to))) });
  }
}

export function setSelected(track: string | null, event: number): void {
  setParams({ track, event: track === null ? null : String(event) });
}

/** Return a function that sets parameters without a new history entry. */
function setter<Value>(name: string, format: (value: Value) => string | null): (value: Value) => void {
  return (value) => { setParams({ [name]: format(value) || null }, { replace: true }); };
}

const setPins = setter("pin", (ids: readonly string[]) => ids.join(","));
export const setCollapseState = setter("fold", formatCollapseState);
export const setSearchText = setter("find", (text: string) => text);
export const setTrackFilter = setter("filter", (text: string) => text);
export const setBandGroup = setter("band", (group: string | null) => group);
export const setRulerRelative = setter("relative", (on: boolean) => (on ? "1" : null));

/** Track of the critical path. */
const PATH_TRACK = "critical-path";
/** The critical path is drawn above all tracks: it is pinned first. */
export const showsPath = computed(() => pinnedIds.value.includes(PATH_TRACK));

export function togglePath(): void {
  const ids = pinnedIds.value.filter((id) => id !== PATH_TRACK);
  setPins(showsPath.value ? ids : [PATH_TRACK, ...ids]);
}

export function togglePin(id: string): void {
  setPins(toggleItem(pinnedIds.value, id));
}

export function setAlignedStep(step: number | null): void {
  setParams({ align: step === null ? null : String(step) });
}
