// @vitest-environment jsdom
import { render } from "preact";
import { act } from "preact/test-utils";
import { expect, test } from "vitest";

import { Panel } from "./panel";

test("a definition is behind a button next to the title, until it is asked for", async () => {
  const root = document.createElement("div");
  await act(() => { render(<Panel title="Kernels" definition="shares are of `device` time">rows</Panel>, root); });
  const button = root.querySelector<HTMLButtonElement>("h2 + button");
  const text = root.querySelector<HTMLElement>(`[id="${button?.getAttribute("aria-controls") ?? ""}"]`);
  expect([button?.getAttribute("aria-label"), text?.textContent]).toEqual(["Definition: Kernels", "Shares are of device time."]);
  const state = () => [button?.getAttribute("aria-expanded"), text?.hidden];
  expect(state()).toEqual(["false", true]);
  await act(() => { button?.click(); });
  expect(state()).toEqual(["true", false]);
  await act(() => { button?.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape" })); });
  expect(state()).toEqual(["false", true]);
});

test("a panel without a definition has no button", async () => {
  const root = document.createElement("div");
  await act(() => { render(<Panel title="Kernels">rows</Panel>, root); });
  expect(root.querySelector("button")).toBeNull();
});
