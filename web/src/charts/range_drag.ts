// Selection of a range on the horizontal axis by dragging across a chart.
import { addListeners } from "../base/listeners";
import type { EChartsType } from "./echarts";

/** A shorter drag is a click. */
const MIN_DRAG_PX = 6;

/** Attach the handlers and return a function that detaches them; `onRange` receives axis values. */
export function followDrags(
  chart: EChartsType,
  container: HTMLElement,
  onRange: (from: number, to: number) => void,
): () => void {
  const band = document.createElement("div");
  band.className = "range-drag";
  let start: number | null = null;
  const pointerX = (event: PointerEvent): number => event.clientX - container.getBoundingClientRect().left;
  const onDown = (event: PointerEvent): void => {
    const [x, y] = [pointerX(event), event.clientY - container.getBoundingClientRect().top];
    if (event.button !== 0 || !chart.containPixel({ gridIndex: 0 }, [x, y])) return;
    start = x;
  };
  const onMove = (event: PointerEvent): void => {
    if (start === null) return;
    const [x0, x1] = [Math.min(start, pointerX(event)), Math.max(start, pointerX(event))];
    if (x1 - x0 < MIN_DRAG_PX) return;
    if (!band.isConnected) {
      container.append(band);
      container.setPointerCapture(event.pointerId);
    }
    band.style.left = `${x0}px`;
    band.style.width = `${x1 - x0}px`;
  };
  const onUp = (event: PointerEvent): void => {
    const [x0, x1] = [start, pointerX(event)];
    onCancel();
    if (x0 === null || Math.abs(x1 - x0) < MIN_DRAG_PX) return;
    const ends = [x0, x1].map((x) => chart.convertFromPixel({ xAxisIndex: 0 }, x));
    onRange(Math.min(...ends), Math.max(...ends));
  };
  const onCancel = (): void => {
    start = null;
    band.remove();
  };
  return addListeners(container, { pointerdown: onDown, pointermove: onMove, pointerup: onUp, pointercancel: onCancel });
}
