import { readFileSync } from "node:fs";

import { Linter } from "eslint";
import { describe, expect, test } from "vitest";
import tseslint from "typescript-eslint";

import language from "./language.js";

// Not spelled out: this file is checked as well.
const [ARCHAIC_WORD] = JSON.parse(readFileSync(new URL("../../tools/language.json", import.meta.url), "utf8")).archaic_words;

/** Messages of the rules for a source text. */
function lint(code) {
  const messages = new Linter().verify(
    code,
    {
      files: ["**/*.tsx"],
      languageOptions: { parser: tseslint.parser, parserOptions: { ecmaFeatures: { jsx: true } } },
      plugins: { language },
      rules: { "language/names": "error", "language/words": "error", "language/comments": "error" },
    },
    "code.tsx",
  );
  return messages.map(({ line, ruleId, message }) => `${line} ${ruleId}: ${message}`);
}

describe("names", () => {
  test.each([
    "const found = 1;",
    "let [a, found] = pair;",
    "const { key: found } = row;",
    "const { ...found } = row;",
    "function find({ found = 1 }) {}",
    "rows.map((found) => found);",
    "type Callback = (found: number) => void;",
    "for (const found of rows) {}",
    "class Row { found = 1; }",
    'import { rows as found } from "./rows";',
    "try {} catch (found) {}",
  ])("are reported in %s", (code) => {
    expect(lint(code)).toEqual(["1 language/names: Name the thing instead of `found`."]);
  });

  test("of bounds state the direction", () => {
    expect(lint("const MOST_ROWS = 5;")).toEqual([
      "1 language/names: Name the bound MAX_…, MIN_… or …_LIMIT instead of `MOST_ROWS`.",
    ]);
    expect(lint("const MAX_ROWS = 5;")).toEqual([]);
  });

  test("of payload fields may be read", () => {
    expect(lint("const { found: rows } = payload; const count = payload.found;")).toEqual([]);
  });
});

describe("archaic words", () => {
  test.each([
    ["comments", `// It works ${ARCHAIC_WORD}.`],
    ["strings", `const text = "It works ${ARCHAIC_WORD}.";`],
    ["templates", `const text = \`It works ${ARCHAIC_WORD} \${verb}.\`;`],
    ["JSX text", `const text = <p>It works ${ARCHAIC_WORD}.</p>;`],
    ["JSX attributes", `const text = <p title="It works ${ARCHAIC_WORD}." />;`],
  ])("are reported in %s", (_, code) => {
    expect(lint(code)).toEqual([`1 language/words: Replace the archaic word "${ARCHAIC_WORD}".`]);
  });

  test("are matched as whole words", () => {
    expect(lint(`// It works ${ARCHAIC_WORD}ly.`)).toEqual([]);
  });
});

test("documentation opens with a noun or a verb", () => {
  expect(lint("/** Whether a row is open. */\nlet isOpen = true;")).toEqual([
    '1 language/comments: Open the comment with a noun or a verb instead of "Whether".',
  ]);
  expect(lint("// Rows of a table.\n// When one is open, its details are shown.\nlet isOpen = true;")).toEqual([]);
});
