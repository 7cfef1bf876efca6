// The place in the source that the reader wants to see.
import { signal } from "@preact/signals";

export interface Place {
  file: string;
  line: number;
}

export const source = signal<Place | null>(null);

export function openSource(file: string, line: number): void {
  source.value = { file, line };
}

/** `file(line): function`, as stacks are written; null for what is no such frame. */
export function placeOf(frame: string): Place | null {
  const found = /^(.+?)\((\d+)\)(?::|$)/.exec(frame) ?? /^(.+?\.py):(\d+)(?:\D|$)/.exec(frame);
  return found?.[1] !== undefined && found[2] !== undefined
    ? { file: found[1], line: Number(found[2]) }
    : null;
}
