// Machines for tests of the engine's program: directories with small programs in them, and gone afterwards.

import { chmodSync, mkdirSync, mkdtempSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterAll } from "vitest";
import { EngineProblem, type Surroundings } from "../../src/engine/program.js";

const made: string[] = [];

afterAll(() => {
  for (const path of made.splice(0)) rmSync(path, { recursive: true, force: true });
});

export interface Machine extends Surroundings {
  readonly root: string;
  readonly said: string[];
  readonly logged: string[];
}

/** A machine with an open folder `ws`, an empty PATH and no well-known places. */
export function machine(given: Partial<Surroundings> = {}): Machine {
  const root = realpathSync(mkdtempSync(join(tmpdir(), "byleave-engine-")));
  made.push(root);
  mkdirSync(join(root, "ws"));
  const said: string[] = [];
  const logged: string[] = [];
  return {
    root,
    said,
    logged,
    setting: null,
    env: { PATH: "", HOME: join(root, "home") },
    folders: [join(root, "ws")],
    storage: join(root, "storage"),
    packed: join(root, "packed"),
    places: [],
    progress: (message) => said.push(message),
    log: (message, fields) => logged.push(`${message} ${JSON.stringify(fields)}`),
    ...given,
  };
}

export function script(path: string, body: string, shebang = "#!/bin/sh"): string {
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, `${shebang}\n${body}\n`);
  chmodSync(path, 0o755);
  return path;
}

/** A byleave that leaves a mark beside itself when it runs. */
export function fake(path: string, answer: object = { version: "0.1.0", engine: 1 }): string {
  return script(path, `: > '${path}.ran'\n[ "$*" = "version --json" ] && echo '${JSON.stringify(answer)}'`);
}

export async function problem(work: Promise<unknown>): Promise<EngineProblem> {
  const error = await work.then(
    (value) => new Error(`no problem: ${JSON.stringify(value)}`),
    (reason: unknown) => reason,
  );
  if (error instanceof EngineProblem) return error;
  throw error;
}
