// Keyboard: letters pan and zoom as in other trace viewers, arrows move between slices.
import { toggleHelp } from "./help";
import type { Commands } from "./commands";

type Drive = Parameters<Commands["startMoving"]>[0];
const DRIVES: Record<string, Drive> = {
  KeyW: "nearer", KeyS: "farther", KeyA: "earlier", KeyD: "later",
};

/** Return true if the target consumes keys: text fields, lists, dialogs. */
function isTextInput(target: EventTarget | null): boolean {
  if (!(target instanceof HTMLElement)) return false;
  if (target.isContentEditable || target.closest("dialog") !== null) return true;
  return /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName);
}

/** Return true if arrow keys act on the timeline: the canvas or nothing has focus. */
function acceptsArrowKeys(target: EventTarget | null): boolean {
  return target === document.body || (target instanceof HTMLElement && target.dataset.keys === "timeline");
}

export interface KeyActions {
  focusSearch: () => void;
  nextMatch: (by: 1 | -1) => void;
  nextOutlier: (by: 1 | -1) => void;
}

/** Attach the handlers to the window and return a function that detaches them. */
export function bindKeys(commands: Commands, actions: KeyActions): () => void {
  const down = (event: KeyboardEvent): void => {
    if (event.ctrlKey || event.metaKey || event.altKey || isTextInput(event.target)) return;
    const drive = DRIVES[event.code];
    if (drive !== undefined && !event.shiftKey) {
      commands.startMoving(drive);
      event.preventDefault();
      return;
    }
    const action = actionForKey(event, commands, actions);
    if (action === null) return;
    action();
    event.preventDefault();
  };
  const up = (event: KeyboardEvent): void => {
    const drive = DRIVES[event.code];
    if (drive !== undefined) commands.stopMoving(drive);
  };
  const releaseAll = (): void => {
    Object.values(DRIVES).forEach((drive) => { commands.stopMoving(drive); });
  };
  window.addEventListener("keydown", down);
  window.addEventListener("keyup", up);
  window.addEventListener("blur", releaseAll);
  return () => {
    window.removeEventListener("keydown", down);
    window.removeEventListener("keyup", up);
    window.removeEventListener("blur", releaseAll);
    releaseAll();
  };
}

function actionForKey(event: KeyboardEvent, commands: Commands, actions: KeyActions): (() => void) | null {
  switch (event.key) {
    case "f":
    case "F":
      return commands.zoomToSelection;
    case "0":
    case "Home":
      return event.key === "0" || acceptsArrowKeys(event.target) ? commands.showFullRun : null;
    case "?":
      return toggleHelp;
    case "/":
      return actions.focusSearch;
    case "n":
      return () => { actions.nextMatch(1); };
    case "N":
      return () => { actions.nextMatch(-1); };
    case "o":
      return () => { actions.nextOutlier(1); };
    case "O":
      return () => { actions.nextOutlier(-1); };
    case "Escape":
      return () => { commands.selectSlice(null); };
  }
  if (!acceptsArrowKeys(event.target)) return null;
  switch (event.key) {
    case "ArrowRight":
      return () => { commands.selectNeighbour(1); };
    case "ArrowLeft":
      return () => { commands.selectNeighbour(-1); };
    case "ArrowDown":
      return () => { commands.selectInOtherRow(1); };
    case "ArrowUp":
      return () => { commands.selectInOtherRow(-1); };
  }
  return null;
}
