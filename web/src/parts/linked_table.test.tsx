// @vitest-environment jsdom
import { render } from "preact";
import { expect, test, vi } from "vitest";

vi.stubGlobal("matchMedia", () => ({ matches: false, addEventListener: vi.fn() }));
vi.stubGlobal("ResizeObserver", class {
  observe = vi.fn();
  unobserve = vi.fn();
  disconnect = vi.fn();
});

const { LinkedTable } = await import("./linked_table");
const { column } = await import("../widgets/fields");

test("a table states its row count and its footnote", () => {
  const container = document.createElement("div");
  const rows = [{ name: "a" }, { name: "b" }];
  render(<LinkedTable title="Rows" rows={rows} fields={[column<{ name: string }>("name", "name", "none", (row) => row.name)]} footnote="top rows of 2,310" />, container);
  expect(container.querySelector(".counts")?.textContent).toBe("2 rows; top rows of 2,310");
});
