// WebGL2 programs, one per fill style: on software renderers every instruction per pixel counts,
// and a branch costs as much as the code that it skips.
import { AREA, BAND, LINE_PX } from "./curves";
import { COUNTER_PX } from "./tree";

const VERTEX = `#version 300 es
layout(location=0) in vec2 position;
layout(location=1) in vec4 colour;
layout(location=2) in vec2 texel;
uniform vec2 size;
flat out vec4 shade;
flat out int strip;
out float level;
void main() {
  vec2 unit = position / size * 2.0 - 1.0;
  gl_Position = vec4(unit.x, -unit.y, 0.0, 1.0);
  shade = vec4(colour.rgb * colour.a, colour.a);
  strip = int(texel.x);
  level = texel.y;
}`;

const HEAD = `#version 300 es
precision highp float;
precision highp sampler2D;
flat in vec4 shade;
flat in int strip;
in float level;
uniform float ratio;
uniform sampler2D strips;
out vec4 pixel;
`;

/** Fragment shaders by fill style. */
export const FILLS = {
  plain: "void main() { pixel = shade; }",
  hatched: `void main() {
    float stripe = mod((gl_FragCoord.x + gl_FragCoord.y) / ratio, 6.0);
    pixel = shade * (stripe < 2.0 ? 0.55 : 1.0);
  }`,
  // Strip: a row of many slices, one texel per column of pixels.
  strip: "void main() { pixel = texelFetch(strips, ivec2(int(gl_FragCoord.x), strip), 0); }",
  // Curve: the texels hold mean, minimum and maximum of each column.
  curve: `void main() {
    vec4 value = texelFetch(strips, ivec2(int(gl_FragCoord.x / ratio), strip), 0);
    float area = ${AREA.toFixed(3)} * step(level, value.r);
    float band = ${BAND.toFixed(3)} * step(value.g, level) * step(level, value.b);
    float line = step(abs(level - value.r), ${(LINE_PX / (COUNTER_PX - 2)).toFixed(4)});
    pixel = shade * (value.a * max(line, area + band - area * band));
  }`,
} as const;

export type Fill = keyof typeof FILLS;

export interface Program {
  program: WebGLProgram;
  size: WebGLUniformLocation | null;
  ratio: WebGLUniformLocation | null;
}

/** Compile and link a program; null if the driver rejects it. */
export function programOf(gl: WebGL2RenderingContext, fill: Fill): Program | null {
  const program = gl.createProgram();
  for (const [kind, source] of [
    [gl.VERTEX_SHADER, VERTEX],
    [gl.FRAGMENT_SHADER, HEAD + FILLS[fill]],
  ] as const) {
    const shader = gl.createShader(kind);
    if (shader === null) return null;
    gl.shaderSource(shader, source);
    gl.compileShader(shader);
    gl.attachShader(program, shader);
    gl.deleteShader(shader); // deleted together with the program
  }
  gl.linkProgram(program);
  if (gl.getProgramParameter(program, gl.LINK_STATUS) !== true) return null;
  return {
    program,
    size: gl.getUniformLocation(program, "size"),
    ratio: gl.getUniformLocation(program, "ratio"),
  };
}
