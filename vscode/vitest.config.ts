// Unit tests of everything that needs no editor. The vectors of the Python side run here as they run there.
import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";

export default defineConfig({
  resolve: {
    alias: {
      "@protocol": fileURLToPath(new URL("../schema/types.ts", import.meta.url)),
      // The editor is not here: a small stand-in is.
      vscode: fileURLToPath(new URL("test/editor/fake_vscode.ts", import.meta.url)),
    },
  },
  test: {
    testTimeout: 30_000,
    include: ["test/**/*.test.ts"],
    coverage: {
      include: ["src/**/*.ts"],
      exclude: ["src/extension.ts"],
      reporter: ["text", "json-summary"],
      // What was reached, less what only root on Linux reaches.
      thresholds: { "src/tools/**": { lines: 95, branches: 91 } },
    },
  },
});
