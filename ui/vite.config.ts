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
    outDir: here("../src/assent/server/page"),
    emptyOutDir: true,
    assetsDir: "",
    // Nothing inline: the page's policy allows no inline script and no data: script.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    target: "es2022",
  },
  test: {
    environment: "jsdom",
    include: ["test/**/*.test.{ts,tsx}"],
    coverage: { include: ["src/**"], exclude: ["src/main.tsx"], reporter: ["text", "json-summary"] },
  },
});
