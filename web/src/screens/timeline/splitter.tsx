// A border that can be moved, by pointer or with the arrow keys.
import type { Signal } from "@preact/signals";

interface Props {
  label: string;
  /** Size of what is before a vertical border, or below a horizontal one, in pixels. */
  size: Signal<number>;
  min: number;
  max: number;
  upright: boolean;
}

const STEP_PX = 24;

export function Splitter({ label, size, min, max, upright }: Props) {
  const set = (value: number): void => { size.value = Math.round(Math.max(min, Math.min(max, value))); };
  const by = (event: PointerEvent): number => upright ? event.clientX : -event.clientY;
  return (
    <div
      class={upright ? "tl-splitter upright" : "tl-splitter"}
      role="separator"
      aria-label={label}
      aria-orientation={upright ? "vertical" : "horizontal"}
      aria-valuenow={size.value}
      aria-valuemin={min}
      aria-valuemax={max}
      tabIndex={0}
      onPointerDown={(event) => {
        const border = event.currentTarget;
        const before = size.peek() - by(event);
        border.setPointerCapture(event.pointerId);
        const move = (moved: PointerEvent): void => { set(before + by(moved)); };
        border.addEventListener("pointermove", move);
        border.addEventListener("lostpointercapture", () => {
          border.removeEventListener("pointermove", move);
        }, { once: true });
      }}
      onKeyDown={(event) => {
        const more = upright ? "ArrowRight" : "ArrowUp";
        const less = upright ? "ArrowLeft" : "ArrowDown";
        if (event.key !== more && event.key !== less) return;
        set(size.peek() + (event.key === more ? STEP_PX : -STEP_PX));
        event.preventDefault();
        event.stopPropagation();
      }}
    />
  );
}
