import { describe, expect, test } from "vitest";

import { COLOUR_COUNT, colourIndex, css, kindColourIndex, withOpacity, luminance, pack, sliceColours } from "./colours";

describe("colours of names", () => {
  test("are equal for names that are equal except for numbers", () => {
    expect(colourIndex("aten::mm")).toBe(colourIndex("aten::mm"));
    expect(colourIndex("ProfilerStep#12")).toBe(colourIndex("ProfilerStep#9"));
    expect(colourIndex("")).toBeLessThan(COLOUR_COUNT);
    expect(colourIndex("12")).toBeLessThan(COLOUR_COUNT);
  });

  test("are spread over the palette", () => {
    const names = Array.from({ length: 2_000 }, (_, index) => `kernel_${index}_fwd`);
    expect(new Set(names.map(colourIndex)).size).toBe(COLOUR_COUNT);
  });

  test("read only the start of a long name", () => {
    expect(colourIndex(`${"x".repeat(300)}a`)).toBe(colourIndex("x".repeat(1_000_000)));
  });

  test("have enough contrast with their text", () => {
    for (const dark of [false, true]) {
      const { fill, text } = sliceColours(dark);
      fill.forEach((colour, index) => {
        const background = luminance(colour & 255, (colour >> 8) & 255, (colour >> 16) & 255);
        const foreground = text[index] === "#ffffff" ? 1 : 0;
        const contrast = (Math.max(background, foreground) + 0.05) / (Math.min(background, foreground) + 0.05);
        expect(contrast).toBeGreaterThan(4.5);
      });
    }
  });
});

test("kinds of time have colours of their own, unknown ones that of what is not explained", () => {
  const kinds = [
    "computation", "communication", "waiting for a late rank", "launching work", "waiting for the device",
    "copies", "fetching batches", "Python", "not explained", "forward", "backward", "optimizer", "operators",
    "compilation", "checkpoints", "evaluation", "starting", "annotations", "modules",
  ];
  const { fill } = sliceColours(false);
  expect(new Set(kinds.map((kind) => fill[kindColourIndex(kind)])).size).toBe(kinds.length);
  expect(kindColourIndex("new kind")).toBe(kindColourIndex("not explained"));
});

test("packed colours keep their components", () => {
  expect(css(pack(1, 2, 3))).toBe("rgba(1, 2, 3, 1)");
  expect(css(withOpacity(pack(200, 100, 50), 0))).toBe("rgba(200, 100, 50, 0)");
});
