// @vitest-environment jsdom
import { render } from "preact";
import { expect, test } from "vitest";

import type { ContractTerms } from "../../api/views";
import { Differences } from "./differences";

test("terms that differ are listed with both values, unknown ones are not", () => {
  const terms = [
    { group: "hardware", differences: [{ name: "GPUs", base: "V100", other: "A100", standing: "different" }] },
    { group: "batch", differences: [{ name: "batch size", base: "32", other: null, standing: "unknown" }] },
  ] as unknown as ContractTerms[];
  render(<Differences terms={terms} />, document.body);
  expect([...document.querySelectorAll("li")].map((item) => item.textContent)).toEqual(["GPUs V100 → A100"]);
  render(<Differences terms={[]} />, document.body);
  expect(document.querySelector("ul")).toBeNull();
});
