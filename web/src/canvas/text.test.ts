import { describe, expect, test } from "vitest";

import { TextMeasurer, singleLine, displayText } from "./text";

describe("names", () => {
  test("are one line without control characters, at any length", () => {
    expect(singleLine("a\u0000b\nc\u202ed")).toBe("a·b·c·d");
    expect(singleLine("x".repeat(1_000_000)).length).toBe(200);
    expect(singleLine("<img src=x onerror=alert(1)>")).toBe("<img src=x onerror=alert(1)>");
  });

  test("state their length if they are truncated", () => {
    expect(displayText("short")).toBe("short");
    expect(displayText("x".repeat(1_000_000), 10)).toBe("xxxxxxxxxx… (1,000,000 characters)");
  });
});

describe("labels", () => {
  let measureCount = 0;
  const measurer = new TextMeasurer((text) => {
    measureCount += 1;
    return 6 * text.length;
  });

  test("are truncated to the width, and omitted if nothing useful fits", () => {
    expect(measurer.truncate("aten::addmm", 100)).toBe("aten::addmm");
    const truncated = measurer.truncate("aten::addmm", 40);
    expect(truncated.endsWith("…")).toBe(true);
    expect(6 * truncated.length).toBeLessThanOrEqual(40);
    expect(measurer.truncate("aten::addmm", 14)).toBe("");
    expect(measurer.truncate("aten::addmm", -5)).toBe("");
  });

  test("are measured once", () => {
    measureCount = 0;
    for (let extraPx = 0; extraPx < 10; extraPx++) measurer.truncate("aten::convolution", 60 + extraPx);
    expect(measureCount).toBe(1);
  });
});
