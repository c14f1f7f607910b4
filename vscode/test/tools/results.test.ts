// The results of the Python client, made by running it: this one must give the same.

import { createHash } from "node:crypto";
import { existsSync, lstatSync, readFileSync, readlinkSync } from "node:fs";
import { dirname, join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import type { Params } from "../../src/gate/index.js";
import { ByleaveError, ExecutionTimeout } from "../../src/tools/errors.js";
import { DEFAULT_SETTINGS } from "../../src/tools/ports.js";
import { Workspace } from "../../src/tools/Workspace.js";
import { FakeMemory } from "./fakes.js";
import { type Entry, scanWorker, temporary, workspaceOf } from "./places.js";

interface Case {
  readonly tool: string;
  readonly params: Params;
  readonly bound: Readonly<Record<string, string>>;
  readonly look: readonly string[];
  /** Whether what it changes is kept. */
  readonly record?: boolean;
  readonly expected: Readonly<Record<string, unknown>>;
}

interface Vectors {
  readonly limits: { readonly max_file_bytes: number; readonly max_output_bytes: number; readonly mtime: number };
  readonly setup: readonly Entry[];
  readonly cases: readonly Case[];
}

const vectors = JSON.parse(readFileSync(join(import.meta.dirname, "../vectors/results.json"), "utf8")) as Vectors;
const ISOLATION = ["isolated", "backend", "fs", "net", "pidns", "protected", "created"];
const settings = {
  ...DEFAULT_SETTINGS,
  maxFileBytes: vectors.limits.max_file_bytes,
  maxOutputBytes: vectors.limits.max_output_bytes,
};
const READS = new Set(["read_file", "list_directory", "search_files"]);

let shared: string | undefined;

function place(tool: string): string {
  if (!READS.has(tool)) {
    return workspaceOf(vectors.setup, vectors.limits.mtime);
  }
  shared ??= workspaceOf(vectors.setup, vectors.limits.mtime);
  return shared;
}

function plain(value: unknown, root: string): unknown {
  return JSON.parse(JSON.stringify(value).replaceAll(root, "{workspace}"));
}

function normal(result: object, root: string): unknown {
  if (!("isolation" in result)) {
    return plain(result, root);
  }
  const isolation = result.isolation as Record<string, unknown>;
  const kept = Object.fromEntries(ISOLATION.map((key) => [key, isolation[key]]));
  return plain({ ...result, isolation: kept, execution_time: 0 }, root);
}

function state(path: string): unknown {
  if (!existsSync(dirname(path)) || !lstatSync(dirname(path)).isDirectory()) {
    return null;
  }
  const info = lstatSync(path, { throwIfNoEntry: false });
  if (info?.isSymbolicLink()) {
    return { link: readlinkSync(path) };
  }
  if (!info?.isFile()) {
    return null;
  }
  return { sha256: createHash("sha256").update(readFileSync(path)).digest("hex"), mode: info.mode & 0o7777 };
}

async function outcome(workspace: Workspace, { bound, params, record, tool }: Case, root: string): Promise<object> {
  try {
    const recordAs = record ? "exec_1" : undefined;
    return { result: normal(await workspace.run(tool, params, { bound, recordAs }), root) };
  } catch (error) {
    if (!(error instanceof ByleaveError)) {
      throw error;
    }
    const partial = error instanceof ExecutionTimeout && error.partial ? normal(error.partial, root) : null;
    const told = { error: error.message, hint: error.hint, error_type: error.errorType, kind: error.name, partial };
    return plain(told, root) as object;
  }
}

function title({ bound, params, tool }: Case): string {
  const said = Object.entries(params).map(([name, value]) => `${name}=${JSON.stringify(value).slice(0, 60)}`);
  return `${tool} ${said.join(" ")}${Object.keys(bound).length > 0 ? ` bound ${JSON.stringify(bound).slice(0, 40)}` : ""}`;
}

describe.each([
  ["with ripgrep", undefined],
  ["by the scan", false],
] as const)("The results agree with the Python client's, searching %s", (_, ripgrep) => {
  const open: Workspace[] = [];
  afterAll(() => {
    for (const workspace of open) {
      workspace.close();
    }
  });
  const cases = vectors.cases.filter(({ tool }) => ripgrep === undefined || tool === "search_files");

  it.each(cases.map((one) => [title(one), one] as const))("%s", async (_name, one) => {
    const root = place(one.tool);
    const options = ripgrep === undefined ? { settings } : { settings, ripgrep, scanWorker: scanWorker() };
    const undo = { directory: join(temporary(), "undo"), memory: new FakeMemory() };
    const workspace = new Workspace(root, one.record ? { ...options, undo } : options);
    open.push(workspace);
    const { after, ...expected } = one.expected;
    const found = await outcome(workspace, one, root);
    // Two engines say in different words what is wrong with an expression.
    const words =
      ripgrep === false && String(expected.error).startsWith("The pattern cannot") ? { error: expect.any(String) } : {};
    expect(found).toEqual({ ...expected, ...words });
    expect(Object.fromEntries(one.look.map((path) => [path, state(join(root, path))]))).toEqual(after);
  });
});
