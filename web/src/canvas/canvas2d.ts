// Rectangle painter for Canvas2D, used without WebGL2.
import { css, withOpacity } from "./colours";
import { AREA, BAND, LINE_PX, type Curve } from "./curves";
import { HATCHED, type Painter, type Rectangles } from "./rectangles";

export function canvas2dPainter(): Painter {
  const canvas = document.createElement("canvas");
  const context = canvas.getContext("2d");
  const stripes = context?.createPattern(stripeTile(), "repeat") ?? null;
  return {
    canvas,
    kind: "2d",
    resize(width, height, ratio) {
      canvas.width = Math.max(1, Math.round(width * ratio));
      canvas.height = Math.max(1, Math.round(height * ratio));
      context?.setTransform(ratio, 0, 0, ratio, 0, 0);
    },
    draw(rectangles) {
      if (context === null) return;
      context.clearRect(0, 0, canvas.width, canvas.height);
      fillRectangles(context, rectangles);
      if (stripes !== null) eraseStripes(context, rectangles, stripes);
      for (const curve of rectangles.curves) fillCurve(context, curve);
    },
    waitForGpu() {
      context?.getImageData(0, 0, 1, 1);
    },
    dispose() {
      canvas.width = 0; // releases the pixels
    },
  };
}

function fillRectangles(context: CanvasRenderingContext2D, rectangles: Rectangles): void {
  let last = -1;
  for (let index = 0; index < rectangles.count; index++) {
    const colour = rectangles.colour[index] ?? 0;
    if (colour !== last) context.fillStyle = css(colour);
    last = colour;
    const x0 = rectangles.x0[index] ?? 0;
    const y0 = rectangles.y0[index] ?? 0;
    context.fillRect(x0, y0, (rectangles.x1[index] ?? 0) - x0, (rectangles.y1[index] ?? 0) - y0);
  }
}

/** Erase stripes from hatched rectangles, so that the background shows through as in WebGL. */
function eraseStripes(
  context: CanvasRenderingContext2D,
  rectangles: Rectangles,
  stripes: CanvasPattern,
): void {
  context.save();
  context.globalCompositeOperation = "destination-out";
  context.fillStyle = stripes;
  for (let index = 0; index < rectangles.count; index++) {
    if (rectangles.style[index] !== HATCHED) continue;
    const x0 = rectangles.x0[index] ?? 0;
    const y0 = rectangles.y0[index] ?? 0;
    context.fillRect(x0, y0, (rectangles.x1[index] ?? 0) - x0, (rectangles.y1[index] ?? 0) - y0);
  }
  context.restore();
}

function fillCurve(context: CanvasRenderingContext2D, curve: Curve): void {
  const { top, bottom, clipTop, clipBottom, mean, min, max, colour } = curve;
  const y = (share: number): number => bottom - share * (bottom - top);
  const [area, band, line] = [new Path2D(), new Path2D(), new Path2D()];
  for (let first = 0; first < mean.length; ) {
    // Adjacent columns with equal values are merged into one rectangle per path.
    let next = first + 1;
    while (next < mean.length && mean[next] === mean[first] && min[next] === min[first] && max[next] === max[first]) next++;
    const middle = y(mean[first] ?? NaN);
    if (!Number.isNaN(middle)) {
      const columnCount = next - first;
      const [low, high] = [y(min[first] ?? 0), y(max[first] ?? 0)];
      area.rect(first, middle, columnCount, bottom - middle);
      if (low - high > 1) band.rect(first, high, columnCount, low - high);
      line.rect(first, middle - LINE_PX, columnCount, 2 * LINE_PX);
    }
    first = next;
  }
  context.save();
  context.beginPath();
  context.rect(0, clipTop, mean.length, clipBottom - clipTop);
  context.clip();
  for (const [path, opacity] of [[area, AREA], [band, BAND], [line, 1]] as const) {
    context.fillStyle = css(withOpacity(colour, opacity));
    context.fill(path);
  }
  context.restore();
}

function stripeTile(): HTMLCanvasElement {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 6;
  const context = tile.getContext("2d");
  if (context === null) return tile;
  context.strokeStyle = "rgba(0, 0, 0, 0.45)";
  context.lineWidth = 1.5;
  context.beginPath();
  for (const shift of [-6, 0, 6]) {
    context.moveTo(shift, 6);
    context.lineTo(shift + 6, 0);
  }
  context.stroke();
  return tile;
}
