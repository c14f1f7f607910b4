// Builds the chat for the editor's webview, into the extension: one script and one sheet with names that stay, because the
// webview's policy lets in exactly one script.
import { fileURLToPath } from "node:url";
import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));

export default defineConfig({
  plugins: [react()],
  base: "./",
  publicDir: false,
  resolve: { alias: { "@protocol": here("../schema/types.ts") } },
  build: {
    outDir: here("../vscode/dist/webview"),
    emptyOutDir: true,
    assetsDir: "",
    assetsInlineLimit: 0,
    modulePreload: false,
    chunkSizeWarningLimit: 1000,
    cssCodeSplit: false,
    rolldownOptions: {
      input: { webview: here("src/webview.tsx") },
      output: { codeSplitting: false, entryFileNames: "webview.js", assetFileNames: "webview[extname]" },
    },
    target: "es2022",
  },
});
