// Chart in the current theme that follows the width of its container.
import { effect, untracked } from "@preact/signals";
import { useContext, useEffect, useRef } from "preact/hooks";

import { palette, type Palette } from "../base/palette";
import { dark, printing } from "../base/theme";
import { TimeAxisContext, followCrossHair, type TimeAxis } from "./cross_hair";
import { init, type EChartsOption } from "./echarts";
import { followDrags } from "./range_drag";

/** Receives the name of a series and the index of its point. */
export type PointHandler = (seriesName: string | undefined, index: number | undefined) => void;

interface Props {
  option: (colours: Palette) => EChartsOption;
  label: string;
  height: number;
  /** Canvas for many small shapes, SVG otherwise: it prints sharply. */
  renderer?: "canvas" | "svg";
  /** Draw only when the chart comes into view: a screen may have dozens. */
  lazy?: boolean;
  /** Called with the range of x values that is dragged across the chart. */
  onRange?: ((from: number, to: number) => void) | undefined;
  /** Called with the point that is clicked. */
  onPoint?: PointHandler | undefined;
}

/** Distance below the viewport at which a chart is drawn. */
const PRELOAD_MARGIN = "500px";

/** Call back when an element comes near the viewport, or at once in print. */
function whenVisible(element: HTMLElement, start: () => void): () => void {
  const observer = new IntersectionObserver(
    (entries) => { if (entries.some((entry) => entry.isIntersecting)) start(); },
    { rootMargin: PRELOAD_MARGIN },
  );
  observer.observe(element);
  const stop = effect(() => { if (printing.value) untracked(start); });
  return () => {
    observer.disconnect();
    stop();
  };
}

export function Chart({ option, label, height, renderer = "svg", lazy = false, onRange, onPoint }: Props) {
  const container = useRef<HTMLDivElement>(null);
  const printCopy = useRef<HTMLDivElement>(null);
  const isNear = useRef(!lazy);
  const latestOnRange = useRef(onRange);
  latestOnRange.current = onRange;
  const latestOnPoint = useRef(onPoint);
  latestOnPoint.current = onPoint;
  const isRangeSelectable = onRange !== undefined;
  const axis = useContext(TimeAxisContext);
  useEffect(() => {
    const element = container.current;
    if (element === null) return undefined;
    const drag = isRangeSelectable ? (from: number, to: number) => { latestOnRange.current?.(from, to); } : null;
    let dispose: (() => void) | null = null;
    // Not component state: a printer does not wait for a render.
    const start = (): void => {
      isNear.current = true;
      dispose ??= draw(element, printCopy, option, renderer, drag, (name, index) => { latestOnPoint.current?.(name, index); }, axis);
    };
    if (isNear.current) start();
    const stop = isNear.current ? null : whenVisible(element, start);
    return () => {
      stop?.();
      dispose?.();
    };
  }, [option, renderer, isRangeSelectable]);
  return (
    <>
      <div
        ref={container}
        class={`chart ${renderer} ${isRangeSelectable ? "range-selectable" : ""}`}
        role="img"
        aria-label={label}
        title={isRangeSelectable ? "Drag to select a range for all screens" : undefined}
        style={{ height: `${height}px` }}
      />
      <div ref={printCopy} class="print-copy" aria-hidden="true" />
    </>
  );
}

/** Draw and redraw on changes of theme, width and print media. Returns a function that disposes of
 * the chart. */
function draw(
  element: HTMLElement,
  printCopy: { current: HTMLElement | null },
  option: Props["option"],
  renderer: "canvas" | "svg",
  drag: ((from: number, to: number) => void) | null,
  onPoint: PointHandler,
  axis: TimeAxis | null,
): () => void {
  const chart = init(element, undefined, { renderer });
  chart.on("click", ({ seriesName, dataIndex }) => { onPoint(seriesName, dataIndex); });
  const stopDrag = drag === null ? null : followDrags(chart, element, drag);
  const redraw = effect(() => {
    if (printing.value) chart.resize(); // to the width of the paper
    chart.setOption(option(palette(dark.value)), { notMerge: true });
    chart.getZr().flush(); // a printer does not wait for the next frame
    if (printing.value && renderer === "canvas") {
      // Canvas charts are drawn progressively; a copy for print is drawn at once.
      printCopy.current?.replaceChildren(chart.renderToCanvas({ pixelRatio: 2 }));
    }
  });
  const resizeObserver = new ResizeObserver(() => {
    chart.resize();
    chart.getZr().flush();
  });
  resizeObserver.observe(element);
  const stopCrossHair = axis === null ? null : followCrossHair(chart, element, axis);
  return () => {
    stopDrag?.();
    stopCrossHair?.();
    redraw();
    resizeObserver.disconnect();
    if (renderer === "canvas") {
      // Progressive drawing would access the disposed chart in its next frame: clear it first.
      chart.clear();
      chart.getZr().flush();
    }
    chart.dispose();
  };
}

const PNG_WIDTH = 1100;

/** Render a chart as a PNG on the background of the theme, at twice the resolution. */
export function renderPng(option: Props["option"], height: number): Promise<Blob | null> {
  const container = document.createElement("div");
  const colours = palette(dark.value);
  const chart = init(container, undefined, { renderer: "canvas", width: PNG_WIDTH, height });
  chart.setOption({ ...option(colours), backgroundColor: colours.surface });
  const rendered = chart.renderToCanvas({ pixelRatio: 2, backgroundColor: colours.surface });
  chart.dispose();
  return new Promise((resolve) => { rendered.toBlob(resolve, "image/png"); });
}
