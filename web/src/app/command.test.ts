import { expect, test } from "vitest";

import { commandOf } from "./command";

const fullRange = { from: null, to: null };

test("the command of a screen names its run, view and range", () => {
  expect(commandOf({ location: "/runs/a", view: "kernels", base: null, range: fullRange })).toBe("stepscope show /runs/a kernels");
  expect(commandOf({ location: "/my runs/it's", view: undefined, base: null, range: { from: "5", to: "70" } }))
    .toBe("stepscope show '/my runs/it'\\''s' overview --from 5ns --to 70ns");
  expect(commandOf({ location: "/runs/b", view: undefined, base: "a", range: fullRange })).toBe("stepscope compare a /runs/b");
});
