// @vitest-environment jsdom
import { render } from "preact";
import { expect, test } from "vitest";

import { ResourceView } from "./resource_view";

function draw(payload: object): HTMLElement {
  const root = document.createElement("main");
  render(<ResourceView resource={{ data: payload, error: null, loading: false }}>{() => <p>figures</p>}</ResourceView>, root);
  return root;
}

test("the damage behind a payload precedes it", () => {
  const root = draw({ damage: ["Shares are withheld.", "tables/kernels/0.parquet cannot be read."] });
  expect([...root.querySelectorAll(".resource > *")].map((part) => part.textContent)).toEqual([
    "Shares are withheld.tables/kernels/0.parquet cannot be read.",
    "figures",
  ]);
  expect(root.querySelector("[role=alert]")?.getAttribute("data-testid")).toBe("damage");
});

test.each([{}, { damage: [] }, { damage: null }])("a payload without damage has no notice: %o", (payload) => {
  expect(draw(payload).querySelector("[role=alert]")).toBeNull();
});
