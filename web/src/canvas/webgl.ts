// Rectangle painter for WebGL2: six vertices each, one draw call per fill style. Instanced drawing
// is many times slower on software renderers.
import type { Painter } from "./rectangles";
import { FILLS, programOf, type Fill } from "./shaders";
import { MAX_STRIPS, Strips, type Target } from "./strips";
import { Batch } from "./vertex_batch";

/** Painting order. */
const ORDER: readonly Fill[] = ["plain", "hatched", "strip", "curve"];

/** Create the painter; null without WebGL2. `onContextLost` is called when the context is lost. */
export function webglPainter(onContextLost: () => void): Painter | null {
  const canvas = document.createElement("canvas");
  const gl = canvas.getContext("webgl2", { antialias: false, depth: false, stencil: false });
  const batches = gl === null ? null : batchesOf(gl);
  if (gl === null || batches === null) return null;
  canvas.addEventListener("webglcontextlost", onContextLost);
  const texture = stripTexture(gl);
  gl.enable(gl.BLEND);
  gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
  gl.clearColor(0, 0, 0, 0);
  const strips = new Strips();
  const target = targetOf(batches);
  let rows = 0;

  return {
    canvas,
    kind: "webgl2",
    resize(width, height, ratio) {
      canvas.width = Math.max(1, Math.round(width * ratio));
      canvas.height = Math.max(1, Math.round(height * ratio));
      gl.viewport(0, 0, canvas.width, canvas.height);
      for (const { program } of Object.values(batches)) {
        gl.useProgram(program.program);
        gl.uniform2f(program.size, width, height);
        gl.uniform1f(program.ratio, ratio);
      }
      strips.resize(canvas.width, ratio);
      rows = 0;
    },
    draw(rectangles) {
      for (const fill of ORDER) batches[fill].clear();
      strips.collect(rectangles, target);
      rows = upload(gl, strips, canvas.width, rows);
      gl.clear(gl.COLOR_BUFFER_BIT);
      for (const fill of ORDER) batches[fill].draw();
    },
    waitForGpu() {
      gl.readPixels(0, 0, 1, 1, gl.RGBA, gl.UNSIGNED_BYTE, new Uint8Array(4));
    },
    dispose() {
      canvas.removeEventListener("webglcontextlost", onContextLost);
      for (const fill of ORDER) batches[fill].dispose();
      gl.deleteTexture(texture);
      gl.getExtension("WEBGL_lose_context")?.loseContext();
    },
  };
}

type Batches = Record<Fill, Batch>;

function batchesOf(gl: WebGL2RenderingContext): Batches | null {
  const batches: Partial<Batches> = {};
  for (const fill of Object.keys(FILLS) as Fill[]) {
    const program = programOf(gl, fill);
    if (program === null) return null;
    batches[fill] = new Batch(gl, program);
  }
  return batches as Batches;
}

function targetOf(batches: Batches): Target {
  return {
    add(x0, y0, x1, y1, colour, hatched) {
      (hatched ? batches.hatched : batches.plain).add(x0, y0, x1, y1, colour);
    },
    addStrip(right, y0, y1, strip) {
      batches.strip.add(0, y0, right, y1, 0, strip);
    },
    addCurve({ top, bottom, clipTop, clipBottom, colour }, right, strip) {
      const [y0, y1] = [Math.max(top, clipTop), Math.min(bottom, clipBottom)];
      if (y1 <= y0) return;
      const level = (y: number): number => (bottom - y) / (bottom - top);
      batches.curve.add(0, y0, right, y1, colour, strip, level(y0), level(y1));
    },
  };
}

function stripTexture(gl: WebGL2RenderingContext): WebGLTexture {
  const texture = gl.createTexture();
  gl.bindTexture(gl.TEXTURE_2D, texture);
  gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_MIN_FILTER, gl.NEAREST);
  gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_MAG_FILTER, gl.NEAREST);
  return texture;
}

/** Upload the strips of a frame and return the height of the texture. */
function upload(gl: WebGL2RenderingContext, strips: Strips, width: number, rows: number): number {
  const { count } = strips;
  let capacity = rows;
  if (count > rows) {
    capacity = Math.min(MAX_STRIPS, 2 * count + 32);
    gl.texImage2D(gl.TEXTURE_2D, 0, gl.RGBA, width, capacity, 0, gl.RGBA, gl.UNSIGNED_BYTE, null);
  }
  if (count > 0) {
    const bytes = new Uint8Array(strips.texels.buffer, 0, 4 * width * count);
    gl.texSubImage2D(gl.TEXTURE_2D, 0, 0, 0, width, count, gl.RGBA, gl.UNSIGNED_BYTE, bytes);
  }
  return capacity;
}
