import { describe, expect, test } from "vitest";

import { ChunkCache, type Chunk } from "./chunk_cache";

function chunk(from: number, to: number, level: number, overrides: Partial<Chunk<string>> = {}): Chunk<string> {
  return { from, to, level, complete: false, sparse: false, stale: false, bytes: 10, data: `${from}-${to}@${level}`, ...overrides };
}

describe("chunks", () => {
  test("cover a window at their level or one finer", () => {
    const cache = new ChunkCache<string>(1000);
    cache.add("t", chunk(0, 100, 5));
    expect(cache.covers("t", { from: 10, to: 90 }, 5)).toBe(true);
    expect(cache.covers("t", { from: 10, to: 90 }, 6)).toBe(true);
    expect(cache.covers("t", { from: 10, to: 90 }, 4)).toBe(false);
    expect(cache.covers("t", { from: 10, to: 190 }, 5)).toBe(false);
    expect(cache.covers("u", { from: 10, to: 90 }, 5)).toBe(false);
  });

  test("with every event cover all finer levels", () => {
    const cache = new ChunkCache<string>(1000);
    cache.add("t", chunk(0, 100, 9, { complete: true }));
    expect(cache.covers("t", { from: 10, to: 20 }, 2)).toBe(true);
    expect(cache.covers("t", { from: 10, to: 20 }, 12)).toBe(false);
  });

  test("are drawn side by side: the nearest level if it is loaded, other levels in its gaps", () => {
    const cache = new ChunkCache<string>(1000);
    cache.add("t", chunk(0, 1000, 9));
    cache.add("t", chunk(200, 400, 3));
    const parts = cache.partsIn("t", { from: 100, to: 500 }, 3).sort((a, b) => a.from - b.from);
    expect(parts.map(({ from, to, chunk: { level } }) => [from, to, level])).toEqual([
      [100, 200, 9], [200, 400, 3], [400, 500, 9],
    ]);
  });

  test("with few events cover a window, and denser ones are drawn instead", () => {
    const cache = new ChunkCache<string>(1000);
    cache.add("t", chunk(0, 1000, 9));
    cache.add("t", chunk(200, 400, 3, { sparse: true }));
    expect(cache.covers("t", { from: 250, to: 300 }, 3)).toBe(true);
    expect(cache.partsIn("t", { from: 250, to: 300 }, 3).map((part) => part.chunk.level)).toEqual([9]);
  });

  test("that are stale are drawn, but do not cover a window", () => {
    const cache = new ChunkCache<string>(1000);
    cache.add("t", chunk(0, 100, 5));
    cache.markStale();
    expect(cache.covers("t", { from: 10, to: 90 }, 5)).toBe(false);
    expect(cache.partsIn("t", { from: 10, to: 90 }, 5).length).toBe(1);
    cache.add("t", chunk(0, 100, 5, { data: "new" }));
    expect(cache.partsIn("t", { from: 10, to: 90 }, 5).map((part) => part.chunk.data)).toEqual(["new"]);
  });

  test("stay within the byte limit by evicting the least recently used", () => {
    const cache = new ChunkCache<string>(35);
    cache.add("a", chunk(0, 10, 1));
    cache.add("b", chunk(0, 10, 1));
    cache.add("c", chunk(0, 10, 1));
    cache.partsIn("a", { from: 0, to: 10 }, 1);
    cache.add("d", chunk(0, 10, 1));
    expect(cache.bytes).toBeLessThanOrEqual(35);
    expect(["a", "b", "c", "d"].filter((track) => cache.covers(track, { from: 0, to: 10 }, 1))).toEqual(["a", "c", "d"]);
  });
});
