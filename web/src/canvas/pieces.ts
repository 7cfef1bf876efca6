// What was fetched of tracks, kept within a bound of bytes: pieces of time, each at the level of
// detail it was asked for. Frames are drawn from what is here, whatever is still on its way.
import type { Span } from "./viewport";

export interface Piece<T> extends Span {
  /** A pixel of it is about two to this power nanoseconds. */
  level: number;
  /** Coming nearer shows nothing new. */
  complete: boolean;
  /** So little is in it that a coarser piece says more: it answers, and is drawn last. */
  sparse: boolean;
  /** The run has grown since: still drawn, and asked for again. */
  stale: boolean;
  bytes: number;
  data: T;
}

/** A part of the window and the piece to draw there. */
export interface Part<T> extends Span {
  piece: Piece<T>;
}

export class Pieces<T> {
  private readonly ofTrack = new Map<string, Piece<T>[]>();
  /** All pieces with their track, the one used longest ago first. */
  private readonly byUse = new Map<Piece<T>, string>();
  private held = 0;

  constructor(private readonly most: number) {}

  get bytes(): number {
    return this.held;
  }

  add(track: string, piece: Piece<T>): void {
    for (const old of this.ofTrack.get(track) ?? []) {
      if (replaces(piece, old)) this.remove(old);
    }
    const own = this.ofTrack.get(track) ?? [];
    own.push(piece);
    this.ofTrack.set(track, own);
    this.byUse.set(piece, track);
    this.held += piece.bytes;
    for (const oldest of this.byUse.keys()) {
      if (this.held <= this.most || oldest === piece) break;
      this.remove(oldest);
    }
  }

  /** Whether a window can be drawn at a level without asking again. */
  covers(track: string, span: Span, level: number): boolean {
    return (this.ofTrack.get(track) ?? []).some(
      (piece) => !piece.stale && serves(piece, level) && contains(piece, span),
    );
  }

  /** What to draw of a window: the pieces that come nearest to the level, without gaps if any can. */
  parts(track: string, span: Span, level: number): Part<T>[] {
    const candidates = (this.ofTrack.get(track) ?? []).filter(
      (piece) => piece.to > span.from && piece.from < span.to,
    );
    candidates.sort((one, other) => distance(one, level) - distance(other, level));
    const parts: Part<T>[] = [];
    let gaps: Span[] = [span];
    for (const piece of candidates) {
      if (gaps.length === 0) break;
      const left: Span[] = [];
      let used = false;
      for (const gap of gaps) {
        const from = Math.max(gap.from, piece.from);
        const to = Math.min(gap.to, piece.to);
        if (from >= to) {
          left.push(gap);
          continue;
        }
        used = true;
        parts.push({ piece, from, to });
        if (gap.from < from) left.push({ from: gap.from, to: from });
        if (to < gap.to) left.push({ from: to, to: gap.to });
      }
      gaps = left;
      if (used) this.touch(piece, track);
    }
    return parts;
  }

  /** The run has grown: everything is worth asking for again, when it is looked at. */
  makeStale(): void {
    for (const piece of this.byUse.keys()) piece.stale = true;
  }

  clear(): void {
    this.ofTrack.clear();
    this.byUse.clear();
    this.held = 0;
  }

  private touch(piece: Piece<T>, track: string): void {
    this.byUse.delete(piece);
    this.byUse.set(piece, track);
  }

  private remove(piece: Piece<T>): void {
    const track = this.byUse.get(piece);
    if (track === undefined) return;
    this.byUse.delete(piece);
    this.held -= piece.bytes;
    const rest = (this.ofTrack.get(track) ?? []).filter((each) => each !== piece);
    if (rest.length === 0) this.ofTrack.delete(track);
    else this.ofTrack.set(track, rest);
  }
}

function contains(piece: Span, span: Span): boolean {
  return piece.from <= span.from && piece.to >= span.to;
}

/** One level finer is fine; one that holds every event serves all levels that come nearer. */
function serves(piece: Piece<unknown>, level: number): boolean {
  if (piece.complete && piece.level >= level) return true;
  return piece.level === level || piece.level === level - 1;
}

function replaces(piece: Piece<unknown>, old: Piece<unknown>): boolean {
  return old.level === piece.level && contains(piece, old);
}

/** Finer pieces look better than coarser ones, current ones better than what has grown since; what
 * is sparse comes last. */
function distance(piece: Piece<unknown>, level: number): number {
  const away = piece.level - level;
  const levels = away > 0 ? (piece.complete ? 0 : 2 * away) : -away;
  return levels + (piece.stale ? 0.5 : 0) + (piece.sparse ? 1000 : 0);
}
