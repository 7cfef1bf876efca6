// Strips: a row of many small rectangles becomes one rectangle that samples a texture, one texel
// per column of pixels. On software WebGL a triangle costs about a microsecond, so this is much
// cheaper for thousands of slices one or two pixels wide.
import { pack } from "./colours";
import type { Curve } from "./curves";
import { HATCHED, type Rectangles } from "./rectangles";

/** Shorter runs are drawn as single rectangles. */
const MIN_RUN = 6;
/** Rows of the texture; WebGL2 guarantees 2048. */
export const MAX_STRIPS = 1_024;

/** Destination of single rectangles, strips and curves. */
export interface Target {
  add: (x0: number, y0: number, x1: number, y1: number, colour: number, hatched: boolean) => void;
  addStrip: (right: number, y0: number, y1: number, strip: number) => void;
  addCurve: (curve: Curve, right: number, strip: number) => void;
}

export class Strips {
  /** Row by row: premultiplied colours, or the heights of a curve. */
  texels = new Uint32Array(0);
  count = 0;
  private width = 0;
  private ratio = 1;

  resize(pixels: number, ratio: number): void {
    this.width = pixels;
    this.ratio = ratio;
    this.texels = new Uint32Array(0);
  }

  /** Pass on all rectangles, merging runs of one row into strips. */
  collect(rectangles: Rectangles, target: Target): void {
    this.count = 0;
    for (let first = 0; first < rectangles.count; ) {
      const next = runEnd(rectangles, first);
      if (next - first >= MIN_RUN && this.count < MAX_STRIPS) this.collectRun(rectangles, first, next, target);
      else for (let index = first; index < next; index++) addRectangle(rectangles, index, target);
      first = next;
    }
    for (const curve of rectangles.curves) if (this.count < MAX_STRIPS) this.collectCurve(curve, target);
  }

  private collectRun(rectangles: Rectangles, first: number, next: number, target: Target): void {
    const { strip, base } = this.addRow();
    let right = 0;
    for (let index = first; index < next; index++) {
      if (rectangles.style[index] === HATCHED) {
        addRectangle(rectangles, index, target); // stripes vary vertically
        continue;
      }
      const x0 = Math.max(0, column((rectangles.x0[index] ?? 0) * this.ratio));
      const x1 = Math.min(this.width, Math.max(x0 + 1, column((rectangles.x1[index] ?? 0) * this.ratio)));
      this.texels.fill(premultiplied(rectangles.colour[index] ?? 0), base + x0, base + x1);
      right = Math.max(right, x1);
    }
    if (right > 0) target.addStrip(right / this.ratio, rectangles.y0[first] ?? 0, rectangles.y1[first] ?? 0, strip);
  }

  private collectCurve(curve: Curve, target: Target): void {
    const { strip, base } = this.addRow();
    const { mean, min, max } = curve;
    const columns = Math.min(this.width, mean.length); // one texel per CSS pixel
    for (let x = 0; x < columns; x++) {
      const middle = mean[x] ?? NaN;
      if (Number.isNaN(middle)) continue;
      this.texels[base + x] = pack(255 * middle, 255 * (min[x] ?? 0), 255 * (max[x] ?? 0));
    }
    target.addCurve(curve, columns, strip);
  }

  private addRow(): { strip: number; base: number } {
    const strip = this.count++;
    const base = strip * this.width;
    this.reserve(base + this.width);
    this.texels.fill(0, base, base + this.width);
    return { strip, base };
  }

  private reserve(length: number): void {
    if (this.texels.length >= length) return;
    const grown = new Uint32Array(Math.min(MAX_STRIPS * this.width, 2 * length + 32 * this.width));
    grown.set(this.texels);
    this.texels = grown;
  }
}

function addRectangle(rectangles: Rectangles, index: number, target: Target): void {
  target.add(
    rectangles.x0[index] ?? 0, rectangles.y0[index] ?? 0, rectangles.x1[index] ?? 0, rectangles.y1[index] ?? 0,
    rectangles.colour[index] ?? 0, rectangles.style[index] === HATCHED,
  );
}

/** First column whose centre is at or after a position: neighbours share none. */
function column(x: number): number {
  return Math.ceil(x - 0.5);
}

function premultiplied(colour: number): number {
  const opacity = (colour >>> 24) / 255;
  if (opacity === 1) return colour;
  return pack(
    (colour & 255) * opacity, ((colour >> 8) & 255) * opacity, ((colour >> 16) & 255) * opacity, opacity,
  );
}

/** Find the end of a run of rectangles with equal top and bottom, ordered from left to right. */
function runEnd(rectangles: Rectangles, first: number): number {
  const [top, bottom] = [rectangles.y0[first], rectangles.y1[first]];
  let next = first + 1;
  while (
    next < rectangles.count && rectangles.y0[next] === top && rectangles.y1[next] === bottom &&
    (rectangles.x0[next] ?? 0) >= (rectangles.x1[next - 1] ?? 0) - 0.01
  ) next++;
  return next;
}
