// The real engine of this repository, started as the extension starts it, with a state directory of its own. One for each
// test file is enough where tests do not end it: a start takes half a second.

import { mkdirSync, mkdtempSync, realpathSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll } from "vitest";
import type { Fields, Log } from "../../src/editor/log.js";
import { Engine, type EngineError, type EnginePorts } from "../../src/engine/engine.js";
import type { EngineProgram } from "../../src/engine/program.js";

const PYTHON = fileURLToPath(new URL("../../../.venv/bin/python", import.meta.url));

export const PROGRAM: EngineProgram = {
  command: PYTHON,
  args: ["-m", "byleave.cli.main"],
  version: "0.1.0",
  from: "path",
};

export class Lines implements Log {
  readonly lines: string[] = [];
  debug = (message: string, fields?: Fields) => this.#put("debug", message, fields);
  info = (message: string, fields?: Fields) => this.#put("info", message, fields);
  warn = (message: string, fields?: Fields) => this.#put("warn", message, fields);
  error = (message: string, fields?: Fields) => this.#put("error", message, fields);

  #put(level: string, message: string, fields?: Fields): void {
    this.lines.push(`${level} ${message}${fields === undefined ? "" : ` ${JSON.stringify(fields)}`}`);
  }
}

export interface RealEngine {
  readonly engine: Engine;
  /** A temporary directory: `home` in it is the engine's state. */
  readonly root: string;
  readonly log: Lines;
  readonly gaveUp: Error[];
  readonly lostFolder: EngineError[];
  /** An empty directory in it. */
  folder(name: string): string;
}

const made: RealEngine[] = [];

afterAll(async () => {
  for (const { engine, root } of made.splice(0)) {
    await engine.dispose();
    rmSync(root, { recursive: true, force: true, maxRetries: 3 });
  }
});

/** An engine, not started yet. It is ended after the last test of the file. */
export function realEngine(ports: Partial<EnginePorts> = {}): RealEngine {
  const root = realpathSync(mkdtempSync(join(tmpdir(), "byleave-real-")));
  const log = new Lines();
  const gaveUp: Error[] = [];
  const lostFolder: EngineError[] = [];
  const folder = (name: string) => {
    mkdirSync(join(root, name));
    return join(root, name);
  };
  const engine = new Engine({
    program: async () => PROGRAM,
    directory: folder("runs"),
    env: { ...process.env, BYLEAVE_HOME: join(root, "home") },
    folders: () => [],
    log,
    gaveUp: (problem) => gaveUp.push(problem),
    lostFolder: (problem) => lostFolder.push(problem),
    firstPauseMs: 5,
    ...ports,
  });
  const real = { engine, root, log, gaveUp, lostFolder, folder };
  made.push(real);
  return real;
}
