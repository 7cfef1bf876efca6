// Pointer, wheel and touch gestures on the timeline.

/** A drag on the ruler selects a range, elsewhere it pans. */
export type DragKind = "pan" | "range";

export interface GestureHandlers {
  /** Zoom by a factor around a position on the canvas. */
  zoom: (factor: number, x: number) => void;
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
const LINE_PX = 33;

interface Finger {
  x: number;
  y: number;
}

/** Attach the handlers to an element and return a function that detaches them. */
export function listenToGestures(element: HTMLElement, actions: GestureHandlers): () => void {
  const fingers = new Map<number, Finger>();
  let start: (Finger & { kind: DragKind; moved: boolean }) | null = null;

  const pointOf = (event: MouseEvent): Finger => {
    const box = element.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };

  const wheel = (event: WheelEvent): void => {
    event.preventDefault();
    const scale = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? LINE_PX : 1;
    const [dx, dy] = [event.deltaX * scale, event.deltaY * scale];
    if (event.shiftKey) actions.pan(-(dx === 0 ? dy : dx), 0);
    else if (Math.abs(dx) > Math.abs(dy)) actions.pan(-dx, 0); // horizontal two-finger scroll
    else actions.zoom(Math.exp(Math.max(-240, Math.min(240, dy)) * WHEEL_ZOOM), pointOf(event).x);
  };

  const down = (event: PointerEvent): void => {
    if (event.button !== 0) return;
    const point = pointOf(event);
    fingers.set(event.pointerId, point);
    element.setPointerCapture(event.pointerId);
    start = fingers.size > 1
      ? null
      : { ...point, kind: actions.dragKind(point.x, point.y, event.shiftKey), moved: false };
  };

  const move = (event: PointerEvent): void => {
    const point = pointOf(event);
    const previous = fingers.get(event.pointerId);
    if (previous === undefined) {
      actions.hover(point.x, point.y);
      return;
    }
    fingers.set(event.pointerId, point);
    if (fingers.size === 2) {
      pinch(fingers, event.pointerId, previous, point, actions);
      return;
    }
    if (start === null) return;
    if (!start.moved && Math.hypot(point.x - start.x, point.y - start.y) < MIN_DRAG_PX) return;
    start.moved = true;
    if (start.kind === "range") actions.range(start.x, point.x, false);
    else actions.pan(point.x - previous.x, point.y - previous.y);
  };

  const up = (event: PointerEvent): void => {
    if (!fingers.delete(event.pointerId)) return;
    const point = pointOf(event);
    if (start !== null && event.type === "pointerup") {
      if (!start.moved) actions.click(point.x, point.y);
      else if (start.kind === "range") actions.range(start.x, point.x, true);
    }
    start = null;
  };

  const doubleClick = (event: MouseEvent): void => {
    const point = pointOf(event);
    actions.doubleClick(point.x, point.y);
  };
  const leave = (): void => { actions.leave(); };

  element.addEventListener("wheel", wheel, { passive: false });
  element.addEventListener("pointerdown", down);
  element.addEventListener("pointermove", move);
  element.addEventListener("pointerup", up);
  element.addEventListener("pointercancel", up);
  element.addEventListener("pointerleave", leave);
  element.addEventListener("dblclick", doubleClick);
  return () => {
    element.removeEventListener("wheel", wheel);
    element.removeEventListener("pointerdown", down);
    element.removeEventListener("pointermove", move);
    element.removeEventListener("pointerup", up);
    element.removeEventListener("pointercancel", up);
    element.removeEventListener("pointerleave", leave);
    element.removeEventListener("dblclick", doubleClick);
  };
}

/** Handle two fingers: their distance zooms around the midpoint, and the midpoint pans. */
function pinch(
  fingers: ReadonlyMap<number, Finger>,
  id: number,
  previous: Finger,
  current: Finger,
  actions: GestureHandlers,
): void {
  const otherFinger = [...fingers].find(([pointerId]) => pointerId !== id)?.[1];
  if (otherFinger === undefined) return;
  const distanceTo = (finger: Finger): number => Math.max(20, Math.abs(finger.x - otherFinger.x));
  const middle = (current.x + otherFinger.x) / 2;
  actions.pan((current.x - previous.x) / 2, (current.y - previous.y) / 2);
  actions.zoom(distanceTo(previous) / distanceTo(current), middle);
}
