// Display list of a frame: rectangles as typed columns, and curves on top, for either painter.
import type { Curve } from "./curves";

/** Fill styles. */
export const SOLID = 0;
export const HATCHED = 1;

/** Upper bound per frame; the levels of detail stay far below it. */
export const MAX_RECTANGLES = 60_000;
const INITIAL_CAPACITY = 4_096;

export class Rectangles {
  count = 0;
  readonly curves: Curve[] = [];
  x0 = new Float32Array(INITIAL_CAPACITY);
  y0 = new Float32Array(INITIAL_CAPACITY);
  x1 = new Float32Array(INITIAL_CAPACITY);
  y1 = new Float32Array(INITIAL_CAPACITY);
  /** Red in the lowest byte, then green, blue and opacity. */
  colour = new Uint32Array(INITIAL_CAPACITY);
  style = new Uint8Array(INITIAL_CAPACITY);

  clear(): void {
    this.count = 0;
    this.curves.length = 0;
  }

  add(x0: number, y0: number, x1: number, y1: number, colour: number, style = SOLID): void {
    // Written so that NaN is rejected as well.
    if (!(x1 > x0 && y1 > y0) || this.count >= MAX_RECTANGLES) return;
    if (this.count === this.x0.length) this.grow();
    const index = this.count++;
    this.x0[index] = x0;
    this.y0[index] = y0;
    this.x1[index] = x1;
    this.y1[index] = y1;
    this.colour[index] = colour;
    this.style[index] = style;
  }

  private grow(): void {
    const size = 2 * this.x0.length;
    const copyInto = <T extends Float32Array | Uint32Array | Uint8Array>(from: T, to: T): T => {
      to.set(from);
      return to;
    };
    this.x0 = copyInto(this.x0, new Float32Array(size));
    this.y0 = copyInto(this.y0, new Float32Array(size));
    this.x1 = copyInto(this.x1, new Float32Array(size));
    this.y1 = copyInto(this.y1, new Float32Array(size));
    this.colour = copyInto(this.colour, new Uint32Array(size));
    this.style = copyInto(this.style, new Uint8Array(size));
  }
}

/** Backend that draws rectangles. Sizes are CSS pixels. */
export interface Painter {
  readonly canvas: HTMLCanvasElement;
  /** Rendering backend, for bug reports. */
  readonly kind: "webgl2" | "2d";
  resize(width: number, height: number, ratio: number): void;
  draw(rectangles: Rectangles): void;
  /** Wait until the GPU has finished; for benchmarks. */
  waitForGpu(): void;
  dispose(): void;
}
