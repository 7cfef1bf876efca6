// Scroll restoration for the browser's back and forward buttons. Every history entry has an id in
// its state; scroll positions are kept by id for the lifetime of the tab. A restored screen has no
// height until its payloads arrive: it is scrolled to its position whenever it grows, until it is
// complete or the reader acts.

import { countPendingRequests } from "../base/client";

/** Upper bound of the time in which a restored page may still move. */
const MAX_WAIT_MS = 10_000;
/** A page is complete if its height is unchanged for this time and no request is in flight. */
const QUIET_MS = 1_000;
const STORAGE_KEY = "stepscope-scroll";
const MAX_ENTRIES = 200;
const INPUTS = ["wheel", "touchstart", "pointerdown", "keydown"] as const;

interface State {
  entryId: string;
}

let scrollByEntry = new Map<string, number>();
let entryId = "";
let entryCount = 0;
let cancelRestore: (() => void) | null = null;

/** Create the state of a new history entry, and leave the current one. */
export function createHistoryEntry(): State {
  recordScroll();
  cancelRestore?.();
  entryCount += 1;
  entryId = `${Date.now().toString(36)}-${entryCount.toString(36)}`;
  return { entryId };
}

/** Restore the current history entry; one without an id is new, as after a link within a page. */
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

/** Record scroll positions, and restore the position after a reload. */
export function followScrolling(): void {
  window.history.scrollRestoration = "manual";
  scrollByEntry = readStoredEntries();
  restoreScroll();
  window.addEventListener("scroll", recordScroll, { passive: true });
  window.addEventListener("pagehide", storeEntries);
}

/** Instant: a smooth scroll would be computed for a page that still grows. */
export function scrollPage(top: number): void {
  window.scrollTo({ top, behavior: "instant" });
}

function entryIdOf(state: unknown): string | null {
  const id = (state as Partial<State> | null)?.entryId;
  return typeof id === "string" ? id : null;
}

function recordScroll(): void {
  if (entryId === "" || cancelRestore !== null) return; // during a restore the position is not the reader's
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
  // Content that kept the page busy has its height only after the next frame.
  function finishWhenQuiet(): void {
    if (countPendingRequests() > 0) restartQuietTimer();
    else frame = window.requestAnimationFrame(() => { quietTimer = window.setTimeout(finish); });
  }
  const maxWaitTimer = window.setTimeout(finish, MAX_WAIT_MS);
  // Content inserted above must not shift the page meanwhile. Chromium respects this on the body
  // only, not on the root element.
  const { style } = document.body;
  style.overflowAnchor = "none";
  function finish(): void {
    style.overflowAnchor = "";
    resizeObserver.disconnect();
    window.clearTimeout(quietTimer);
    window.cancelAnimationFrame(frame);
    window.clearTimeout(maxWaitTimer);
    for (const input of INPUTS) window.removeEventListener(input, finish);
    cancelRestore = null;
  }
  cancelRestore = finish;
  for (const input of INPUTS) window.addEventListener(input, finish, { passive: true });
  scrollPage(top);
  resizeObserver.observe(document.body); // calls back at once as well
}

function readStoredEntries(): Map<string, number> {
  try {
    const entries: unknown = JSON.parse(window.sessionStorage.getItem(STORAGE_KEY) ?? "[]");
    return new Map(entries as [string, number][]);
  } catch {
    return new Map(); // storage can be disabled: start at the top
  }
}

function storeEntries(): void {
  try {
    window.sessionStorage.setItem(STORAGE_KEY, JSON.stringify([...scrollByEntry].slice(-MAX_ENTRIES)));
  } catch {
    // storage can be disabled
  }
}
