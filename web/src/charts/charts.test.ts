// @vitest-environment jsdom
import { describe, expect, test } from "vitest";

import type { Histogram, Pie } from "../api/report";
import { palette } from "../base/palette";
import { tooltipContent } from "./common";
import { describeCounts, histogramLabel, histogramOption } from "./histogram";
import { pieLabel, pieOption } from "./pie";

const EVIL = "<img src=x onerror=alert(1)>";
const PIE: Pie = {
  kind: "pie",
  title: "Where time went",
  share_of: "the job's duration",
  slices: [{ name: EVIL, share_ratio: 0.75 }, { name: "rest", share_ratio: 0.25 }],
};
const HISTOGRAM: Histogram = {
  kind: "histogram",
  title: "Steps",
  axis: "duration",
  unit: "s",
  digits: 2,
  counted: "steps",
  edges: [0, 1, 2],
  series: [{ name: "rank 0", counts: [3, 4], below_count: 0, above_count: 5 }],
  marks: [{ name: "p50", value: 1.2 }],
  more: null,
};

type Formatter = (item: unknown) => HTMLElement;

function formatter(option: { tooltip?: unknown }): Formatter {
  return (option.tooltip as { formatter: Formatter }).formatter;
}

describe("tooltips", () => {
  test("show names as text", () => {
    const box = tooltipContent(EVIL, [EVIL]);
    expect(box.querySelector("img")).toBeNull();
    expect(box.textContent).toBe(EVIL + EVIL);
  });

  test("state the denominator of a share", () => {
    const shown = formatter(pieOption(PIE, palette(true)))({ name: EVIL });
    expect(shown.textContent).toBe(`${EVIL}75.00% of the job's duration`);
  });

  test("show the bin under the pointer, and the last bin at the right edge", () => {
    const show = formatter(histogramOption(HISTOGRAM, palette(false)));
    expect(show([{ seriesName: "rank 0", dataIndex: 2 }]).textContent).toBe(
      "1.00 to 2.00 srank 0: 4 steps",
    );
  });
});

describe("accessible labels", () => {
  test("contain the values", () => {
    expect(pieLabel(PIE)).toContain("rest 25.0%");
    expect(histogramLabel(HISTOGRAM)).toContain("rank 0: 12 steps, 5 above the bins; p50 1.20");
  });

  test("count the values outside of the bins", () => {
    expect(describeCounts({ name: "", counts: [1], below_count: 2, above_count: 0 }, "steps")).toBe(
      "3 steps, 2 below the bins",
    );
  });
});

test("slices differ by pattern as well as by colour", () => {
  expect(pieOption(PIE, palette(false)).aria).toMatchObject({ decal: { show: true } });
});
