// Colours of slices. A name has the same colour on every track, in every run and on every screen.
import { palette } from "../base/palette";

/** Red in the lowest byte, then green, blue and opacity: the order of bytes that WebGL reads. */
export type Packed = number;

/** Lighter and darker shades of a hue: below 0 towards black, above towards white. */
const SHADES = [0, 0.3, -0.14];
/** The grey of the series is for what has no name of its own. */
const HUES = [0, 1, 2, 3, 4, 5, 7];
/** As much of a name as decides its colour: names can be a megabyte long. */
const MAX_HASHED_LENGTH = 200;

export const COLOUR_COUNT = HUES.length * SHADES.length;

/** Which colour a name has. Numbers at its end do not count: `step 12` looks like `step 13`. */
export function colourIndex(name: string): number {
  let end = Math.min(name.length, MAX_HASHED_LENGTH);
  while (end > 1 && isDigit(name.charCodeAt(end - 1))) end--;
  let hash = 0x811c9dc5; // FNV-1a
  for (let index = 0; index < end; index++) {
    hash = Math.imul(hash ^ name.charCodeAt(index), 0x01000193);
  }
  hash ^= hash >>> 15; // its low bits alone depend on the last letters most
  return (hash >>> 0) % COLOUR_COUNT;
}

function isDigit(code: number): boolean {
  return code >= 48 && code <= 57;
}

/** Fill and text of every colour, by index. */
export interface SliceColours {
  fill: Uint32Array;
  /** Black or white, whichever is easier to read on the fill. */
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
  const fill = new Uint32Array(COLOUR_COUNT);
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

/** The same colour with another opacity, 0 to 1. */
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

/** Relative luminance as the accessibility guidelines define it. */
export function luminance(red: number, green: number, blue: number): number {
  const linear = (value: number): number => {
    const share = value / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  };
  return 0.2126 * linear(red) + 0.7152 * linear(green) + 0.0722 * linear(blue);
}
