import { expect, test } from "vitest";

import { shown } from "./table";

test("cells say when they are missing", () => {
  expect(shown(null, 2)).toBe("n/a");
  expect(shown(1.005, 2)).toBe("1.01");
  expect(shown("<b>", null)).toBe("<b>");
});
