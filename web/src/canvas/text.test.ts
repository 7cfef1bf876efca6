import { describe, expect, test } from "vitest";

import { TextMeasurer, singleLine, displayText } from "./text";

describe("names", () => {
  test("are one line without controls, however long they are", () => {
    expect(singleLine("a\u0000b\nc\u202ed")).toBe("a·b·c·d");
    expect(singleLine("x".repeat(1_000_000)).length).toBe(200);
    expect(singleLine("<img src=x onerror=alert(1)>")).toBe("<img src=x onerror=alert(1)>");
  });

  test("that are cut on the page say how long they are", () => {
    expect(displayText("short")).toBe("short");
    expect(displayText("x".repeat(1_000_000), 10)).toBe("xxxxxxxxxx… (1,000,000 characters)");
  });
});

describe("labels", () => {
  let measured = 0;
  const widths = new TextMeasurer((text) => {
    measured += 1;
    return 6 * text.length;
  });

  test("are cut to the room they have, and left out where that says nothing", () => {
    expect(widths.truncate("aten::addmm", 100)).toBe("aten::addmm");
    const cut = widths.truncate("aten::addmm", 40);
    expect(cut.endsWith("…")).toBe(true);
    expect(6 * cut.length).toBeLessThanOrEqual(40);
    expect(widths.truncate("aten::addmm", 14)).toBe("");
    expect(widths.truncate("aten::addmm", -5)).toBe("");
  });

  test("are measured once", () => {
    measured = 0;
    for (let turn = 0; turn < 10; turn++) widths.truncate("aten::convolution", 60 + turn);
    expect(measured).toBe(1);
  });
});
