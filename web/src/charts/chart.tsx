// One chart on the page: draws its option in the current theme, at the width it has.
import { effect } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";

import { palette, type Palette } from "../base/palette";
import { dark, printing } from "../base/theme";
import { followDrags } from "./drag";
import { init, type EChartsOption } from "./echarts";

interface Props {
  option: (colours: Palette) => EChartsOption;
  label: string;
  height: number;
  /** Many small shapes are drawn as pixels, all else as shapes that print sharply. */
  renderer?: "canvas" | "svg";
  /** Drawn only once it is about to be seen: a screen may have dozens. */
  lazy?: boolean;
  /** What a range does that is dragged across the chart, in values of the horizontal axis. */
  onRange?: ((from: number, to: number) => void) | undefined;
}

/** How far below the window a chart is made ready. */
const AHEAD = "500px";

/** Whether an element has come near the window, or is wanted on paper. */
function useNear(place: { current: HTMLElement | null }, lazy: boolean): boolean {
  const [near, setNear] = useState(!lazy);
  useEffect(() => {
    const element = place.current;
    if (near || element === null) return undefined;
    const watching = new IntersectionObserver(
      (entries) => { if (entries.some((entry) => entry.isIntersecting)) setNear(true); },
      { rootMargin: AHEAD },
    );
    watching.observe(element);
    const stop = effect(() => { if (printing.value) setNear(true); });
    return () => {
      watching.disconnect();
      stop();
    };
  }, [near]);
  return near;
}

export function Chart({ option, label, height, renderer = "svg", lazy = false, onRange }: Props) {
  const place = useRef<HTMLDivElement>(null);
  const paper = useRef<HTMLDivElement>(null);
  const near = useNear(place, lazy);
  const newest = useRef(onRange);
  newest.current = onRange;
  const ranged = onRange !== undefined;
  useEffect(() => {
    const element = place.current;
    if (element === null || !near) return undefined;
    const chart = init(element, undefined, { renderer });
    const letGo = ranged ? followDrags(chart, element, (from, to) => { newest.current?.(from, to); }) : null;
    const redraw = effect(() => {
      if (printing.value) chart.resize(); // to the width of the paper
      chart.setOption(option(palette(dark.value)), { notMerge: true });
      chart.getZr().flush(); // a printer does not wait for the next frame
      if (printing.value && renderer === "canvas") {
        // Pixels are drawn a few thousand shapes per frame; a copy is drawn at once.
        paper.current?.replaceChildren(chart.renderToCanvas({ pixelRatio: 2 }));
      }
    });
    const resizing = new ResizeObserver(() => {
      chart.resize();
      chart.getZr().flush();
    });
    resizing.observe(element);
    return () => {
      letGo?.();
      redraw();
      resizing.disconnect();
      chart.dispose();
    };
  }, [option, renderer, near, ranged]);
  return (
    <>
      <div
        ref={place}
        class={`chart ${renderer} ${ranged ? "ranged" : ""}`}
        role="img"
        aria-label={label}
        title={ranged ? "Drag across to choose a range of time for all screens" : undefined}
        style={{ height: `${height}px` }}
      />
      <div ref={paper} class="paper" aria-hidden="true" />
    </>
  );
}

const PICTURE_WIDTH = 1100;

/** A chart as a PNG on the background of the theme, twice as sharp as on screen. */
export function picture(option: Props["option"], height: number): Promise<Blob | null> {
  const place = document.createElement("div");
  const colours = palette(dark.value);
  const chart = init(place, undefined, { renderer: "canvas", width: PICTURE_WIDTH, height });
  chart.setOption({ ...option(colours), backgroundColor: colours.surface });
  const drawn = chart.renderToCanvas({ pixelRatio: 2, backgroundColor: colours.surface });
  chart.dispose();
  return new Promise((done) => { drawn.toBlob(done, "image/png"); });
}
