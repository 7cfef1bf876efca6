// @vitest-environment jsdom
import { expect, test } from "vitest";

import { parseMarkdown } from "./markdown";

test("rule pages have headings, paragraphs, lists and code", () => {
  const page = "# Rule\n\nOne line\nand another.\n\n- first\n  goes on\n- second\n\n```\nx = 1\n\ny = 2\n```\n1. one\n2. two";
  expect(parseMarkdown(page)).toEqual([
    { kind: "heading", text: "Rule" },
    { kind: "paragraph", text: "One line and another." },
    { kind: "list", items: ["first goes on", "second"] },
    { kind: "code", text: "x = 1\n\ny = 2" },
    { kind: "list", items: ["one", "two"] },
  ]);
});

test("an unclosed code block is shown", () => {
  expect(parseMarkdown("```\nx")).toEqual([{ kind: "code", text: "x" }]);
});
