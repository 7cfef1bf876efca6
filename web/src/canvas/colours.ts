// Colours of slices. A name has the same colour on every track, run and screen.
import { palette } from "../base/palette";
import { pathColour } from "../base/path_kinds";

/** Colour as 32 bits: red in the lowest byte, then green, blue and opacity, as WebGL reads it. */
export type Packed = number;

/** Shades of a hue: below 0 towards black, above 0 towards white. */
const SHADES = [0, 0.3, -0.14];
/** Hues of the palette, the grey last. */
const HUES = [0, 1, 2, 3, 4, 5, 7, 6];
/** Characters of a name that are hashed: names can be a megabyte long. */
const MAX_HASHED_LENGTH = 200;

/** Colours of names, which are never grey. */
export const COLOUR_COUNT = (HUES.length - 1) * SHADES.length;

/** Map a name to a colour index. A trailing number is ignored: `step 12` and `step 13` look alike. */
export function colourIndex(name: string): number {
  let end = Math.min(name.length, MAX_HASHED_LENGTH);
  while (end > 1 && isDigit(name.charCodeAt(end - 1))) end--;
  let hash = 0x811c9dc5; // FNV-1a
  for (let index = 0; index < end; index++) {
    hash = Math.imul(hash ^ name.charCodeAt(index), 0x01000193);
  }
  hash ^= hash >>> 15; // the low bits alone depend mostly on the last characters
  return (hash >>> 0) % COLOUR_COUNT;
}

/** Hue and shade of the kinds of slices, in the order of the legend. Those that are kinds of time on
 * the critical path have its colours. */
const KINDS: Record<string, readonly [hue: number, shade: number]> = {
  computation: [0, 0], forward: [0, 1], backward: [3, 1], optimizer: [3, 2], operators: [0, 2],
  communication: [4, 0], copies: [2, 1], "fetching batches": [2, 0], Python: [7, 0], modules: [7, 1],
  "launching work": [1, 0], "waiting for the device": [5, 0], compilation: [7, 2], checkpoints: [1, 1],
  evaluation: [5, 1], starting: [5, 2], annotations: [6, 1], other: [6, 0],
};

/** Map a kind of a slice, or of time on the critical path, to a colour index. */
export function kindColourIndex(kind: string): number {
  const number = pathColour(kind);
  const [hue, shade] = KINDS[kind] ?? (number === 8 ? [2, 1] : [number, 0]);
  return HUES.indexOf(hue) * SHADES.length + shade;
}

/** Order kinds as the legend lists them. */
export function inLegendOrder(kinds: Iterable<string>): string[] {
  const order = Object.keys(KINDS);
  return [...kinds].sort((a, b) => order.indexOf(a) - order.indexOf(b));
}

function isDigit(code: number): boolean {
  return code >= 48 && code <= 57;
}

/** Fill and text colour by colour index. */
export interface SliceColours {
  fill: Uint32Array;
  /** Black or white, whichever has more contrast to the fill. */
  text: string[];
}

const coloursByTheme = new Map<boolean, SliceColours>();

export function sliceColours(dark: boolean): SliceColours {
  let colours = coloursByTheme.get(dark);
  if (colours === undefined) {
    colours = mix(dark);
    coloursByTheme.set(dark, colours);
  }
  return colours;
}

function mix(dark: boolean): SliceColours {
  const series = palette(dark).series;
  const fill = new Uint32Array(HUES.length * SHADES.length);
  const text: string[] = [];
  HUES.forEach((hue, column) => {
    SHADES.forEach((shade, row) => {
      const [red, green, blue] = rgb(series[hue] ?? "#888888").map((value) =>
        Math.round(shade < 0 ? value * (1 + shade) : value + (255 - value) * shade),
      ) as [number, number, number];
      const index = column * SHADES.length + row;
      fill[index] = pack(red, green, blue);
      text[index] = luminance(red, green, blue) > 0.179 ? "#000000" : "#ffffff";
    });
  });
  return { fill, text };
}

export function rgb(hex: string): [number, number, number] {
  const value = Number.parseInt(hex.slice(1), 16);
  return [(value >> 16) & 255, (value >> 8) & 255, value & 255];
}

export function pack(red: number, green: number, blue: number, opacity = 1): Packed {
  const byte = Math.round;
  return ((byte(255 * opacity) << 24) | (byte(blue) << 16) | (byte(green) << 8) | byte(red)) >>> 0;
}

export function packHex(hex: string, opacity = 1): Packed {
  return pack(...rgb(hex), opacity);
}

/** Return the colour with another opacity, 0 to 1. */
export function withOpacity(colour: Packed, opacity: number): Packed {
  return ((colour & 0xffffff) | (Math.round(255 * opacity) << 24)) >>> 0;
}

const cssCache = new Map<Packed, string>();

export function css(colour: Packed): string {
  let text = cssCache.get(colour);
  if (text === undefined) {
    const [red, green, blue] = [colour & 255, (colour >> 8) & 255, (colour >> 16) & 255];
    text = `rgba(${red}, ${green}, ${blue}, ${(colour >>> 24) / 255})`;
    if (cssCache.size > 4_096) cssCache.clear();
    cssCache.set(colour, text);
  }
  return text;
}

/** Relative luminance after WCAG 2.1: https://www.w3.org/TR/WCAG21/#dfn-relative-luminance */
export function luminance(red: number, green: number, blue: number): number {
  const linear = (value: number): number => {
    const share = value / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  };
  return 0.2126 * linear(red) + 0.7152 * linear(green) + 0.0722 * linear(blue);
}
