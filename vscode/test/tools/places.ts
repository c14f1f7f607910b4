// Workspaces for tests: real directories, made as the vectors describe them, and gone afterwards.

import { spawnSync } from "node:child_process";
import {
  chmodSync,
  linkSync,
  lutimesSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  realpathSync,
  rmSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { buildSync } from "esbuild";
import { afterAll } from "vitest";

const made: string[] = [];

afterAll(() => {
  for (const path of made.splice(0)) {
    rmSync(path, { recursive: true, force: true });
  }
});

export function temporary(): string {
  const path = realpathSync(mkdtempSync(join(tmpdir(), "byleave-test-")));
  made.push(path);
  return path;
}

export interface Entry {
  readonly path: string;
  readonly kind: "file" | "directory" | "link" | "fifo" | "hard";
  readonly content?: string;
  readonly mode?: number;
  readonly target?: string;
}

/** A workspace with these files; a text is a file, with what is not there made. */
export function workspaceWith(files: Readonly<Record<string, string>>): string {
  const root = join(temporary(), "workspace");
  mkdirSync(root);
  for (const [path, content] of Object.entries(files)) {
    mkdirSync(dirname(join(root, path)), { recursive: true });
    writeFileSync(join(root, path), content);
  }
  return root;
}

export function makeFifo(path: string): void {
  spawnSync("mkfifo", [path]);
}

export function workspaceOf(entries: readonly Entry[], mtime: number): string {
  const root = workspaceWith({});
  const umask = process.umask(0o022);
  for (const { content = "", kind, mode = 0o644, path, target = "" } of entries) {
    const whole = join(root, path);
    mkdirSync(dirname(whole), { recursive: true });
    if (kind === "file") {
      writeFileSync(whole, Buffer.from(content, "base64"));
      chmodSync(whole, mode);
    } else if (kind === "directory") {
      mkdirSync(whole);
    } else if (kind === "link") {
      symlinkSync(target, whole);
    } else if (kind === "fifo") {
      makeFifo(whole);
    } else {
      writeFileSync(join(root, target), Buffer.from(content, "base64"));
      linkSync(join(root, target), whole);
    }
  }
  process.umask(umask);
  settle(root, mtime);
  return root;
}

function settle(directory: string, mtime: number): void {
  for (const entry of readdirSync(directory, { withFileTypes: true })) {
    if (entry.isDirectory()) {
      settle(join(directory, entry.name), mtime);
    } else {
      lutimesSync(join(directory, entry.name), mtime, mtime);
    }
  }
  utimesSync(directory, mtime, mtime);
}

let worker: string | undefined;

/** The searching thread, bundled as the extension does it. */
export function scanWorker(): string {
  if (worker === undefined) {
    worker = join(temporary(), "scan_worker.cjs");
    const entryPoints = [join(import.meta.dirname, "../../src/tools/scan_worker.ts")];
    buildSync({ entryPoints, outfile: worker, bundle: true, platform: "node", format: "cjs" });
  }
  return worker;
}
