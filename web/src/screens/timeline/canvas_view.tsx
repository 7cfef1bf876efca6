// Canvas of the timeline, redrawn on every change of its scene.
import { effect } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";

import { printing } from "../../base/theme";
import { listenToGestures } from "../../canvas/gestures";
import { hitTest, sliceRefOf } from "../../canvas/hit_test";
import { headerHeight } from "../../canvas/scene";
import { TimelineCanvas } from "../../canvas/timeline_canvas";
import { scaleOf, toTime } from "../../canvas/viewport";
import { wheel } from "./choices";
import type { Commands } from "./commands";
import { dependOn } from "./depend";
import { renderScene } from "./export_png";
import { timelineMetrics, recordTiming } from "./metrics";
import type { Model } from "./model";
import { stepUnderPointer } from "./steps";
import { showTooltip, Tooltip } from "./tooltip";
import { preferredRenderer, setRange } from "./url_state";

interface Props {
  model: Model;
  commands: Commands;
}

export function CanvasView({ model, commands }: Props) {
  const host = useRef<HTMLDivElement>(null);
  const printCopy = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const element = host.current;
    if (element === null) return undefined;
    return draw(element, printCopy, model, commands);
  }, [model, commands]);
  const selected = model.selected.value;
  return (
    <div class="tl-canvas-area">
      <div
        ref={host}
        class="tl-canvas"
        role="application"
        aria-roledescription="timeline"
        aria-label={`Timeline of the run${selected === null ? "" : `; selected: ${selected.name.slice(0, 200)}`}. W and S zoom, A and D pan, arrow keys move between slices, question mark lists all shortcuts.`}
        tabIndex={0}
        data-keys="timeline"
        data-testid="timeline-canvas"
      />
      <div ref={printCopy} class="print-copy tl-print-copy" aria-hidden="true" />
      <Tooltip />
    </div>
  );
}

function draw(
  element: HTMLDivElement,
  printCopy: { current: HTMLDivElement | null },
  model: Model,
  commands: Commands,
): () => void {
  let frame = 0;
  const drawNow = (): void => {
    frame = 0;
    const scene = model.scene.peek();
    if (scene.width === 0 || scene.height === 0) return;
    const startTime = performance.now();
    timelineMetrics.rectangles = stage.draw(scene);
    if (timelineMetrics.finish) stage.waitForGpu();
    recordTiming("frames", performance.now() - startTime);
  };
  const scheduleFrame = (): void => {
    if (frame === 0) frame = requestAnimationFrame(drawNow);
  };
  const stage = new TimelineCanvas(element, preferredRenderer(), scheduleFrame);
  timelineMetrics.renderer = stage.renderer;
  const resizeObserver = new ResizeObserver(() => {
    if (element.clientWidth === 0) return; // hidden in print: the canvas keeps its size
    model.size.value = { width: element.clientWidth, height: element.clientHeight };
    cancelAnimationFrame(frame);
    drawNow(); // before the browser paints the new size
  });
  resizeObserver.observe(element);
  const stopDrawing = effect(() => {
    dependOn(model.scene);
    scheduleFrame();
  });
  const stopPrinting = effect(() => {
    // A printer does not wait for frames, and WebGL content does not print.
    const printCanvas = printing.value ? renderScene(model.scene.peek()) : null;
    printCopy.current?.replaceChildren(...(printCanvas === null ? [] : [printCanvas]));
    if (printCanvas === null) scheduleFrame();
  });
  const stopListening = listenToGestures(element, gestureHandlers(element, model, commands));
  return () => {
    stopListening();
    stopDrawing();
    stopPrinting();
    resizeObserver.disconnect();
    cancelAnimationFrame(frame);
    stage.dispose();
  };
}

function gestureHandlers(element: HTMLDivElement, model: Model, commands: Commands): Parameters<typeof listenToGestures>[1] {
  const time = (x: number): number => {
    const scene = model.scene.peek();
    return toTime(scaleOf(scene.span, scene.width), x);
  };
  const clearHover = (): void => {
    model.hovered.value = null;
    showTooltip(null);
  };
  return {
    zoom: (factor, x) => {
      clearHover();
      commands.zoom(factor, x);
    },
    wheel: () => wheel.peek(),
    pan: (dx, dy) => {
      clearHover();
      element.classList.add("dragging");
      commands.pan(dx, dy);
    },
    dragKind: (_x, y, shift) => {
      element.focus({ preventScroll: true });
      return shift || y < headerHeight(model.scene.peek()) ? "range" : "pan";
    },
    range: (x0, x1, done) => {
      const [a, b] = [time(Math.min(x0, x1)), time(Math.max(x0, x1))];
      const span = { from: Math.max(0, a), to: Math.max(b, a + 1) };
      if (!done) {
        model.draftRange.value = span;
        return;
      }
      setRange(span);
      model.draftRange.value = null;
    },
    hover: (x, y) => {
      element.classList.remove("dragging");
      commands.setPointer(x);
      const target = hitTest(model.scene.peek(), x, y);
      const slice = target?.on === "line" && target.slice !== null ? sliceRefOf(target.slice) : null;
      const previous = model.hovered.peek();
      if (slice?.track !== previous?.track || slice?.after_ns !== previous?.after_ns || slice?.row !== previous?.row) {
        model.hovered.value = slice;
      }
      element.style.cursor = target?.on === "ruler" || target?.on === "band" ? "col-resize" : slice === null ? "" : "pointer";
      showTooltip(target === null ? null : { model, target, x, y });
    },
    leave: () => {
      commands.setPointer(null);
      clearHover();
    },
    click: (x, y) => {
      element.classList.remove("dragging");
      const target = hitTest(model.scene.peek(), x, y);
      if (target?.on === "line" && target.slice !== null) commands.selectSlice(sliceRefOf(target.slice));
      else if (target?.on === "line" && target.line.kind === "track") commands.selectSlice(null);
    },
    doubleClick: (x, y) => {
      const target = hitTest(model.scene.peek(), x, y);
      if (target?.on === "line" && target.slice !== null) {
        commands.zoomTo(sliceRefOf(target.slice));
        return;
      }
      const step = target === null ? null : stepUnderPointer(model, target);
      if (step !== null) commands.showStep(step.steps, step.number);
    },
  };
}
