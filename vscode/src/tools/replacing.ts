// What a write meets on the disk: whether a file may be replaced, whether it is what was shown, one writer after the other,
// and a directory's names brought to the disk. Compared on open descriptors, never by name. Nothing here writes.

import { createHash } from "node:crypto";
import { accessSync, type BigIntStats, closeSync, constants, fsyncSync, lstatSync, openSync } from "node:fs";
import { codeOf, DriftedError, osError, PathValidationError, ToolFailure } from "./errors.js";
import { readAsync } from "./io.js";
import { O_DIRECTORY, type Opened } from "./PathValidator.js";
import { unlessCalledOff } from "./turns.js";
import { repr } from "./words.js";

const CHUNK = 1 << 20;

/** Where to write: a pinned directory, a name in it, and what is there now. */
export interface Target {
  readonly directory: Opened;
  readonly name: string;
  readonly real: string;
  readonly old: { readonly fd: number; readonly info: BigIntStats } | undefined;
}

export function drifted(path: string, what = "nothing was run"): DriftedError {
  const hint = "Ask again: what it holds now is then shown.";
  return new DriftedError(`${repr(path)} changed after it was shown; ${what}.`, hint);
}

/** Refuse what no write may replace: anything but a regular file, one that is read-only, one with other names. */
export function refuseIrreplaceable(opened: Opened, info: BigIntStats, path: string): void {
  if (info.isDirectory()) {
    throw osError("EISDIR");
  }
  if (!info.isFile()) {
    throw osError("ENXIO");
  }
  // Renaming over a file asks nothing of the file itself, so its own permissions are asked here.
  if ((info.mode & 0o200n) === 0n || !mayWrite(opened.base)) {
    throw new ToolFailure(`No permission to write ${repr(path)}: the file is read-only.`);
  }
  if (info.nlink > 1n) {
    throw new PathValidationError(
      `${repr(path)} has another name, which may lie outside the workspace, so it is not written.`,
      "Write to a new file; a hard link would be torn from its other names.",
    );
  }
}

function mayWrite(name: string): boolean {
  try {
    accessSync(name, constants.W_OK);
    return true;
  } catch {
    return false;
  }
}

/** Who writes which file now, in this program. */
const WRITING = new Map<string, Promise<void>>();

/** Do it when nobody else in this program writes the same file. Rejects when it is called off before that. */
export async function alone<T>(key: string, signal: AbortSignal, work: () => Promise<T>): Promise<T> {
  for (let busy = WRITING.get(key); busy !== undefined; busy = WRITING.get(key)) {
    await unlessCalledOff(busy, signal);
  }
  let done = () => {};
  WRITING.set(key, new Promise((resolve) => (done = resolve)));
  try {
    return await work();
  } finally {
    WRITING.delete(key);
    done();
  }
}

/** SHA-256 of the first bytes of a file. */
export async function digestOf(fd: number, size: number): Promise<string> {
  const digest = createHash("sha256");
  const buffer = Buffer.allocUnsafe(Math.min(CHUNK, size + 1));
  for (let at = 0; at < size; ) {
    const count = await readAsync(fd, buffer, 0, Math.min(buffer.length, size - at), at);
    if (count === 0) {
      break;
    }
    digest.update(buffer.subarray(0, count));
    at += count;
  }
  return digest.digest("hex");
}

/** Whether the disk took the directory's names; true also where a file system has nothing to say about it. */
export function syncDirectory(directory: Opened): boolean {
  try {
    const fd = openSync(directory.base, constants.O_RDONLY | O_DIRECTORY);
    try {
      fsyncSync(fd);
    } finally {
      closeSync(fd);
    }
    return true;
  } catch (error) {
    return codeOf(error) === "EINVAL";
  }
}

/** A path's directory and last name. */
export function cut(path: string): [parent: string, name: string] {
  const at = path.lastIndexOf("/");
  return at < 0 ? [".", path] : [path.slice(0, at), path.slice(at + 1)];
}

/** Do what may fail without harm. */
export function quietly(act: () => void): void {
  try {
    act();
  } catch {
    // what cannot be done here is no reason against what was done
  }
}

function now(target: Target): BigIntStats | undefined {
  return lstatSync(`${target.directory.base}/${target.name}`, { bigint: true, throwIfNoEntry: false });
}

/** Whether the name still stands for that file, or still for none. */
export function isSame(target: Target): boolean {
  const [found, old] = [now(target), target.old?.info];
  return found === undefined ? old === undefined : old !== undefined && found.ino === old.ino && found.dev === old.dev;
}

/** Whether what was copied is still all there is under that name. */
export function isUnchanged(target: Target): boolean {
  const [found, old] = [now(target), target.old?.info];
  return isSame(target) && found?.size === old?.size && found?.mtimeNs === old?.mtimeNs;
}
