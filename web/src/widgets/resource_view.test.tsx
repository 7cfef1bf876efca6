// @vitest-environment jsdom
import { render } from "preact";
import { expect, test } from "vitest";

import { ResourceView } from "./resource_view";

function draw(payload: object, isSecond = false, headline = ""): HTMLElement {
  const root = document.createElement("main");
  const resource = { data: payload, error: null, loading: false };
  render(<ResourceView resource={resource} isSecond={isSecond} headlineOf={() => headline}>{() => <p>figures</p>}</ResourceView>, root);
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

test("doubts are told once on a page, a single one without a list", () => {
  const payload = { doubts: ["5 of 9 events have no possible time."] };
  expect(draw(payload).querySelector("p[role=alert]")?.textContent).toBe(payload.doubts[0]);
  expect(draw(payload, true).querySelector("[role=alert]")).toBeNull();
  expect(draw(payload, false, `No verdict: ${payload.doubts[0]}`).querySelector("[role=alert]")).toBeNull();
});

test.each([{}, { damage: [] }, { damage: null }])("a payload without damage has no notice: %o", (payload) => {
  expect(draw(payload).querySelector("[role=alert]")).toBeNull();
});
