import tseslint from "typescript-eslint";

import language from "./eslint/language.js";

export default tseslint.config(
  { ignores: ["node_modules", "src/api"] },
  {
    plugins: { language },
    rules: { "language/names": "error", "language/words": "error" },
  },
  ...tseslint.configs.strictTypeChecked,
  {
    languageOptions: { parserOptions: { projectService: true } },
    rules: {
      "@typescript-eslint/restrict-template-expressions": ["error", { allowNumber: true }],
    },
  },
  {
    files: ["src/**/*.{ts,tsx}"],
    ignores: ["**/*.test.ts"],
    rules: { "max-lines": ["error", 500], "max-lines-per-function": ["error", 80] },
  },
  { files: ["**/*.{js,cjs}"], ...tseslint.configs.disableTypeChecked },
);
