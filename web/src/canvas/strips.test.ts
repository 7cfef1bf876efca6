import { describe, expect, test } from "vitest";

import { addValue, emptyCurve } from "./curves";
import { SOLID, HATCHED, Rectangles } from "./rectangles";
import { Strips } from "./strips";

type Drawn = [x0: number, x1: number, strip: number];

function collect(fill: (rectangles: Rectangles) => void, ratio = 1) {
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
  test("replace a row of many rectangles by one texel per pixel column", () => {
    const { strips, drawn } = collect((rectangles) => {
      for (let index = 0; index < 8; index++) rectangles.add(2 * index, 5, 2 * index + 1, 9, 0xff000000 + index + 1);
    });
    expect(drawn).toEqual([[0, 15, 0]]);
    const row = [...strips.texels.subarray(0, 20)].map((texel) => texel & 0xffffff);
    expect(row).toEqual([1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6, 0, 7, 0, 8, 0, 0, 0, 0, 0]);
  });

  test("keep short rows of rectangles in their order", () => {
    const { strips, drawn } = collect((rectangles) => {
      rectangles.add(0, 0, 20, 30, 1);
      for (let index = 0; index < 6; index++) rectangles.add(index, 5, index + 1, 9, 2);
      rectangles.add(3, 40, 4, 50, 3);
    });
    expect(drawn.map(([, , strip]) => strip)).toEqual([-1, 0, -1]);
    expect(strips.count).toBe(1);
  });

  test("store the heights of curves", () => {
    const { strips, drawn } = collect((rectangles) => {
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

  test("do not replace overlapping rectangles", () => {
    const { drawn } = collect((rectangles) => {
      for (let index = 0; index < 8; index++) rectangles.add(0, 5, 10, 9, 2);
    });
    expect(drawn.length).toBe(8);
  });

  test("keep rectangles thinner than a pixel, also on high-density displays", () => {
    const { strips } = collect((rectangles) => {
      for (let index = 0; index < 6; index++) rectangles.add(3 * index, 5, 3 * index + 0.2, 9, 0x800000ff);
    }, 2);
    const texels = [...strips.texels.subarray(0, 40)].filter((texel) => texel !== 0);
    expect(texels).toEqual(Array.from({ length: 6 }, () => 0x80000080)); // premultiplied
  });

  test("exclude hatched rectangles", () => {
    const { drawn } = collect((rectangles) => {
      for (let index = 0; index < 8; index++) rectangles.add(2 * index, 5, 2 * index + 2, 9, 0xff0000ff, index === 3 ? HATCHED : SOLID);
    });
    expect(drawn).toEqual([[6, 8, -1], [0, 16, 0]]);
  });
});
