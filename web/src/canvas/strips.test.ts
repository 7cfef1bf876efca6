import { describe, expect, test } from "vitest";

import { addValue, emptyCurve } from "./curves";
import { SOLID, HATCHED, Rectangles } from "./rectangles";
import { Strips } from "./strips";

type Drawn = [x0: number, x1: number, strip: number];

function gathered(fill: (rectangles: Rectangles) => void, ratio = 1) {
  const rectangles = new Rectangles();
  fill(rectangles);
  const strips = new Strips();
  strips.resize(20 * ratio, ratio);
  const drawn: Drawn[] = [];
  strips.collect(rectangles, {
    add: (x0, _y0, x1) => { drawn.push([x0, x1, -1]); },
    addStrip: (right, _y0, _y1, strip) => { drawn.push([0, right, strip]); },
    addCurve: (_curve, right, strip) => { drawn.push([0, right, strip]); },
  });
  return { strips, drawn };
}

describe("strips", () => {
  test("stand for a row of many rectangles, a texel for each column of pixels", () => {
    const { strips, drawn } = gathered((rectangles) => {
      for (let at = 0; at < 8; at++) rectangles.add(2 * at, 5, 2 * at + 1, 9, 0xff000000 + at + 1);
    });
    expect(drawn).toEqual([[0, 15, 0]]);
    const row = [...strips.texels.subarray(0, 20)].map((texel) => texel & 0xffffff);
    expect(row).toEqual([1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6, 0, 7, 0, 8, 0, 0, 0, 0, 0]);
  });

  test("leave few rectangles, and those of other rows, as they are and in their order", () => {
    const { strips, drawn } = gathered((rectangles) => {
      rectangles.add(0, 0, 20, 30, 1);
      for (let at = 0; at < 6; at++) rectangles.add(at, 5, at + 1, 9, 2);
      rectangles.add(3, 40, 4, 50, 3);
    });
    expect(drawn.map(([, , strip]) => strip)).toEqual([-1, 0, -1]);
    expect(strips.count).toBe(1);
  });

  test("hold the heights of curves", () => {
    const { strips, drawn } = gathered((rectangles) => {
      const curve = emptyCurve(20, { top: 0, bottom: 36, clipTop: 0, clipBottom: 50, colour: 1 });
      addValue(curve, 2, 4, { mean: 0.5, min: 0, max: 1 });
      addValue(curve, 3, 3.2, { mean: 1, min: 1, max: 1 });
      rectangles.curves.push(curve);
    });
    expect(drawn).toEqual([[0, 20, 0]]);
    expect([...strips.texels.subarray(1, 5)].map((texel) => [texel & 255, (texel >> 8) & 255, (texel >> 16) & 255])).toEqual([
      [0, 0, 0], [128, 0, 255], [191, 0, 255], [0, 0, 0],
    ]);
  });

  test("are not made of what overlaps", () => {
    const { drawn } = gathered((rectangles) => {
      for (let at = 0; at < 8; at++) rectangles.add(0, 5, 10, 9, 2);
    });
    expect(drawn.length).toBe(8);
  });

  test("keep what is thinner than a pixel, on dense screens as well", () => {
    const { strips } = gathered((rectangles) => {
      for (let at = 0; at < 6; at++) rectangles.add(3 * at, 5, 3 * at + 0.2, 9, 0x800000ff);
    }, 2);
    const texels = [...strips.texels.subarray(0, 40)].filter((texel) => texel !== 0);
    expect(texels).toEqual(Array.from({ length: 6 }, () => 0x80000080)); // premultiplied
  });

  test("leave out what is hatched: it is drawn by itself", () => {
    const { drawn } = gathered((rectangles) => {
      for (let at = 0; at < 8; at++) rectangles.add(2 * at, 5, 2 * at + 2, 9, 0xff0000ff, at === 3 ? HATCHED : SOLID);
    });
    expect(drawn).toEqual([[6, 8, -1], [0, 16, 0]]);
  });
});
