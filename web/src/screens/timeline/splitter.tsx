// Movable border, by pointer or arrow keys.
import type { Signal } from "@preact/signals";

interface Props {
  label: string;
  /** Size in pixels of the element before a vertical border, or below a horizontal one. */
  size: Signal<number>;
  min: number;
  max: number;
  vertical: boolean;
}

const STEP_PX = 24;

export function Splitter({ label, size, min, max, vertical }: Props) {
  const setSize = (value: number): void => { size.value = Math.round(Math.max(min, Math.min(max, value))); };
  const pointerPosition = (event: PointerEvent): number => vertical ? event.clientX : -event.clientY;
  return (
    <div
      class={vertical ? "tl-splitter vertical" : "tl-splitter"}
      role="separator"
      aria-label={label}
      aria-orientation={vertical ? "vertical" : "horizontal"}
      aria-valuenow={size.value}
      aria-valuemin={min}
      aria-valuemax={max}
      tabIndex={0}
      onPointerDown={(event) => {
        const border = event.currentTarget;
        const startSize = size.peek() - pointerPosition(event);
        border.setPointerCapture(event.pointerId);
        const move = (moveEvent: PointerEvent): void => { setSize(startSize + pointerPosition(moveEvent)); };
        border.addEventListener("pointermove", move);
        border.addEventListener("lostpointercapture", () => {
          border.removeEventListener("pointermove", move);
        }, { once: true });
      }}
      onKeyDown={(event) => {
        const growKey = vertical ? "ArrowRight" : "ArrowUp";
        const shrinkKey = vertical ? "ArrowLeft" : "ArrowDown";
        if (event.key !== growKey && event.key !== shrinkKey) return;
        setSize(size.peek() + (event.key === growKey ? STEP_PX : -STEP_PX));
        event.preventDefault();
        event.stopPropagation();
      }}
    />
  );
}
