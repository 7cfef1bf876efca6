import { expect, test } from "vitest";

import { csv } from "./save";

test("fields are quoted if necessary, and missing values are empty", () => {
  expect(csv(["name", "ns"], [['a "b", c', 1.5], [null, 2], ["two\nlines", true]])).toBe(
    'name,ns\r\n"a ""b"", c",1.5\r\n,2\r\n"two\nlines",true\r\n',
  );
});

test("formulas of spreadsheets are escaped", () => {
  expect(csv(["x"], [["=cmd()"], ["@sum"], [-3]])).toBe("x\r\n'=cmd()\r\n'@sum\r\n-3\r\n");
});
