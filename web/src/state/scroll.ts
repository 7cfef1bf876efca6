// How far down a page the reader was, for when they come back to it by the browser's buttons.
//
// Every entry of the browser's history has a name in its state; what was reached there is kept for
// as long as the tab is open. A screen that is come back to has no height until its payloads are
// there: until then, or until the reader does something, it is scrolled to its place whenever it
// has grown.

import { answersAwaited } from "../api/client";

/** Longer than a payload may keep a reader waiting who then finds the page moving. */
const LONGEST_MS = 10_000;
/** A page that has kept its height for so long, and awaits no answer, is all there. */
const QUIET_MS = 1_000;
const STORE = "stepscope-places";
const MOST_KEPT = 200;
const INPUTS = ["wheel", "touchstart", "pointerdown", "keydown"] as const;

interface State {
  place: string;
}

let reached = new Map<string, number>();
let place = "";
let count = 0;
let endWaiting: (() => void) | null = null;

/** What a new entry of the history has for its state. The one on screen is left behind. */
export function entered(): State {
  note();
  endWaiting?.();
  count += 1;
  place = `${Date.now().toString(36)}-${count.toString(36)}`;
  return { place };
}

/** The entry that the browser is at now; one without a name is new, as after a link within a page. */
export function returned(): void {
  endWaiting?.();
  const known = placeOf(window.history.state);
  if (known === null) {
    window.history.replaceState(entered(), "");
    return;
  }
  place = known;
  scrollWhenThere(reached.get(known) ?? 0);
}

/** Remember where the reader is, and bring them back after the page was loaded again. */
export function followScrolling(): void {
  window.history.scrollRestoration = "manual";
  reached = stored();
  returned();
  window.addEventListener("scroll", note, { passive: true });
  window.addEventListener("pagehide", store);
}

/** At once: a smooth way there would be measured out on a page that still grows. */
export function scrollPage(top: number): void {
  window.scrollTo({ top, behavior: "instant" });
}

function placeOf(state: unknown): string | null {
  const found = (state as Partial<State> | null)?.place;
  return typeof found === "string" ? found : null;
}

function note(): void {
  if (place === "" || endWaiting !== null) return; // on the way the page is not where it shall be
  reached.delete(place);
  reached.set(place, window.scrollY);
}

function scrollWhenThere(top: number): void {
  let quiet = 0;
  let frame = 0;
  const growing = new ResizeObserver(() => {
    scrollPage(top);
    wait();
  });
  function wait(): void {
    window.clearTimeout(quiet);
    quiet = window.setTimeout(settle, QUIET_MS);
  }
  // What kept the page busy until now has its height only after the next frame.
  function settle(): void {
    if (answersAwaited() > 0) wait();
    else frame = window.requestAnimationFrame(() => { quiet = window.setTimeout(end); });
  }
  const longest = window.setTimeout(end, LONGEST_MS);
  // What comes in above must not push the page down meanwhile. Chromium heeds this on the body, and
  // not on the root element.
  const { style } = document.body;
  style.overflowAnchor = "none";
  function end(): void {
    style.overflowAnchor = "";
    growing.disconnect();
    window.clearTimeout(quiet);
    window.cancelAnimationFrame(frame);
    window.clearTimeout(longest);
    for (const input of INPUTS) window.removeEventListener(input, end);
    endWaiting = null;
  }
  endWaiting = end;
  for (const input of INPUTS) window.addEventListener(input, end, { passive: true });
  scrollPage(top);
  growing.observe(document.body); // which also calls back at once
}

function stored(): Map<string, number> {
  try {
    const found: unknown = JSON.parse(window.sessionStorage.getItem(STORE) ?? "[]");
    return new Map(found as [string, number][]);
  } catch {
    return new Map(); // a browser may forbid it, and then the page begins at its top
  }
}

function store(): void {
  try {
    window.sessionStorage.setItem(STORE, JSON.stringify([...reached].slice(-MOST_KEPT)));
  } catch {
    // as above
  }
}
