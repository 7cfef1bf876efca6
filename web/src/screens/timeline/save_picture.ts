// The picture as a file, with the names of the tracks beside it.
import { palette } from "../../base/palette";
import { save } from "../../base/save";
import { ink, regions, type Scene } from "../../canvas/scene";
import { Stage } from "../../canvas/stage";
import { FONT } from "../../canvas/overlay";
import { Widths, line as oneLine } from "../../canvas/text";
import { linesIn } from "../../canvas/tree";
import { renderer } from "./address";
import type { Model } from "./model";

const NAMES_PX = 220;
const SCALE = 2;

export function savePicture(model: Model): void {
  pictureOf(model.scene.peek()).toBlob((blob) => {
    if (blob !== null) save("timeline.png", blob);
  });
}

/** The picture of a scene, names of tracks at the left. */
export function pictureOf(scene: Scene): HTMLCanvasElement {
  const { surface } = palette(scene.dark);
  const stage = new Stage(document.createElement("div"), renderer(), () => undefined);
  const picture = stage.snapshot(scene, surface);
  const whole = document.createElement("canvas");
  whole.width = NAMES_PX * SCALE + picture.width;
  whole.height = picture.height;
  const context = whole.getContext("2d");
  if (context !== null) {
    context.fillStyle = surface;
    context.fillRect(0, 0, whole.width, whole.height);
    context.drawImage(picture, NAMES_PX * SCALE, 0);
    context.scale(picture.height / scene.height, picture.height / scene.height);
    paintNames(context, scene);
  }
  stage.dispose();
  return whole;
}

function paintNames(context: CanvasRenderingContext2D, scene: Scene): void {
  const colours = ink(scene.dark);
  const widths = new Widths((text) => context.measureText(text).width);
  context.font = FONT;
  context.textBaseline = "middle";
  for (const region of regions(scene)) {
    context.save();
    context.beginPath();
    context.rect(0, region.top, NAMES_PX, region.bottom - region.top);
    context.clip();
    for (const each of linesIn(region.tree, region.scroll, region.scroll + region.bottom - region.top)) {
      const x = 8 + 12 * (each.level - 1);
      const y = region.top + each.y - region.scroll;
      context.fillStyle = each.kind === "group" ? colours.text : colours.muted;
      context.fillText(widths.fitted(oneLine(each.name), NAMES_PX - x - 8), x, y + 11);
    }
    context.restore();
  }
}
