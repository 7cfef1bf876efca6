// Text for display: names of any length, in any script, with any characters.
import { count } from "../base/quantities";

/** Upper bound of characters that are drawn or measured. */
const MAX_DRAWN_LENGTH = 200;
/** Upper bound of characters in the document. */
const MAX_TEXT_LENGTH = 2_000;
/** Control characters and bidirectional formatting. */
const INVISIBLE = /[\u0000-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g;

/** Return text as a single line for drawing. */
export function singleLine(name: string): string {
  return name.slice(0, MAX_DRAWN_LENGTH).replace(INVISIBLE, "\u00b7");
}

/** Shorten text for display and state its full length. */
export function displayText(name: string, maxLength = MAX_TEXT_LENGTH): string {
  const text = name.slice(0, maxLength).replace(INVISIBLE, "\u00b7");
  return name.length > maxLength ? `${text}… (${count(name.length)} characters)` : text;
}

/** Text widths in one font, cached. */
export class TextMeasurer {
  private readonly cache = new Map<string, number>();

  constructor(
    private readonly measure: (text: string) => number,
    private readonly maxEntries = 20_000,
  ) {}

  widthOf(text: string): number {
    let width = this.cache.get(text);
    if (width === undefined) {
      width = this.measure(text);
      if (this.cache.size >= this.maxEntries) this.cache.clear();
      this.cache.set(text, width);
    }
    return width;
  }

  /** Truncate text to a width; empty if too little would remain. */
  truncate(text: string, maxWidth: number): string {
    if (maxWidth < 12) return "";
    const full = this.widthOf(text);
    if (full <= maxWidth) return text;
    // Glyph widths vary: start below the average fit.
    const length = Math.floor(0.93 * text.length * (maxWidth / full)) - 1;
    return length < 2 ? "" : `${text.slice(0, length)}…`;
  }
}
