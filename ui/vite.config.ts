// Builds the page into the Python package, flat and with hashed names: the server serves it from memory by name.
/// <reference types="vitest/config" />
import { fileURLToPath } from "node:url";
import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));

export default defineConfig({
  plugins: [react()],
  base: "/page/",
  resolve: { alias: { "@protocol": here("../schema/types.ts") } },
  build: {
    outDir: here("../src/byleave/server/page"),
    emptyOutDir: true,
    assetsDir: "",
    // Nothing inline: the page's policy allows no inline script and no data: script.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    // One sheet with a name that stays: whoever embeds the chat links it, and every part is styled when it comes.
    cssCodeSplit: false,
    rolldownOptions: {
      input: { index: here("index.html"), embed: here("src/embed.tsx") },
      // What embed.js exports is what it is for.
      preserveEntrySignatures: "exports-only",
      output: {
        entryFileNames: (chunk) => (chunk.name === "embed" ? "embed.js" : "[name]-[hash].js"),
        assetFileNames: (asset) => (asset.names[0]?.endsWith(".css") ? "byleave.css" : "[name]-[hash][extname]"),
      },
    },
    target: "es2022",
  },
  test: {
    environment: "jsdom",
    include: ["test/**/*.test.{ts,tsx}"],
    setupFiles: ["test/quick_styles.ts", "test/patience.ts"],
    // One browser for each worker instead of one for each file: that alone was half of the time. Tests clean up after
    // themselves, and a module that one of them replaces is loaded by no other.
    pool: "threads",
    isolate: false,
    maxWorkers: 2,
    // A test that is given up leaves React in the middle of its work, and every later one of the worker fails too.
    testTimeout: 60_000,
    coverage: {
      include: ["src/**"],
      exclude: ["src/main.tsx", "src/**/*.css"],
      reporter: ["text", "json-summary"],
      thresholds: { lines: 92, branches: 90 },
    },
  },
});
