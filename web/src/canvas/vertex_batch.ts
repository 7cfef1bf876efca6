// Vertices of one fill style, and the draw call.
import type { Program } from "./shaders";

/** 32-bit words per vertex: x, y, colour, texture row, height on a curve. */
const WORDS = 5;
const CORNERS = 6;

export class Batch {
  private count = 0;
  private floats = new Float32Array(512 * CORNERS * WORDS);
  private words = new Uint32Array(this.floats.buffer);
  private readonly buffer: WebGLBuffer;
  private readonly layout: WebGLVertexArrayObject;

  constructor(
    private readonly gl: WebGL2RenderingContext,
    readonly program: Program,
  ) {
    this.buffer = gl.createBuffer();
    this.layout = gl.createVertexArray();
    gl.bindVertexArray(this.layout);
    gl.bindBuffer(gl.ARRAY_BUFFER, this.buffer);
    const stride = 4 * WORDS;
    gl.enableVertexAttribArray(0);
    gl.vertexAttribPointer(0, 2, gl.FLOAT, false, stride, 0);
    gl.enableVertexAttribArray(1);
    gl.vertexAttribPointer(1, 4, gl.UNSIGNED_BYTE, true, stride, 8);
    gl.enableVertexAttribArray(2);
    gl.vertexAttribPointer(2, 2, gl.FLOAT, false, stride, 12);
  }

  clear(): void {
    this.count = 0;
  }

  /** Add two triangles; `high` and `low` are the heights of the curve at top and bottom. */
  add(x0: number, y0: number, x1: number, y1: number, colour: number, strip = 0, high = 0, low = 0): void {
    if ((this.count + CORNERS) * WORDS > this.floats.length) this.grow();
    this.vertex(x0, y0, colour, strip, high);
    this.vertex(x1, y0, colour, strip, high);
    this.vertex(x0, y1, colour, strip, low);
    this.vertex(x0, y1, colour, strip, low);
    this.vertex(x1, y0, colour, strip, high);
    this.vertex(x1, y1, colour, strip, low);
  }

  draw(): void {
    const { gl } = this;
    if (this.count === 0) return;
    gl.useProgram(this.program.program);
    gl.bindVertexArray(this.layout);
    gl.bindBuffer(gl.ARRAY_BUFFER, this.buffer);
    gl.bufferData(gl.ARRAY_BUFFER, this.floats, gl.DYNAMIC_DRAW, 0, WORDS * this.count);
    gl.drawArrays(gl.TRIANGLES, 0, this.count);
  }

  dispose(): void {
    this.gl.deleteBuffer(this.buffer);
    this.gl.deleteVertexArray(this.layout);
    this.gl.deleteProgram(this.program.program);
  }

  private vertex(x: number, y: number, colour: number, strip: number, level: number): void {
    const offset = WORDS * this.count++;
    this.floats[offset] = x;
    this.floats[offset + 1] = y;
    this.words[offset + 2] = colour;
    this.floats[offset + 3] = strip;
    this.floats[offset + 4] = level;
  }

  private grow(): void {
    const grown = new Float32Array(2 * this.floats.length);
    const words = new Uint32Array(grown.buffer);
    words.set(this.words); // copied as integers: as a float a colour may be NaN
    [this.floats, this.words] = [grown, words];
  }
}
