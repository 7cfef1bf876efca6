// Where the reader is. All of it is in the address, so that every screen can be linked to.
import { batch, computed, signal, type ReadonlySignal } from "@preact/signals";

import { entered, followScrolling, returned, scrollPage } from "./scroll";

/** Parameters that stay when the screen changes; all others belong to one screen. */
const KEPT = ["run", "with", "open", "from", "to", "trace"];

const address = signal(new URL(window.location.href));
const params = computed(() => address.value.searchParams);

/** Name of the screen: the path without its slash; the list of jobs has none. */
export const screen = computed(() => decodeURIComponent(address.value.pathname.slice(1)));

const known = new Map<string, ReadonlySignal<string | null>>();

/** A parameter of the address; null where it is absent. */
export function param(name: string): ReadonlySignal<string | null> {
  let found = known.get(name);
  if (found === undefined) {
    found = computed(() => params.value.get(name));
    known.set(name, found);
  }
  return found;
}

/** The run on screen, by the id that the server knows it by. */
export const run = param("run");
/** The run that it is compared with. */
export const other = param("with");

/** Runs that are open, the one on screen among them. */
export const openRuns = computed(() => {
  const found = params.value.getAll("open");
  const shown = run.value;
  return shown === null || found.includes(shown) ? found : [...found, shown];
});

type Values = Record<string, string | readonly string[] | null>;

function changed(search: URLSearchParams, values: Values): URLSearchParams {
  const next = new URLSearchParams(search);
  for (const [name, value] of Object.entries(values)) {
    next.delete(name);
    if (value === null) continue;
    for (const each of typeof value === "string" ? [value] : value) next.append(name, each);
  }
  return next;
}

function written(path: string, search: URLSearchParams): string {
  const text = search.toString();
  return text === "" ? path : `${path}?${text}`;
}

/** The address of a screen, about the same runs and range. */
export function link(target: string, values: Values = {}): string {
  const kept = new URLSearchParams();
  for (const name of KEPT) {
    for (const value of params.value.getAll(name)) kept.append(name, value);
  }
  return written(`/${target}`, changed(kept, values));
}

/** Go to an address of this page; `replace` leaves no step to go back to. */
export function go(target: string, replace = false): void {
  if (replace) window.history.replaceState(window.history.state, "", target);
  else window.history.pushState(entered(), "", target);
  const moved = new URL(window.location.href).pathname !== address.value.pathname;
  read();
  if (moved) scrollPage(0);
}

/** Change parameters of this screen. */
export function setParams(values: Values, options: { replace?: boolean } = {}): void {
  const next = written(address.value.pathname, changed(params.value, values));
  if (next !== address.value.pathname + address.value.search) go(next, options.replace);
}

function read(): void {
  batch(() => {
    address.value = new URL(window.location.href);
  });
}

/** Follow links and the browser's buttons. */
export function followAddress(): void {
  followScrolling();
  window.addEventListener("popstate", () => {
    read();
    returned();
  });
  document.addEventListener("click", (event) => {
    if (event.defaultPrevented || event.button !== 0) return;
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const anchor = (event.target as Element | null)?.closest("a");
    if (!anchor || anchor.target !== "" || anchor.hasAttribute("download")) return;
    if (anchor.origin !== window.location.origin || anchor.getAttribute("href")?.startsWith("#"))
      return;
    event.preventDefault();
    go(anchor.pathname + anchor.search + anchor.hash);
  });
}
