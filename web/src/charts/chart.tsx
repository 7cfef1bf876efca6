// One chart on the page: draws its option in the current theme, at the width it has.
import { effect } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";

import { palette, type Palette } from "../base/palette";
import { dark, printing } from "../base/theme";
import { init, type EChartsOption } from "./echarts";

interface Props {
  option: (colours: Palette) => EChartsOption;
  label: string;
  height: number;
  /** Many small shapes are drawn as pixels, all else as shapes that print sharply. */
  renderer?: "canvas" | "svg";
}

export function Chart({ option, label, height, renderer = "svg" }: Props) {
  const place = useRef<HTMLDivElement>(null);
  const paper = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const element = place.current;
    if (element === null) return undefined;
    const chart = init(element, undefined, { renderer });
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
      redraw();
      resizing.disconnect();
      chart.dispose();
    };
  }, [option, renderer]);
  return (
    <>
      <div
        ref={place}
        class={`chart ${renderer}`}
        role="img"
        aria-label={label}
        style={{ height: `${height}px` }}
      />
      <div ref={paper} class="paper" aria-hidden="true" />
    </>
  );
}
