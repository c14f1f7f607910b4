// Tests run the real libraries against a real Byleave: a server and a client on a workspace (tests/harness/standing.py).
import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    testTimeout: 30_000,
    hookTimeout: 60_000,
    include: ["test/**/*.test.ts"],
    globalSetup: "test/byleave.ts",
    coverage: {
      include: ["src/**/*.ts"],
      exclude: ["src/protocol.ts"],
      reporter: ["text", "json-summary"],
      thresholds: { lines: 95, branches: 88 },
    },
  },
});
