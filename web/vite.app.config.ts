import { defineConfig } from "vite";

// The web UI: one page, a script per screen. `npm run dev` draws what a server on port 8420 says.
export default defineConfig({
  define: { "process.env.NODE_ENV": '"production"' },
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  server: { proxy: { "/api": "http://127.0.0.1:8420" } },
  build: {
    outDir: "../src/stepscope/assets/web/app",
    emptyOutDir: true,
    modulePreload: { polyfill: false }, // it is a script in the page, which the page's policy forbids
    license: { fileName: "licenses.md" }, // of the libraries that are in the scripts
  },
});
