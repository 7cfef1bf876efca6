// Names as they can be shown: of any length, in any script, with anything in them.
import { count } from "../base/quantities";

/** More of a name is never drawn or measured. */
const MAX_DRAWN_LENGTH = 200;
/** More of a name is never put on the page. */
const MAX_TEXT_LENGTH = 2_000;
/** Controls, and marks that turn the direction of what follows them. */
const INVISIBLE = /[\u0000-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g;

/** One line to draw. */
export function singleLine(name: string): string {
  return name.slice(0, MAX_DRAWN_LENGTH).replace(INVISIBLE, "\u00b7");
}

/** Text for the page; what is cut off is counted. */
export function displayText(name: string, maxLength = MAX_TEXT_LENGTH): string {
  const text = name.slice(0, maxLength).replace(INVISIBLE, "\u00b7");
  return name.length > maxLength ? `${text}… (${count(name.length)} characters)` : text;
}

/** Widths of texts in one font, kept. */
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

  /** As much of a text as a width has room for; empty where that would say nothing. */
  truncate(text: string, room: number): string {
    if (room < 12) return "";
    const full = this.widthOf(text);
    if (full <= room) return text;
    // Letters are not equally wide: take a few less than would fit on average.
    const letters = Math.floor(0.93 * text.length * (room / full)) - 1;
    return letters < 2 ? "" : `${text.slice(0, letters)}…`;
  }
}
