// Choosing a range of the horizontal axis by dragging across a chart.
import type { EChartsType } from "./echarts";

/** A shorter way of the pointer is a click. */
const LEAST_PX = 6;

/** Listen until the function that comes back is called; `chosen` gets values of the axis. */
export function followDrags(
  chart: EChartsType,
  place: HTMLElement,
  chosen: (from: number, to: number) => void,
): () => void {
  const band = document.createElement("div");
  band.className = "drag-band";
  let start: number | null = null;
  const at = (event: PointerEvent): number => event.clientX - place.getBoundingClientRect().left;
  const down = (event: PointerEvent): void => {
    const [x, y] = [at(event), event.clientY - place.getBoundingClientRect().top];
    if (event.button !== 0 || !chart.containPixel("grid", [x, y])) return;
    start = x;
  };
  const move = (event: PointerEvent): void => {
    if (start === null) return;
    const [left, right] = [Math.min(start, at(event)), Math.max(start, at(event))];
    if (right - left < LEAST_PX) return;
    if (!band.isConnected) {
      place.append(band);
      place.setPointerCapture(event.pointerId);
    }
    band.style.left = `${left}px`;
    band.style.width = `${right - left}px`;
  };
  const up = (event: PointerEvent): void => {
    const [first, last] = [start, at(event)];
    start = null;
    band.remove();
    if (first === null || Math.abs(last - first) < LEAST_PX) return;
    const ends = [first, last].map((x) => chart.convertFromPixel({ xAxisIndex: 0 }, x));
    chosen(Math.min(...ends), Math.max(...ends));
  };
  const stop = (): void => {
    start = null;
    band.remove();
  };
  const listeners = [["pointerdown", down], ["pointermove", move], ["pointerup", up], ["pointercancel", stop]] as const;
  for (const [name, listener] of listeners) place.addEventListener(name, listener);
  return () => {
    for (const [name, listener] of listeners) place.removeEventListener(name, listener);
  };
}
