// Pointer, wheel and touch gestures on the timeline.
import { addListeners } from "../base/listeners";

/** A drag on the ruler selects a range, elsewhere it pans. */
export type DragKind = "pan" | "range";

export interface GestureHandlers {
  /** Zoom by a factor around a position on the canvas. */
  zoom: (factor: number, x: number) => void;
  /** What the wheel does; with Ctrl it does the other of the two. */
  wheel: () => "scroll" | "zoom";
  /** Pan by pixels. */
  pan: (dx: number, dy: number) => void;
  dragKind: (x: number, y: number, shift: boolean) => DragKind;
  /** Select a range between two positions; `done` when the button is released. */
  range: (x0: number, x1: number, done: boolean) => void;
  hover: (x: number, y: number) => void;
  leave: () => void;
  click: (x: number, y: number) => void;
  doubleClick: (x: number, y: number) => void;
}

/** A shorter movement is a click. */
const MIN_DRAG_PX = 4;
/** Exponent of the zoom factor per pixel of wheel movement. */
const WHEEL_ZOOM = 0.0018;
/** A pinch on a touchpad arrives as small movements with Ctrl. */
const PINCH_ZOOM = 0.01;
const MAX_PINCH_PX = 40;
const LINE_PX = 33;

interface Finger {
  x: number;
  y: number;
}

/** Attach the handlers to an element and return a function that detaches them. */
export function listenToGestures(element: HTMLElement, handlers: GestureHandlers): () => void {
  const fingers = new Map<number, Finger>();
  let start: (Finger & { kind: DragKind; moved: boolean }) | null = null;

  const pointOf = (event: MouseEvent): Finger => {
    const box = element.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };

  const onWheel = (event: WheelEvent): void => {
    event.preventDefault();
    const scale = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? LINE_PX : 1;
    const [dx, dy] = [event.deltaX * scale, event.deltaY * scale];
    if (event.shiftKey) handlers.pan(-(dx === 0 ? dy : dx), 0);
    else if (Math.abs(dx) > Math.abs(dy)) handlers.pan(-dx, 0); // horizontal two-finger scroll
    else if ((handlers.wheel() === "zoom") === event.ctrlKey) handlers.pan(0, -dy);
    else {
      const rate = event.ctrlKey && Math.abs(dy) < MAX_PINCH_PX ? PINCH_ZOOM : WHEEL_ZOOM;
      handlers.zoom(Math.exp(Math.max(-240, Math.min(240, dy)) * rate), pointOf(event).x);
    }
  };

  const onDown = (event: PointerEvent): void => {
    if (event.button !== 0) return;
    const point = pointOf(event);
    fingers.set(event.pointerId, point);
    element.setPointerCapture(event.pointerId);
    start = fingers.size > 1
      ? null
      : { ...point, kind: handlers.dragKind(point.x, point.y, event.shiftKey), moved: false };
  };

  const onMove = (event: PointerEvent): void => {
    const point = pointOf(event);
    const previous = fingers.get(event.pointerId);
    if (previous === undefined) {
      handlers.hover(point.x, point.y);
      return;
    }
    fingers.set(event.pointerId, point);
    if (fingers.size === 2) {
      pinch(fingers, event.pointerId, previous, point, handlers);
      return;
    }
    if (start === null) return;
    if (!start.moved && Math.hypot(point.x - start.x, point.y - start.y) < MIN_DRAG_PX) return;
    start.moved = true;
    if (start.kind === "range") handlers.range(start.x, point.x, false);
    else handlers.pan(point.x - previous.x, point.y - previous.y);
  };

  const onUp = (event: PointerEvent): void => {
    if (!fingers.delete(event.pointerId)) return;
    const point = pointOf(event);
    if (start !== null && event.type === "pointerup") {
      if (!start.moved) handlers.click(point.x, point.y);
      else if (start.kind === "range") handlers.range(start.x, point.x, true);
    }
    start = null;
  };

  return addListeners(element, {
    wheel: onWheel,
    pointerdown: onDown,
    pointermove: onMove,
    pointerup: onUp,
    pointercancel: onUp,
    pointerleave: () => { handlers.leave(); },
    dblclick: (event) => {
      const point = pointOf(event);
      handlers.doubleClick(point.x, point.y);
    },
  });
}

/** Handle two fingers: their distance zooms around the midpoint, and the midpoint pans. */
function pinch(
  fingers: ReadonlyMap<number, Finger>,
  id: number,
  previous: Finger,
  current: Finger,
  handlers: GestureHandlers,
): void {
  const otherFinger = [...fingers].find(([pointerId]) => pointerId !== id)?.[1];
  if (otherFinger === undefined) return;
  const distanceTo = (finger: Finger): number => Math.max(20, Math.abs(finger.x - otherFinger.x));
  const centre = (current.x + otherFinger.x) / 2;
  handlers.pan((current.x - previous.x) / 2, (current.y - previous.y) / 2);
  handlers.zoom(distanceTo(previous) / distanceTo(current), centre);
}
