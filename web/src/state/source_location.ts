// Source location that the reader opened.
import { signal } from "@preact/signals";

export interface SourceLocation {
  file: string;
  line: number;
}

export const sourceLocation = signal<SourceLocation | null>(null);

export function openSource(file: string, line: number): void {
  sourceLocation.value = { file, line };
}

/** Parse a stack frame `file(line): function`; null for other text. */
export function parseFrame(frame: string): SourceLocation | null {
  const match = /^(.+?)\((\d+)\)(?::|$)/.exec(frame) ?? /^(.+?\.py):(\d+)(?:\D|$)/.exec(frame);
  return match?.[1] !== undefined && match[2] !== undefined
    ? { file: match[1], line: Number(match[2]) }
    : null;
}
