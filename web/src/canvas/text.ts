// Names as they can be shown: of any length, in any script, with anything in them.
import { count } from "../base/quantities";

/** More of a name is never drawn or measured. */
const DRAWN = 200;
/** More of a name is never put on the page. */
const SHOWN = 2_000;
/** Controls, and marks that turn the direction of what follows them. */
const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g;

/** One line to draw. */
export function line(name: string): string {
  return name.slice(0, DRAWN).replace(UNSEEN, "\u00b7");
}

/** Text for the page; what is cut off is counted. */
export function shown(name: string, most = SHOWN): string {
  const text = name.slice(0, most).replace(UNSEEN, "\u00b7");
  return name.length > most ? `${text}… (${count(name.length)} characters)` : text;
}

/** Widths of texts in one font, kept. */
export class Widths {
  private readonly known = new Map<string, number>();

  constructor(
    private readonly measure: (text: string) => number,
    private readonly most = 20_000,
  ) {}

  of(text: string): number {
    let found = this.known.get(text);
    if (found === undefined) {
      found = this.measure(text);
      if (this.known.size >= this.most) this.known.clear();
      this.known.set(text, found);
    }
    return found;
  }

  /** As much of a text as a width has room for; empty where that would say nothing. */
  fitted(text: string, room: number): string {
    if (room < 12) return "";
    const full = this.of(text);
    if (full <= room) return text;
    // Letters are not equally wide: take a few less than would fit on average.
    const letters = Math.floor(0.93 * text.length * (room / full)) - 1;
    return letters < 2 ? "" : `${text.slice(0, letters)}…`;
  }
}
