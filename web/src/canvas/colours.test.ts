import { describe, expect, test } from "vitest";

import { COLOUR_COUNT, colourIndex, css, withOpacity, luminance, pack, sliceColours } from "./colours";

describe("colours of names", () => {
  test("are the same for the same name, and for names that differ by their number", () => {
    expect(colourIndex("aten::mm")).toBe(colourIndex("aten::mm"));
    expect(colourIndex("ProfilerStep#12")).toBe(colourIndex("ProfilerStep#9"));
    expect(colourIndex("")).toBeLessThan(COLOUR_COUNT);
    expect(colourIndex("12")).toBeLessThan(COLOUR_COUNT);
  });

  test("are spread over the palette", () => {
    const names = Array.from({ length: 2_000 }, (_, at) => `kernel_${at}_fwd`);
    expect(new Set(names.map(colourIndex)).size).toBe(COLOUR_COUNT);
  });

  test("do not read a megabyte", () => {
    expect(colourIndex(`${"x".repeat(300)}a`)).toBe(colourIndex("x".repeat(1_000_000)));
  });

  test("bear text that can be read", () => {
    for (const dark of [false, true]) {
      const { fill, text } = sliceColours(dark);
      fill.forEach((colour, at) => {
        const back = luminance(colour & 255, (colour >> 8) & 255, (colour >> 16) & 255);
        const front = text[at] === "#ffffff" ? 1 : 0;
        const contrast = (Math.max(back, front) + 0.05) / (Math.min(back, front) + 0.05);
        expect(contrast).toBeGreaterThan(4.5);
      });
    }
  });
});

test("packed colours keep what they are made of", () => {
  expect(css(pack(1, 2, 3))).toBe("rgba(1, 2, 3, 1)");
  expect(css(withOpacity(pack(200, 100, 50), 0))).toBe("rgba(200, 100, 50, 0)");
});
