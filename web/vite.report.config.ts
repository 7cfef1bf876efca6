import { defineConfig } from "vite";

// The report is one file that opens from disk: a single script and a single style sheet.
export default defineConfig({
  define: { "process.env.NODE_ENV": '"production"' },
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    outDir: "../src/stepscope/assets/web",
    emptyOutDir: false,
    license: { fileName: "report.licenses.md" }, // of bundled libraries
    lib: {
      entry: "src/report/main.tsx",
      name: "stepscopeReport",
      formats: ["iife"],
      fileName: () => "report.js",
      cssFileName: "report",
    },
  },
});
