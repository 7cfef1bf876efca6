// The keyboard: letters move and zoom as in other trace viewers, arrows walk along slices.
import { toggleHelp } from "./help";
import type { Commands } from "./commands";

type Drive = Parameters<Commands["hold"]>[0];
const DRIVES: Record<string, Drive> = {
  KeyW: "nearer", KeyS: "farther", KeyA: "earlier", KeyD: "later",
};

/** Keys that are words to someone else: fields to write in, lists, trees. */
function isTaken(target: EventTarget | null): boolean {
  if (!(target instanceof HTMLElement)) return false;
  if (target.isContentEditable || target.closest("dialog") !== null) return true;
  return /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName);
}

/** Arrows scroll what has the focus, unless that is the picture or nothing at all. */
function arrowsAreOurs(target: EventTarget | null): boolean {
  return target === document.body || (target instanceof HTMLElement && target.dataset.keys === "timeline");
}

export interface More {
  focusSearch: () => void;
  nextMatch: (by: 1 | -1) => void;
  nextOutlier: (by: 1 | -1) => void;
}

/** Listens to the page; the function that is returned ends it. */
export function listenToKeys(commands: Commands, more: More): () => void {
  const down = (event: KeyboardEvent): void => {
    if (event.ctrlKey || event.metaKey || event.altKey || isTaken(event.target)) return;
    const drive = DRIVES[event.code];
    if (drive !== undefined && !event.shiftKey) {
      commands.hold(drive);
      event.preventDefault();
      return;
    }
    const action = actionOf(event, commands, more);
    if (action === null) return;
    action();
    event.preventDefault();
  };
  const up = (event: KeyboardEvent): void => {
    const drive = DRIVES[event.code];
    if (drive !== undefined) commands.release(drive);
  };
  const away = (): void => {
    Object.values(DRIVES).forEach((drive) => { commands.release(drive); });
  };
  window.addEventListener("keydown", down);
  window.addEventListener("keyup", up);
  window.addEventListener("blur", away);
  return () => {
    window.removeEventListener("keydown", down);
    window.removeEventListener("keyup", up);
    window.removeEventListener("blur", away);
    away();
  };
}

function actionOf(event: KeyboardEvent, commands: Commands, more: More): (() => void) | null {
  switch (event.key) {
    case "f":
    case "F":
      return commands.fit;
    case "0":
    case "Home":
      return event.key === "0" || arrowsAreOurs(event.target) ? commands.showAll : null;
    case "?":
      return toggleHelp;
    case "/":
      return more.focusSearch;
    case "n":
      return () => { more.nextMatch(1); };
    case "N":
      return () => { more.nextMatch(-1); };
    case "o":
      return () => { more.nextOutlier(1); };
    case "O":
      return () => { more.nextOutlier(-1); };
    case "Escape":
      return () => { commands.select(null); };
  }
  if (!arrowsAreOurs(event.target)) return null;
  switch (event.key) {
    case "ArrowRight":
      return () => { commands.neighbour(1); };
    case "ArrowLeft":
      return () => { commands.neighbour(-1); };
    case "ArrowDown":
      return () => { commands.otherRow(1); };
    case "ArrowUp":
      return () => { commands.otherRow(-1); };
  }
  return null;
}
