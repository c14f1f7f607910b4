// Unit tests of everything but the extension's beginning, which needs an editor. Most drive the real engine of this
// repository; the editor is a small stand-in.
import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";

export default defineConfig({
  resolve: {
    alias: {
      "@protocol": fileURLToPath(new URL("../schema/types.ts", import.meta.url)),
      vscode: fileURLToPath(new URL("test/editor/fake_vscode.ts", import.meta.url)),
    },
  },
  test: {
    testTimeout: 30_000,
    hookTimeout: 30_000,
    include: ["test/**/*.test.ts"],
    // Tests wait for other processes most of the time.
    maxWorkers: 4,
    coverage: {
      include: ["src/**/*.ts"],
      exclude: ["src/extension.ts"],
      reporter: ["text", "json-summary"],
      thresholds: {
        lines: 90,
        "src/tools/**": { lines: 100, functions: 100 },
        "src/{editor,engine,host,webview}/**": { lines: 95, branches: 88 },
      },
    },
  },
});
