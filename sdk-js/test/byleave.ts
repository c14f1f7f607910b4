// Starts a real Byleave once for all tests, and ends it.
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import type { TestProject } from "vitest/node";

export interface Place {
  serverUrl: string;
  projectId: string;
  emptyProjectId: string;
  token: string;
  expiredToken: string;
  personToken: string;
  workspace: string;
}

declare module "vitest" {
  export interface ProvidedContext {
    place: Place;
  }
}

export default async function setup(project: TestProject) {
  const root = fileURLToPath(new URL("../..", import.meta.url));
  const directory = mkdtempSync(join(tmpdir(), "byleave-sdk-"));
  const python = spawn(join(root, ".venv/bin/python"), ["-m", "harness.standing", directory], {
    cwd: root,
    env: { ...process.env, PYTHONPATH: join(root, "tests") },
  });
  let said = "";
  python.stderr.on("data", (piece) => {
    said += piece;
  });
  const ended = new Promise<void>((resolve) => python.once("exit", () => resolve()));
  const lines = createInterface({ input: python.stdout });
  const place = await new Promise<Place>((resolve, reject) => {
    lines.on("line", (line) => line.startsWith("{") && resolve(JSON.parse(line) as Place));
    ended.then(() => reject(new Error(`Byleave ended before it was up.\n${said}`)));
  });
  project.provide("place", place);
  return async () => {
    python.stdin.end();
    await ended;
    rmSync(directory, { recursive: true, force: true });
  };
}
