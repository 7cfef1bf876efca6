// Cache of track data, bounded in bytes. A chunk covers an interval at one level of detail. Frames
// are drawn from cached chunks while requests are in flight.
import type { Span } from "./viewport";

export interface Chunk<T> extends Span {
  /** Level of detail: a pixel covers about two to this power nanoseconds. */
  level: number;
  /** The chunk holds every event: zooming in shows nothing new. */
  complete: boolean;
  /** The chunk holds so little that a coarser one is preferred for drawing. */
  sparse: boolean;
  /** The run has grown since: still drawn, but requested again. */
  stale: boolean;
  bytes: number;
  data: T;
}

/** Part of a window and the chunk to draw there. */
export interface ChunkPart<T> extends Span {
  chunk: Chunk<T>;
}

export class ChunkCache<T> {
  private readonly byTrack = new Map<string, Chunk<T>[]>();
  /** All chunks with their track, least recently used first. */
  private readonly byUse = new Map<Chunk<T>, string>();
  private totalBytes = 0;

  constructor(private readonly maxBytes: number) {}

  get bytes(): number {
    return this.totalBytes;
  }

  add(track: string, chunk: Chunk<T>): void {
    for (const older of this.byTrack.get(track) ?? []) {
      if (replaces(chunk, older)) this.remove(older);
    }
    const trackChunks = this.byTrack.get(track) ?? [];
    trackChunks.push(chunk);
    this.byTrack.set(track, trackChunks);
    this.byUse.set(chunk, track);
    this.totalBytes += chunk.bytes;
    for (const oldest of this.byUse.keys()) {
      if (this.totalBytes <= this.maxBytes || oldest === chunk) break;
      this.remove(oldest);
    }
  }

  /** Return true if a window can be drawn at a level without a request. */
  covers(track: string, span: Span, level: number): boolean {
    return (this.byTrack.get(track) ?? []).some(
      (chunk) => !chunk.stale && serves(chunk, level) && contains(chunk, span),
    );
  }

  /** Select the chunks to draw in a window: nearest level first, without gaps where possible. */
  partsIn(track: string, span: Span, level: number): ChunkPart<T>[] {
    const candidates = (this.byTrack.get(track) ?? []).filter(
      (chunk) => chunk.to > span.from && chunk.from < span.to,
    );
    candidates.sort((a, b) => distance(a, level) - distance(b, level));
    const parts: ChunkPart<T>[] = [];
    let gaps: Span[] = [span];
    for (const chunk of candidates) {
      if (gaps.length === 0) break;
      const remaining: Span[] = [];
      let isUsed = false;
      for (const gap of gaps) {
        const from = Math.max(gap.from, chunk.from);
        const to = Math.min(gap.to, chunk.to);
        if (from >= to) {
          remaining.push(gap);
          continue;
        }
        isUsed = true;
        parts.push({ chunk, from, to });
        if (gap.from < from) remaining.push({ from: gap.from, to: from });
        if (to < gap.to) remaining.push({ from: to, to: gap.to });
      }
      gaps = remaining;
      if (isUsed) this.touch(chunk, track);
    }
    return parts;
  }

  /** Mark everything as outdated: it is requested again when it comes into view. */
  markStale(): void {
    for (const chunk of this.byUse.keys()) chunk.stale = true;
  }

  clear(): void {
    this.byTrack.clear();
    this.byUse.clear();
    this.totalBytes = 0;
  }

  private touch(chunk: Chunk<T>, track: string): void {
    this.byUse.delete(chunk);
    this.byUse.set(chunk, track);
  }

  private remove(chunk: Chunk<T>): void {
    const track = this.byUse.get(chunk);
    if (track === undefined) return;
    this.byUse.delete(chunk);
    this.totalBytes -= chunk.bytes;
    const rest = (this.byTrack.get(track) ?? []).filter((candidate) => candidate !== chunk);
    if (rest.length === 0) this.byTrack.delete(track);
    else this.byTrack.set(track, rest);
  }
}

function contains(chunk: Span, span: Span): boolean {
  return chunk.from <= span.from && chunk.to >= span.to;
}

/** One level finer is sufficient; a complete chunk serves all finer levels. */
function serves(chunk: Chunk<unknown>, level: number): boolean {
  if (chunk.complete && chunk.level >= level) return true;
  return chunk.level === level || chunk.level === level - 1;
}

function replaces(chunk: Chunk<unknown>, older: Chunk<unknown>): boolean {
  return older.level === chunk.level && contains(chunk, older);
}

/** Rank chunks: finer before coarser, current before stale, sparse ones last. */
function distance(chunk: Chunk<unknown>, level: number): number {
  const levelDifference = chunk.level - level;
  const levels = levelDifference > 0 ? (chunk.complete ? 0 : 2 * levelDifference) : -levelDifference;
  return levels + (chunk.stale ? 0.5 : 0) + (chunk.sparse ? 1000 : 0);
}
