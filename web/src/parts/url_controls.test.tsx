// @vitest-environment jsdom
import { render } from "preact";
import { act } from "preact/test-utils";
import { expect, test, vi } from "vitest";

vi.stubGlobal("matchMedia", () => ({ matches: false, addEventListener: vi.fn() }));

const { CommunicationDefinition, useCommunication } = await import("./url_controls");

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
