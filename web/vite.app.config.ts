import { defineConfig } from "vite";

// The web UI: one page, a script per screen. `npm run dev` uses the API of a server on port 8420.
export default defineConfig({
  define: { "process.env.NODE_ENV": '"production"' },
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  server: { proxy: { "/api": "http://127.0.0.1:8420" } },
  build: {
    outDir: "../src/stepscope/assets/web/app",
    emptyOutDir: true,
    modulePreload: { polyfill: false }, // it is an inline script, which the content security policy forbids
    license: { fileName: "licenses.md" }, // of bundled libraries
  },
});
