// Keyboard: letters pan and zoom as in other trace viewers, arrows move between slices.
import { addListeners } from "../../base/listeners";
import type { Commands } from "./commands";
import { toggleHelp } from "./help";

type Direction = Parameters<Commands["startMoving"]>[0];
const DIRECTIONS: Record<string, Direction> = {
  KeyW: "zoom-in", KeyS: "zoom-out", KeyA: "pan-left", KeyD: "pan-right",
};

/** Return true if the target consumes keys: text fields, lists, dialogs. */
function isTextInput(target: EventTarget | null): boolean {
  if (!(target instanceof HTMLElement)) return false;
  if (target.isContentEditable || target.closest("dialog") !== null) return true;
  return /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName);
}

/** Return true if arrow keys act on the timeline: at once, unless what has focus moves or scrolls by them. */
function acceptsArrowKeys(target: EventTarget | null): boolean {
  return !(target instanceof HTMLElement) || target.closest("[role=tree], [role=tabpanel], [role=tablist], [role=separator]") === null;
}

export interface KeyActions {
  focusSearch: () => void;
  nextMatch: (direction: 1 | -1) => void;
  nextOutlier: (direction: 1 | -1) => void;
}

/** Attach the handlers to the window and return a function that detaches them. */
export function bindKeys(commands: Commands, actions: KeyActions): () => void {
  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.ctrlKey || event.metaKey || event.altKey || isTextInput(event.target)) return;
    const direction = DIRECTIONS[event.code];
    if (direction !== undefined && !event.shiftKey) {
      commands.startMoving(direction);
      event.preventDefault();
      return;
    }
    const action = actionForKey(event, commands, actions);
    if (action === null) return;
    action();
    event.preventDefault();
  };
  const onKeyUp = (event: KeyboardEvent): void => {
    const direction = DIRECTIONS[event.code];
    if (direction !== undefined) commands.stopMoving(direction);
  };
  const releaseAll = (): void => {
    Object.values(DIRECTIONS).forEach((direction) => { commands.stopMoving(direction); });
  };
  const detach = addListeners(window, { keydown: onKeyDown, keyup: onKeyUp, blur: releaseAll });
  return () => {
    detach();
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
