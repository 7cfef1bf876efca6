import { expect, test } from "vitest";

import { formatCell } from "./table";

test("missing cells are marked", () => {
  expect(formatCell(null, 2)).toBe("n/a");
  expect(formatCell(1.005, 2)).toBe("1.01");
  expect(formatCell("<b>", null)).toBe("<b>");
});
