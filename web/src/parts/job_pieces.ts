// Pieces of a rank's time on a strip: which one is at a time, and the range that one selects.
import type { JobPiece } from "../api/views";

export interface Extent {
  start_ns: number;
  end_ns: number;
}

/** Index of the piece that contains a time; pieces adjoin and ascend. */
export function pieceAt(pieces: readonly JobPiece[], time_ns: number): number {
  let [low, high] = [0, pieces.length - 1];
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if ((pieces[middle]?.start_ns ?? 0) <= time_ns) low = middle;
    else high = middle - 1;
  }
  return Math.max(0, low);
}

export function extentOf(piece: JobPiece | undefined): Extent {
  return piece === undefined ? { start_ns: 0, end_ns: 0 } : { start_ns: piece.start_ns, end_ns: piece.start_ns + piece.duration_ns };
}

/** URL parameters of a range on the clock of the run, which begins with its first record. */
export function rangeOf(start_ns: number, end_ns: number): { from: string; to: string } {
  const start = Math.max(0, Math.round(start_ns));
  return { from: String(start), to: String(Math.max(start + 1, Math.round(end_ns))) };
}

/** Index of the piece that a key leads to; null for other keys. */
export function stepPiece(key: string, index: number, count: number): number | null {
  const last = Math.max(0, count - 1);
  switch (key) {
    case "ArrowRight":
    case "ArrowUp":
      return Math.min(last, index + 1);
    case "ArrowLeft":
    case "ArrowDown":
      return Math.max(0, index - 1);
    case "Home":
      return 0;
    case "End":
      return last;
    default:
      return null;
  }
}
