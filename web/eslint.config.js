import tseslint from "typescript-eslint";

export default tseslint.config(
  { ignores: ["node_modules", "eslint.config.js", ".dependency-cruiser.cjs"] },
  ...tseslint.configs.strictTypeChecked,
  {
    languageOptions: { parserOptions: { projectService: true } },
    rules: {
      "@typescript-eslint/restrict-template-expressions": ["error", { allowNumber: true }],
    },
  },
);
