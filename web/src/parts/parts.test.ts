// @vitest-environment jsdom
import { beforeEach, describe, expect, test, vi } from "vitest";

import type { AnnotationsView, RankSteps } from "../api/views";

vi.stubGlobal("matchMedia", () => ({ matches: false, addEventListener: vi.fn() }));

const { parseOrder, formatOrder } = await import("./linked_table");
const { useOption, useText, useTexts } = await import("./url_options");
const { rowKey } = await import("./row_key");
const { omittedRows } = await import("./url_controls");
const { intervalOfStep, timelineAt } = await import("./timeline_link");
const { annotationNames } = await import("./annotation_names");
const { linkSourceLines } = await import("./source_lines");
const { navigate } = await import("../state/url");

beforeEach(() => { navigate("/kernels?run=a", true); });

const search = (): string => window.location.search;

describe("options in the URL", () => {
  test("are omitted if they have the default value", () => {
    const [value, setValue] = useOption("by", ["name", "shape"]);
    expect(value).toBe("name");
    setValue("shape");
    expect(search()).toBe("?run=a&by=shape");
    expect(useOption("by", ["name", "shape"])[0]).toBe("shape");
    setValue("name");
    expect(search()).toBe("?run=a");
  });

  test("fall back to the default if the value is unknown", () => {
    navigate("/kernels?run=a&by=evil", true);
    expect(useOption("by", ["name", "shape"])[0]).toBe("name");
  });

  test("may be free text or a list of texts", () => {
    useText("filter")[1]("a&b=c");
    expect(useText("filter")[0]).toBe("a&b=c");
    useTexts("histogram")[1](["one, two", "<b>"]);
    expect(useTexts("histogram")[0]).toEqual(["one, two", "<b>"]);
    useTexts("histogram")[1]([]);
    useText("filter")[1]("");
    expect(search()).toBe("?run=a");
  });

  test("encode an order as a field with a sign", () => {
    for (const text of ["total_ns", "-total_ns"]) {
      const order = parseOrder(text);
      expect(order === null ? null : formatOrder(order)).toBe(text);
    }
    expect(parseOrder("")).toBeNull();
  });
});

describe("row keys", () => {
  test("are the name if it is short", () => {
    expect(rowKey("aten::mm", null, "[2, 3]")).toBe("aten::mm  [2, 3]");
  });

  test("are short for long names, and differ for different names", () => {
    const long = "A".repeat(1_000_000);
    expect(rowKey(long).length).toBeLessThan(80);
    expect(rowKey(`${long}1`)).not.toBe(rowKey(`${long}2`));
  });
});

test("a note states how many rows were not requested", () => {
  expect(omittedRows(500, 2310)).toBe("top rows of 2,310");
  expect(omittedRows(7, 7)).toBeNull();
});

describe("links to the timeline", () => {
  const rankSteps = (rank: string, numbers: number[], after_ns: number[]): RankSteps => ({
    group: rank, title: rank, rank, numbers, after_ns, duration_ns: numbers.map(() => 10), outliers: [], left_out_count: 0,
  });
  const ALL = [rankSteps("rank 0", [1, 2], [100, 200]), rankSteps("rank 1", [2, 3], [250, 350])];

  test("point to a step on its rank, or on the first rank that has it", () => {
    expect(intervalOfStep(ALL, 2, "rank 1")).toEqual([250, 260]);
    expect(intervalOfStep(ALL, 3, "rank 0")).toEqual([350, 360]);
    expect(intervalOfStep(ALL, 9, "rank 0")).toBeNull();
  });

  test("add a margin, and keep the run", () => {
    expect(timelineAt(100, 200)).toBe("/timeline?run=a&t0=50&t1=250");
    expect(timelineAt(0, 10)).toBe("/timeline?run=a&t0=0&t1=15");
  });
});

test("annotation names are distinct", () => {
  const source = (names: string[]) => ({ annotations: names.map((name) => ({ name })) });
  const payload = { sources: [source(["a", "b"]), source(["b", "c"])] } as unknown as AnnotationsView;
  expect(annotationNames(payload)).toEqual(["a", "b", "c"]);
});

describe("lines of code in a sentence", () => {
  const links = (text: string): string[] => {
    const parts = linkSourceLines(text);
    return Array.isArray(parts) ? (parts as (string | { props: { text: string } })[]).flatMap((part) => (typeof part === "string" ? [] : [part.props.text])) : [];
  };
  test.each([
    ["train.py:12 takes 5%", ["train.py:12"]],
    ["/data/übung.py:3 and lib/a.py:4", ["/data/übung.py:3", "lib/a.py:4"]],
    ["line 3 of train.py", []],
  ])("%s", (text, expected) => { expect(links(text)).toEqual(expected); });
});
