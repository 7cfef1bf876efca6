// @vitest-environment jsdom
import { render } from "preact";
import { act } from "preact/test-utils";
import { expect, test, vi } from "vitest";

vi.stubGlobal("matchMedia", () => ({ matches: false, addEventListener: vi.fn() }));

const { CommunicationDefinition, useCommunication, useMinute } = await import("./url_controls");

function Screen() {
  const [communication, control] = useCommunication();
  return <>{control}<output>{communication}</output><CommunicationDefinition text="kernels of NCCL" /></>;
}

test("the definition of communication is in the address, unless it is the default", async () => {
  const container = document.createElement("div");
  await act(() => { render(<Screen />, container); });
  const select = container.querySelector("select");
  if (select === null) throw new Error("no control");
  const choose = async (value: string): Promise<void> => {
    select.value = value;
    await act(() => { select.dispatchEvent(new Event("change", { bubbles: true })); });
  };
  expect([...select.options].map(({ value }) => value)).toEqual(["wide", "narrow"]);
  expect(container.querySelector("output")?.textContent).toBe("wide");
  await choose("narrow");
  expect(window.location.search).toBe("?communication=narrow");
  expect(container.querySelector("output")?.textContent).toBe("narrow");
  await choose("wide");
  expect(window.location.search).toBe("");
  expect(container.querySelector(".definition")?.textContent).toBe("Communication: kernels of NCCL.");
});

function Minute() {
  const [time_ms, control] = useMinute("created_from", "From");
  return <>{control}<output>{String(time_ms)}</output></>;
}

test("a minute is in the address as UTC, and in the control in the reader's time zone", async () => {
  const container = document.createElement("div");
  await act(() => { render(<Minute />, container); });
  const input = container.querySelector("input");
  if (input === null) throw new Error("no control");
  const choose = async (value: string): Promise<void> => {
    input.value = value;
    await act(() => { input.dispatchEvent(new Event("change", { bubbles: true })); });
  };
  const local = new Date(2026, 10, 22, 5, 7);
  await choose("2026-11-22T05:07");
  expect(new URLSearchParams(window.location.search).get("created_from")).toBe(`${local.toISOString().slice(0, 16)}Z`);
  expect(container.querySelector("output")?.textContent).toBe(String(local.getTime()));
  expect(input.value).toBe("2026-11-22T05:07");
  await choose("");
  expect(window.location.search).toBe("");
  expect(container.querySelector("output")?.textContent).toBe("null");
});
