// @vitest-environment jsdom
import { render } from "preact";
import { beforeEach, describe, expect, test, vi } from "vitest";

import type { JsonObject, OpenApi } from "../state/schema";
import type { FigurePanel } from "../charts/figure_panel";

vi.stubGlobal("matchMedia", () => ({ matches: false, addEventListener: vi.fn() }));
vi.stubGlobal("ResizeObserver", class {
  observe = vi.fn();
  unobserve = vi.fn();
  disconnect = vi.fn();
});
vi.mock("../charts/figure_panel", () => ({ FigurePanel: ({ block }: Parameters<typeof FigurePanel>[0]) => <h2>{block.title}</h2> }));

const { describeViews } = await import("../state/schema");
const { PayloadView, columnsOf, curve } = await import("./payload");

const DOCUMENT: OpenApi = {
  paths: {
    "/api/jobs": { get: { summary: "List jobs", parameters: [], responses: {} } },
    "/api/views/gpu-hours": {
      get: {
        summary: "GPU hours",
        description: "Show the hours.",
        parameters: [{ name: "run", required: true, schema: {} }, { name: "top", required: false, schema: {} }],
        responses: { 200: { content: { "application/json": { schema: { $ref: "#/components/schemas/Hours" } } } } },
      },
    },
  },
  components: {
    schemas: {
      Hours: {
        properties: {
          busy_ns: { title: "busy time", "x-unit": "ns", description: "Of all GPUs." },
          rows: { title: "nodes", items: { $ref: "#/components/schemas/Node" } },
          step_ns: { title: "step", "x-unit": "ns", anyOf: [{ $ref: "#/components/schemas/Statistics" }, {}] },
          by_node: { title: "by node", additionalProperties: { $ref: "#/components/schemas/Node" } },
        },
      },
      Node: { properties: { share_ratio: { title: "share", "x-unit": "ratio", "x-display": "bar" }, rank: { title: "rank", "x-display": "identifier" } } },
      Statistics: { properties: { mean: { title: "mean", "x-unit": "inherited" }, count: { title: "count", "x-unit": "count" } } },
    },
  },
};
const [view] = describeViews(DOCUMENT);
if (view === undefined) throw new Error("the document has a view");
const type = view.payload;

const text = (value: JsonObject): string => {
  render(<PayloadView value={value} type={type} />, document.body);
  return document.body.textContent;
};

beforeEach(() => { render(null, document.body); });

test("views are described by the document of the server", () => {
  expect(describeViews(DOCUMENT)).toHaveLength(1);
  expect([view.name, view.title, view.description]).toEqual(["gpu-hours", "GPU hours", "The hours."]);
  expect(view.options.map(({ name }) => name)).toEqual(["top"]);
});

describe("labels of fields", () => {
  test("come from the schema, or from the name", () => {
    expect(type.label("busy_ns")).toEqual({ title: "busy time", unit: "ns", description: "Of all GPUs." });
    expect(type.label("not_there")).toEqual({ title: "not there", unit: "none" });
  });

  test("of numbers that inherit their unit have that of the field around them", () => {
    const statistics = type.child("step_ns");
    expect(statistics.label("mean", "ns").unit).toBe("ns");
    expect(statistics.label("count", "ns").unit).toBe("count");
  });
});

describe("a payload", () => {
  test("shows scalars, missing values and sentences", () => {
    const shown = text({ busy_ns: 2_500_000, idle: null, missing: "no hours: run `stepscope run`", share_of: "all hours", quality: [] });
    for (const part of ["Busy time2.5 ms", "Of all GPUs.", "Idlen/a", "No hours: run stepscope run.", "Shares are of all hours."]) {
      expect(shown).toContain(part);
    }
  });

  test("shows objects by their shape", () => {
    const shown = text({ step_ns: { mean: 1_500, count: 1_500 }, rows: [], deep: { curve: Array.from({ length: 9 }, (_, index) => index) } });
    expect(shown).toContain("mean1.5 µs");
    expect(shown).toContain("count1,500");
    expect(shown).toContain("Curve");
    expect(shown).not.toContain("Nodes");
  });

  test("shows fields of any shape", () => {
    const shown = text({ quality: 3, range: { from: 1 }, notes: "one", share_of: ["a"], missing: 7, mixed: [null, { a: 1 }], pairs: [[1, { b: 2 }]] });
    for (const part of ["Quality3", "from1", "Notesone", "Share ofa", "Missing7", "Mixed", '1, {"b":2}']) expect(shown).toContain(part);
  });

  test("shows fields that only some rows have", () => {
    const shown = text({ rows: [{ a: 1 }, { a: 2, later: 3 }] });
    expect(shown).toContain("later");
  });

  test("executes nothing", () => {
    expect(text({ name: "<img src=x>" })).toContain("<img src=x>");
    expect(document.querySelector("img")).toBeNull();
  });
});

test("columns have units, bars and identifiers", () => {
  const columns = columnsOf([{ share_ratio: 0.5, rank: 1200, notes: [], other: { a: 1 } }], type.child("rows"), "none");
  expect(columns.map(({ name, numeric }) => [name, numeric])).toEqual([["share_ratio", true], ["rank", false]]);
  expect(type.child("by_node").isMap).toBe(true);
});

describe("a curve", () => {
  const y = Array.from({ length: 9 }, (_, index) => index * index);
  const x = y.map((_, index) => 10 * index);

  test("is over the times of the object, over buckets, or over positions", () => {
    expect(curve("mean", { mean: y, curve_after_ns: x }, type, "ns").series[0]).toMatchObject({ x, y });
    expect(curve("mean", { mean: y, bucket_ns: 10 }, type, "ns").series[0]?.x).toEqual(x);
    expect(curve("mean", { mean: y }, type, "ns").series[0]?.x.at(-1)).toBe(8);
  });
});
