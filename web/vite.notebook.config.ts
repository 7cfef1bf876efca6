import { defineConfig } from "vite";

// The widget of notebooks: one module with its style sheet, which the Python API gives to anywidget.
export default defineConfig({
  define: { "process.env.NODE_ENV": '"production"' },
  build: {
    outDir: "../src/stepscope/assets/web",
    emptyOutDir: false,
    lib: {
      entry: "src/notebook/timeline_widget.ts",
      formats: ["es"],
      fileName: () => "timeline_widget.js",
      cssFileName: "timeline_widget",
    },
  },
});
