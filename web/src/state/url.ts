// URL state: it determines the screen, so every screen can be linked to.
import { batch, computed, signal, type ReadonlySignal } from "@preact/signals";

import { createHistoryEntry, followScrolling, restoreScroll, scrollPage } from "./scroll";

/** Parameters that all screens share; others belong to one screen. */
const SHARED_PARAMS = ["run", "with", "open", "from", "to", "trace"];

const currentUrl = signal(new URL(window.location.href));
const params = computed(() => currentUrl.value.searchParams);

/** Name of the screen: the path without its slash; empty for the list of jobs. */
export const screen = computed(() => decodeURIComponent(currentUrl.value.pathname.slice(1)));

const paramSignals = new Map<string, ReadonlySignal<string | null>>();

/** Signal of a URL parameter; null if it is absent. */
export function param(name: string): ReadonlySignal<string | null> {
  let paramSignal = paramSignals.get(name);
  if (paramSignal === undefined) {
    paramSignal = computed(() => params.value.get(name));
    paramSignals.set(name, paramSignal);
  }
  return paramSignal;
}

/** Id of the current run. */
export const run = param("run");
/** Id of the run that it is compared with. */
export const baseRun = param("with");

/** Ids of the open runs, including the current one. */
export const openRuns = computed(() => {
  const runIds = params.value.getAll("open");
  const currentRun = run.value;
  return currentRun === null || runIds.includes(currentRun) ? runIds : [...runIds, currentRun];
});

type Values = Record<string, string | readonly string[] | null>;

function withParams(search: URLSearchParams, values: Values): URLSearchParams {
  const next = new URLSearchParams(search);
  for (const [name, value] of Object.entries(values)) {
    next.delete(name);
    if (value === null) continue;
    for (const item of typeof value === "string" ? [value] : value) next.append(name, item);
  }
  return next;
}

function urlOf(path: string, search: URLSearchParams): string {
  const text = search.toString();
  return text === "" ? path : `${path}?${text}`;
}

/** URL of a screen with the same runs and range. */
export function link(target: string, values: Values = {}): string {
  const search = new URLSearchParams();
  for (const name of SHARED_PARAMS) {
    for (const value of params.value.getAll(name)) search.append(name, value);
  }
  return urlOf(`/${target}`, withParams(search, values));
}

/** Navigate within the page; `replace` adds no history entry. */
export function navigate(target: string, replace = false): void {
  if (replace) window.history.replaceState(window.history.state, "", target);
  else window.history.pushState(createHistoryEntry(), "", target);
  const moved = new URL(window.location.href).pathname !== currentUrl.value.pathname;
  readUrl();
  if (moved) scrollPage(0);
}

/** Change URL parameters of the current screen. */
export function setParams(values: Values, options: { replace?: boolean } = {}): void {
  const next = urlOf(currentUrl.value.pathname, withParams(params.value, values));
  if (next !== currentUrl.value.pathname + currentUrl.value.search) navigate(next, options.replace);
}

function readUrl(): void {
  batch(() => {
    currentUrl.value = new URL(window.location.href);
  });
}

/** Handle links and the browser's buttons. */
export function followUrl(): void {
  followScrolling();
  window.addEventListener("popstate", () => {
    readUrl();
    restoreScroll();
  });
  document.addEventListener("click", (event) => {
    if (event.defaultPrevented || event.button !== 0) return;
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const anchor = (event.target as Element | null)?.closest("a");
    if (!anchor || anchor.target !== "" || anchor.hasAttribute("download")) return;
    if (anchor.origin !== window.location.origin || anchor.getAttribute("href")?.startsWith("#"))
      return;
    event.preventDefault();
    navigate(anchor.pathname + anchor.search + anchor.hash);
  });
}
