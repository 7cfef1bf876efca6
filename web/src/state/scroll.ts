// How far down a page the reader was, for when they come back to it by the browser's buttons.
//
// Every entry of the browser's history has a name in its state; what was reached there is kept for
// as long as the tab is open. A screen that is come back to has no height until its payloads are
// there: until then, or until the reader does something, it is scrolled to its place whenever it
// has grown.

import { countPendingRequests } from "../api/client";

/** Longer than a payload may keep a reader waiting who then finds the page moving. */
const MAX_WAIT_MS = 10_000;
/** A page that has kept its height for so long, and awaits no answer, is all there. */
const QUIET_MS = 1_000;
const STORE = "stepscope-places";
const MAX_ENTRIES = 200;
const INPUTS = ["wheel", "touchstart", "pointerdown", "keydown"] as const;

interface State {
  index: string;
}

let scrollByEntry = new Map<string, number>();
let entryId = "";
let count = 0;
let cancelRestore: (() => void) | null = null;

/** What a new entry of the history has for its state. The one on screen is left behind. */
export function createHistoryEntry(): State {
  recordScroll();
  cancelRestore?.();
  count += 1;
  entryId = `${Date.now().toString(36)}-${count.toString(36)}`;
  return { index: entryId };
}

/** The entry that the browser is at now; one without a name is new, as after a link within a page. */
export function restoreScroll(): void {
  cancelRestore?.();
  const id = entryIdOf(window.history.state);
  if (id === null) {
    window.history.replaceState(createHistoryEntry(), "");
    return;
  }
  entryId = id;
  scrollWhenLoaded(scrollByEntry.get(id) ?? 0);
}

/** Remember where the reader is, and bring them back after the page was loaded again. */
export function followScrolling(): void {
  window.history.scrollRestoration = "manual";
  scrollByEntry = readStoredEntries();
  restoreScroll();
  window.addEventListener("scroll", recordScroll, { passive: true });
  window.addEventListener("pagehide", storeEntries);
}

/** At once: a smooth way there would be measured out on a page that still grows. */
export function scrollPage(top: number): void {
  window.scrollTo({ top, behavior: "instant" });
}

function entryIdOf(state: unknown): string | null {
  const id = (state as Partial<State> | null)?.index;
  return typeof id === "string" ? id : null;
}

function recordScroll(): void {
  if (entryId === "" || cancelRestore !== null) return; // on the way the page is not where it shall be
  scrollByEntry.delete(entryId);
  scrollByEntry.set(entryId, window.scrollY);
}

function scrollWhenLoaded(top: number): void {
  let quietTimer = 0;
  let frame = 0;
  const resizeObserver = new ResizeObserver(() => {
    scrollPage(top);
    restartQuietTimer();
  });
  function restartQuietTimer(): void {
    window.clearTimeout(quietTimer);
    quietTimer = window.setTimeout(finishWhenQuiet, QUIET_MS);
  }
  // What kept the page busy until now has its height only after the next frame.
  function finishWhenQuiet(): void {
    if (countPendingRequests() > 0) restartQuietTimer();
    else frame = window.requestAnimationFrame(() => { quietTimer = window.setTimeout(end); });
  }
  const maxWaitTimer = window.setTimeout(end, MAX_WAIT_MS);
  // What comes in above must not push the page down meanwhile. Chromium heeds this on the body, and
  // not on the root element.
  const { style } = document.body;
  style.overflowAnchor = "none";
  function end(): void {
    style.overflowAnchor = "";
    resizeObserver.disconnect();
    window.clearTimeout(quietTimer);
    window.cancelAnimationFrame(frame);
    window.clearTimeout(maxWaitTimer);
    for (const input of INPUTS) window.removeEventListener(input, end);
    cancelRestore = null;
  }
  cancelRestore = end;
  for (const input of INPUTS) window.addEventListener(input, end, { passive: true });
  scrollPage(top);
  resizeObserver.observe(document.body); // which also calls back at once
}

function readStoredEntries(): Map<string, number> {
  try {
    const entries: unknown = JSON.parse(window.sessionStorage.getItem(STORE) ?? "[]");
    return new Map(entries as [string, number][]);
  } catch {
    return new Map(); // a browser may forbid it, and then the page begins at its top
  }
}

function storeEntries(): void {
  try {
    window.sessionStorage.setItem(STORE, JSON.stringify([...scrollByEntry].slice(-MAX_ENTRIES)));
  } catch {
    // as above
  }
}
