// Export of the timeline as a PNG, with track names.
import { palette } from "../../base/palette";
import { save } from "../../base/save";
import { FONT } from "../../canvas/overlay";
import { inkOf, regions, type Scene } from "../../canvas/scene";
import { TextMeasurer, singleLine } from "../../canvas/text";
import { TimelineCanvas } from "../../canvas/timeline_canvas";
import { linesIn } from "../../canvas/tree";
import type { Model } from "./model";
import { preferredRenderer } from "./url_state";

const NAMES_PX = 220;
const SCALE = 2;

export function exportPng(model: Model): void {
  renderScene(model.scene.peek()).toBlob((blob) => {
    if (blob !== null) save("timeline.png", blob);
  });
}

/** Render a scene with track names at the left. */
export function renderScene(scene: Scene): HTMLCanvasElement {
  const { surface } = palette(scene.dark);
  const timelineCanvas = new TimelineCanvas(document.createElement("div"), preferredRenderer(), () => undefined);
  const canvas = timelineCanvas.snapshot(scene, surface);
  const combined = document.createElement("canvas");
  combined.width = NAMES_PX * SCALE + canvas.width;
  combined.height = canvas.height;
  const context = combined.getContext("2d");
  if (context !== null) {
    context.fillStyle = surface;
    context.fillRect(0, 0, combined.width, combined.height);
    context.drawImage(canvas, NAMES_PX * SCALE, 0);
    context.scale(canvas.height / scene.height, canvas.height / scene.height);
    paintNames(context, scene);
  }
  timelineCanvas.dispose();
  return combined;
}

function paintNames(context: CanvasRenderingContext2D, scene: Scene): void {
  const colours = inkOf(scene.dark);
  const measurer = new TextMeasurer((text) => context.measureText(text).width);
  context.font = FONT;
  context.textBaseline = "middle";
  for (const region of regions(scene)) {
    context.save();
    context.beginPath();
    context.rect(0, region.top, NAMES_PX, region.bottom - region.top);
    context.clip();
    for (const line of linesIn(region.tree, region.scrollTop, region.scrollTop + region.bottom - region.top)) {
      const x = 8 + 12 * (line.level - 1);
      const y = region.top + line.y - region.scrollTop;
      context.fillStyle = line.kind === "group" ? colours.text : colours.muted;
      context.fillText(measurer.truncate(singleLine(line.name), NAMES_PX - x - 8), x, y + 11);
    }
    context.restore();
  }
}
