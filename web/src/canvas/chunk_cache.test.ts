import { describe, expect, test } from "vitest";

import { ChunkCache, type Chunk } from "./chunk_cache";

function piece(from: number, to: number, level: number, more: Partial<Chunk<string>> = {}): Chunk<string> {
  return { from, to, level, complete: false, sparse: false, stale: false, bytes: 10, data: `${from}-${to}@${level}`, ...more };
}

describe("pieces", () => {
  test("answer for a window at their level or one finer", () => {
    const pieces = new ChunkCache<string>(1000);
    pieces.add("t", piece(0, 100, 5));
    expect(pieces.covers("t", { from: 10, to: 90 }, 5)).toBe(true);
    expect(pieces.covers("t", { from: 10, to: 90 }, 6)).toBe(true);
    expect(pieces.covers("t", { from: 10, to: 90 }, 4)).toBe(false);
    expect(pieces.covers("t", { from: 10, to: 190 }, 5)).toBe(false);
    expect(pieces.covers("u", { from: 10, to: 90 }, 5)).toBe(false);
  });

  test("that hold every event answer for everything nearer", () => {
    const pieces = new ChunkCache<string>(1000);
    pieces.add("t", piece(0, 100, 9, { complete: true }));
    expect(pieces.covers("t", { from: 10, to: 20 }, 2)).toBe(true);
    expect(pieces.covers("t", { from: 10, to: 20 }, 12)).toBe(false);
  });

  test("are drawn next to each other: the nearest level where it is, others in the gaps", () => {
    const pieces = new ChunkCache<string>(1000);
    pieces.add("t", piece(0, 1000, 9));
    pieces.add("t", piece(200, 400, 3));
    const parts = pieces.partsIn("t", { from: 100, to: 500 }, 3).sort((a, b) => a.from - b.from);
    expect(parts.map(({ from, to, chunk: { level } }) => [from, to, level])).toEqual([
      [100, 200, 9], [200, 400, 3], [400, 500, 9],
    ]);
  });

  test("in which there is hardly anything answer, while others are drawn in their place", () => {
    const pieces = new ChunkCache<string>(1000);
    pieces.add("t", piece(0, 1000, 9));
    pieces.add("t", piece(200, 400, 3, { sparse: true }));
    expect(pieces.covers("t", { from: 250, to: 300 }, 3)).toBe(true);
    expect(pieces.partsIn("t", { from: 250, to: 300 }, 3).map((part) => part.chunk.level)).toEqual([9]);
  });

  test("that are stale are drawn, but do not answer", () => {
    const pieces = new ChunkCache<string>(1000);
    pieces.add("t", piece(0, 100, 5));
    pieces.markStale();
    expect(pieces.covers("t", { from: 10, to: 90 }, 5)).toBe(false);
    expect(pieces.partsIn("t", { from: 10, to: 90 }, 5).length).toBe(1);
    pieces.add("t", piece(0, 100, 5, { data: "new" }));
    expect(pieces.partsIn("t", { from: 10, to: 90 }, 5).map((part) => part.chunk.data)).toEqual(["new"]);
  });

  test("stay within their bytes: what was used longest ago goes first", () => {
    const pieces = new ChunkCache<string>(35);
    pieces.add("a", piece(0, 10, 1));
    pieces.add("b", piece(0, 10, 1));
    pieces.add("c", piece(0, 10, 1));
    pieces.partsIn("a", { from: 0, to: 10 }, 1);
    pieces.add("d", piece(0, 10, 1));
    expect(pieces.bytes).toBeLessThanOrEqual(35);
    expect(["a", "b", "c", "d"].filter((track) => pieces.covers(track, { from: 0, to: 10 }, 1))).toEqual(["a", "c", "d"]);
  });
});
