// What one path is at one moment: its kind, mode and content, found without following a link. A change is a pair of them,
// before and after. What could not be seen is said: nothing here takes "not seen" for "not there". It writes nothing.

import { type BigIntStats, closeSync, lstatSync, readlinkSync } from "node:fs";
import { isCode, osError } from "./errors.js";
import { O_DIRECTORY, O_PATH, type Opened, type PathValidator } from "./PathValidator.js";
import { cut } from "./replacing.js";
import { TABLES } from "./words.js";

/** `closed`: a directory that is not looked into. `git`: a file of a repository that decides what git runs. */
export type Kind = "file" | "link" | "directory" | "closed" | "git" | "other";

export interface State {
  readonly kind: Kind;
  readonly mode: number;
  readonly owner: readonly [user: number, group: number];
  /** Size, time of change (ns), inode, time of the inode's change (ns). */
  readonly stamp: readonly [size: string, modified: string, inode: string, changed: string];
  /** SHA-256 of a file's content; null where it was not kept. */
  readonly digest: string | null;
  /** What a link says. */
  readonly target: string | null;
  /** Whether an equal stamp proves an equal content. */
  readonly settled?: boolean;
}

/** Before and after; null where there is nothing. */
export type Change = readonly [before: State | null, after: State | null];

/** Names that only Byleave gives, for a moment: drafts, and what an undo holds between two steps. */
export const PASSING = /^\.byleave-[0-9a-f]{16}\.(?:tmp|undo)$/;

/** Directories that tools fill and can fill again, and what is never ours: that they are there is seen, no more. */
export const CLOSED: ReadonlySet<string> = new Set(TABLES.closed);

/** Whether two states are the same to whoever looks at the path. */
export function same(one: State | null, other: State | null): boolean {
  if (one === null || other === null) {
    return one === other;
  }
  if (one.kind !== other.kind) {
    return false;
  }
  switch (one.kind) {
    case "closed":
      return true;
    case "link":
      return one.target === other.target;
    case "directory":
      return one.mode === other.mode;
    default: {
      const known = one.digest !== null && other.digest !== null;
      const equal = known ? one.digest === other.digest : one.stamp.join() === other.stamp.join();
      return equal && one.mode === other.mode;
    }
  }
}

/** What a stat says of a path; a file's content is not known from it. */
export function stateOf(info: BigIntStats, target: string | null = null): State {
  const kind = info.isFile() ? "file" : info.isDirectory() ? "directory" : target === null ? "other" : "link";
  return {
    kind,
    mode: Number(info.mode & 0o7777n),
    owner: [Number(info.uid), Number(info.gid)],
    stamp: [String(info.size), String(info.mtimeNs), String(info.ino), String(info.ctimeNs)],
    digest: null,
    target,
  };
}

export function sizeOf(state: State): number {
  return Number(state.stamp[0]);
}

/** Open exactly this path: where a link is on the way, it is not it. The one who asks closes it. */
export function openExact(paths: PathValidator, path: string, flags: number): Opened {
  const opened = paths.open(path, flags);
  if (opened.real !== path) {
    closeSync(opened.fd);
    throw osError("ELOOP");
  }
  return opened;
}

/** The directory a path lies in, for the time of `use`. */
export async function inParent<T>(
  paths: PathValidator,
  path: string,
  use: (directory: Opened, name: string) => T | Promise<T>,
): Promise<T> {
  const [parent, name] = cut(path);
  const directory = openExact(paths, parent, O_PATH | O_DIRECTORY);
  try {
    return await use(directory, name);
  } finally {
    closeSync(directory.fd);
  }
}

/** What one path is now, without its content; null where there is nothing. Throws where that cannot be told. */
export function look(paths: PathValidator, path: string): State | null {
  const [parent, name] = cut(path);
  let directory: Opened;
  try {
    directory = openExact(paths, parent, O_PATH | O_DIRECTORY);
  } catch (error) {
    if (isCode(error, "ENOENT", "ENOTDIR")) {
      return null;
    }
    throw error;
  }
  try {
    const place = `${directory.base}/${name}`;
    const info = lstatSync(place, { bigint: true, throwIfNoEntry: false });
    if (info === undefined) {
      return null;
    }
    return stateOf(info, info.isSymbolicLink() ? readlinkSync(place) : null);
  } finally {
    closeSync(directory.fd);
  }
}

/** A state as it was written; undefined where it is none. */
export function stateIn(value: unknown): State | null | undefined {
  if (value === null) {
    return null;
  }
  const { digest, kind, mode, owner, stamp, target } = (value ?? {}) as Partial<State>;
  const whole =
    ["file", "link", "directory", "closed", "git", "other"].includes(String(kind)) &&
    typeof mode === "number" &&
    Array.isArray(owner) &&
    Array.isArray(stamp) &&
    (digest === null || /^[0-9a-f]{64}$/.test(String(digest))) &&
    (target === null || typeof target === "string");
  return whole ? (value as State) : undefined;
}
