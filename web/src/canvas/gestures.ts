// What pointers, wheels and fingers do to the timeline.

/** Where a drag began: on the ruler it chooses a range, elsewhere it moves the picture. */
export type DragKind = "pan" | "range";

export interface Actions {
  /** Nearer or farther by a factor, around a place of the canvas. */
  zoom: (factor: number, x: number) => void;
  /** Moves the picture by so many pixels. */
  pan: (dx: number, dy: number) => void;
  dragKind: (x: number, y: number, shift: boolean) => DragKind;
  /** A range between two places; `done` when the button is released. */
  range: (x0: number, x1: number, done: boolean) => void;
  hover: (x: number, y: number) => void;
  leave: () => void;
  click: (x: number, y: number) => void;
  doubleClick: (x: number, y: number) => void;
}

/** A pointer that moves less has not been dragged. */
const STILL_PX = 4;
/** Of a wheel's turn in pixels: the exponent by which it zooms. */
const WHEEL = 0.0018;
const LINE_PX = 33;

interface Finger {
  x: number;
  y: number;
}

/** Listens on an element; the function that is returned stops that. */
export function listen(element: HTMLElement, actions: Actions): () => void {
  const fingers = new Map<number, Finger>();
  let start: (Finger & { kind: DragKind; moved: boolean }) | null = null;

  const at = (event: MouseEvent): Finger => {
    const box = element.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };

  const wheel = (event: WheelEvent): void => {
    event.preventDefault();
    const scale = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? LINE_PX : 1;
    const [dx, dy] = [event.deltaX * scale, event.deltaY * scale];
    if (event.shiftKey) actions.pan(-(dx === 0 ? dy : dx), 0);
    else if (Math.abs(dx) > Math.abs(dy)) actions.pan(-dx, 0); // two fingers sideways
    else actions.zoom(Math.exp(Math.max(-240, Math.min(240, dy)) * WHEEL), at(event).x);
  };

  const down = (event: PointerEvent): void => {
    if (event.button !== 0) return;
    const place = at(event);
    fingers.set(event.pointerId, place);
    element.setPointerCapture(event.pointerId);
    start = fingers.size > 1
      ? null
      : { ...place, kind: actions.dragKind(place.x, place.y, event.shiftKey), moved: false };
  };

  const move = (event: PointerEvent): void => {
    const place = at(event);
    const before = fingers.get(event.pointerId);
    if (before === undefined) {
      actions.hover(place.x, place.y);
      return;
    }
    fingers.set(event.pointerId, place);
    if (fingers.size === 2) {
      pinch(fingers, event.pointerId, before, place, actions);
      return;
    }
    if (start === null) return;
    if (!start.moved && Math.hypot(place.x - start.x, place.y - start.y) < STILL_PX) return;
    start.moved = true;
    if (start.kind === "range") actions.range(start.x, place.x, false);
    else actions.pan(place.x - before.x, place.y - before.y);
  };

  const up = (event: PointerEvent): void => {
    if (!fingers.delete(event.pointerId)) return;
    const place = at(event);
    if (start !== null && event.type === "pointerup") {
      if (!start.moved) actions.click(place.x, place.y);
      else if (start.kind === "range") actions.range(start.x, place.x, true);
    }
    start = null;
  };

  const twice = (event: MouseEvent): void => {
    const place = at(event);
    actions.doubleClick(place.x, place.y);
  };
  const leave = (): void => { actions.leave(); };

  element.addEventListener("wheel", wheel, { passive: false });
  element.addEventListener("pointerdown", down);
  element.addEventListener("pointermove", move);
  element.addEventListener("pointerup", up);
  element.addEventListener("pointercancel", up);
  element.addEventListener("pointerleave", leave);
  element.addEventListener("dblclick", twice);
  return () => {
    element.removeEventListener("wheel", wheel);
    element.removeEventListener("pointerdown", down);
    element.removeEventListener("pointermove", move);
    element.removeEventListener("pointerup", up);
    element.removeEventListener("pointercancel", up);
    element.removeEventListener("pointerleave", leave);
    element.removeEventListener("dblclick", twice);
  };
}

/** Two fingers: their distance zooms around their middle, and the middle moves the picture. */
function pinch(
  fingers: ReadonlyMap<number, Finger>,
  id: number,
  before: Finger,
  now: Finger,
  actions: Actions,
): void {
  const other = [...fingers].find(([each]) => each !== id)?.[1];
  if (other === undefined) return;
  const apart = (finger: Finger): number => Math.max(20, Math.abs(finger.x - other.x));
  const middle = (now.x + other.x) / 2;
  actions.pan((now.x - before.x) / 2, (now.y - before.y) / 2);
  actions.zoom(apart(before) / apart(now), middle);
}
