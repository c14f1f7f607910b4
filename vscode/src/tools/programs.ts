// Where programs come from: fixed directories, never the workspace, never the inherited PATH. A command's name is looked up
// in directories that belong to root, and in the newest Node of nvm. The environment a command gets is written from
// nothing; no variable of the editor reaches it, so neither do its secrets. Also: whom a command runs as, where the client
// itself is root.

import { accessSync, constants, readdirSync, readFileSync, realpathSync, statSync } from "node:fs";
import { homedir } from "node:os";
import { dirname, join } from "node:path";
import { CommandNotAllowed, ToolFailure } from "./errors.js";
import { repr, TABLES } from "./words.js";

export const SYSTEM_DIRECTORIES = ["/usr/local/bin", "/usr/bin", "/bin"];
const NAME = /^[A-Za-z0-9][A-Za-z0-9._+-]{0,63}$/;
// What stands behind a name when the name itself is not installed.
const SPELLINGS: Readonly<Record<string, readonly string[]>> = {
  python: ["python", "python3"],
  python3: ["python", "python3"],
};

/** A user that is not root. */
export interface Runner {
  readonly uid: number;
  readonly gid: number;
}

/** Who owns the workspace, when we are root and they are not; else undefined: commands run as we do. */
export function runnerFor(workspace: string): Runner | undefined {
  const found = process.geteuid?.() === 0 ? statSync(workspace, { throwIfNoEntry: false }) : undefined;
  if (found === undefined || found.uid === 0) {
    return undefined;
  }
  if ((found.mode & 0o100) === 0) {
    throw new ToolFailure(
      `The owner of ${repr(workspace)} may not enter it, so commands cannot be run there.`,
      "Give the right back: chmod u+rwx",
    );
  }
  const gid = groupOf(found.uid) ?? found.gid;
  const runner = { uid: found.uid, gid: gid === 0 ? 65534 : gid };
  return reaches(runner, workspace) ? runner : undefined;
}

function groupOf(uid: number): number | undefined {
  const line = readFileSync("/etc/passwd", "utf8")
    .split("\n")
    .find((one) => one.split(":")[2] === String(uid));
  const gid = Number(line?.split(":")[3]);
  return Number.isInteger(gid) && line !== undefined ? gid : undefined;
}

/** Whether this user could open what lies at `path`, as far as modes say. */
function reaches({ uid, gid }: Runner, path: string): boolean {
  for (let at = path; ; at = dirname(at)) {
    const { gid: group, mode, uid: owner } = statSync(at);
    const bit = owner === uid ? 0o100 : group === gid ? 0o010 : 0o001;
    if ((mode & bit) === 0) {
      return false;
    }
    if (at === dirname(at)) {
      return true;
    }
  }
}

/** Directories with programs outside the system's own that belong to root or to us, and are writable by no one else. */
export function toolchains(workspace: string): string[] {
  const nodes = join(homedir(), ".nvm", "versions", "node");
  const runner = runnerFor(workspace);
  try {
    const newest =
      readdirSync(nodes)
        .sort((one, other) => compare(numbers(one), numbers(other)))
        .at(-1) ?? "";
    const prefix = realpathSync(join(nodes, newest));
    const { mode, uid } = statSync(join(prefix, "bin"));
    const ours = (uid === 0 || uid === process.geteuid?.()) && (mode & 0o022) === 0;
    const usable =
      ours && !`${prefix}/`.startsWith(`${workspace}/`) && (!runner || reaches(runner, join(prefix, "bin")));
    return usable ? [prefix] : [];
  } catch {
    return []; // there are none
  }
}

function numbers(name: string): number[] {
  return (name.match(/\d+/g) ?? []).map(Number);
}

function compare(one: readonly number[], other: readonly number[]): number {
  const at = one.findIndex((number, index) => number !== other[index]);
  return at < 0 ? one.length - other.length : (one[at] as number) - (other[at] ?? -1);
}

/** The PATH of a command: toolchains, then the system's directories. */
export function searchPath(workspace: string): string[] {
  return [...toolchains(workspace).map((prefix) => join(prefix, "bin")), ...SYSTEM_DIRECTORIES];
}

/** The absolute path of a program, or an error that says it is not installed. */
export function findProgram(name: string, workspace: string): string {
  if (!NAME.test(name)) {
    throw new CommandNotAllowed(`Command not allowed: ${repr(name)} is not a plain name.`);
  }
  for (const spelling of SPELLINGS[name] ?? [name]) {
    for (const directory of searchPath(workspace)) {
      const candidate = join(directory, spelling);
      if (isProgram(candidate)) {
        return candidate;
      }
    }
  }
  const packages: Readonly<Record<string, string>> = TABLES.packages;
  throw new ToolFailure(
    `${name} is not installed on this machine.`,
    `Install the package ${repr(packages[name] ?? name)}.`,
  );
}

function isProgram(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return statSync(path).isFile();
  } catch {
    return false;
  }
}

/** Everything a command's environment holds. */
export function cleanEnvironment(workspace: string, home: string): Record<string, string> {
  const values: Readonly<Record<string, string>> = {
    "{path}": searchPath(workspace).join(":"),
    "{home}": home,
    "{workspace}": dirname(workspace),
  };
  const filled = Object.entries(TABLES.environment).map(([name, value]) => [
    name,
    value.replace(/\{(?:path|home|workspace)\}/g, (word) => values[word] as string),
  ]);
  return Object.fromEntries(filled);
}

/** The prefix that sets limits from inside; empty where prlimit is missing. */
export function limitArguments(workspace: string, names: readonly string[]): string[] {
  const limits: Readonly<Record<string, number>> = TABLES.limits;
  try {
    return [findProgram("prlimit", workspace), ...names.map((name) => `--${name}=${limits[name]}`), "--"];
  } catch {
    return [];
  }
}
