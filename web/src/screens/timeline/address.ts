// What the timeline keeps in the address, so that a copied link shows the same picture.
import { computed } from "@preact/signals";

import type { Span } from "../../canvas/viewport";
import { param, setParams } from "../../state/url";

/** Which groups and tracks are not as they are at first. */
export interface Folds {
  initially: "auto" | "open" | "closed";
  toggled: ReadonlySet<string>;
}

/** A number of the address; null where it is none. */
export function numberOf(text: string | null): number | null {
  if (text === null || text.trim() === "") return null;
  const value = Number(text);
  return Number.isFinite(value) ? value : null;
}

export function spanOf(from: string | null, to: string | null): Span | null {
  const [first, last] = [numberOf(from), numberOf(to)];
  return first !== null && last !== null && last > first ? { from: first, to: last } : null;
}

const MODES = { auto: "", open: "open.", closed: "closed." } as const;

export function foldsOf(text: string | null): Folds {
  const initially = text?.startsWith(MODES.open)
    ? "open"
    : text?.startsWith(MODES.closed) ? "closed" : "auto";
  const ids = (text ?? "").slice(MODES[initially].length).split(".").filter((id) => id !== "");
  return { initially, toggled: new Set(ids) };
}

export function foldsText(folds: Folds): string | null {
  const text = MODES[folds.initially] + [...folds.toggled].join(".");
  return text === "" ? null : text;
}

const names = {
  t0: param("t0"), t1: param("t1"), from: param("from"), to: param("to"),
  track: param("track"), event: param("event"), pin: param("pin"), fold: param("fold"),
  find: param("find"), align: param("align"), band: param("band"), relative: param("relative"),
  filter: param("filter"), renderer: param("renderer"),
};

/** The window; null for the whole run. */
export const addressSpan = computed(() => spanOf(names.t0.value, names.t1.value));
/** The range that all screens are about. */
export const range = computed(() => spanOf(names.from.value, names.to.value));
export const folds = computed(() => foldsOf(names.fold.value));
export const pins = computed(() => (names.pin.value ?? "").split(",").filter((id) => id !== ""));
export const find = computed(() => names.find.value ?? "");
export const filter = computed(() => names.filter.value ?? "");
/** Number of the step that ranks are aligned on. */
export const align = computed(() => numberOf(names.align.value));
/** Group whose steps stand above all tracks. */
export const band = computed(() => names.band.value);
/** Whether the ruler counts from the beginning of what is selected. */
export const relative = computed(() => names.relative.value === "1");
export const selectedKey = computed(() => {
  const event = numberOf(names.event.value);
  return names.track.value === null || event === null ? null : { track: names.track.value, event };
});

/** Canvas2D where it is asked for, to see what people without WebGL2 see. */
export function renderer(): "webgl2" | "2d" {
  return names.renderer.value === "2d" ? "2d" : "webgl2";
}

export function writeSpan(span: Span | null): void {
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

export function setFolds(next: Folds): void {
  setParams({ fold: foldsText(next) }, { replace: true });
}

export function togglePin(id: string): void {
  const next = pins.value.includes(id) ? pins.value.filter((pin) => pin !== id) : [...pins.value, id];
  setParams({ pin: next.length === 0 ? null : next.join(",") }, { replace: true });
}

export function setFind(text: string): void {
  setParams({ find: text === "" ? null : text }, { replace: true });
}

export function setFilter(text: string): void {
  setParams({ filter: text === "" ? null : text }, { replace: true });
}

export function setAlign(step: number | null): void {
  setParams({ align: step === null ? null : String(step) });
}

export function setBand(group: string | null): void {
  setParams({ band: group }, { replace: true });
}

export function setRelative(on: boolean): void {
  setParams({ relative: on ? "1" : null }, { replace: true });
}
