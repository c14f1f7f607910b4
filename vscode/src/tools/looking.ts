// One file, read once to its end: its digest, size, age and beginning are all of the same bytes. It opens as the file tools
// do, so a link that leads out, a pipe or a device is never read. Nothing here decides or runs anything.

import { createHash } from "node:crypto";
import { closeSync, fstatSync } from "node:fs";
import { posix } from "node:path";
import { isCode, ToolFailure } from "./errors.js";
import { readAsync, refuseOddKind } from "./io.js";
import { type Opened, type PathValidator, READ } from "./PathValidator.js";
import { asTold } from "./path_errors.js";
import { repr, timestamp } from "./words.js";

const CHUNK = 1 << 20;
/** Enough for every package.json that is one. */
const KEPT = 256 * 1024;

/** One file as it was when it was read. */
export interface Look {
  readonly path: string;
  /** `missing` where there is no file; a directory counts as none. */
  readonly sha256: string;
  /** Where it really lies, after all links. */
  readonly real: string | null;
  readonly size: number | null;
  readonly mode: number;
  readonly modifiedAt: string | null;
  readonly head: Buffer;
  readonly isDirectory: boolean;
}

const NOTHING = { sha256: "missing", real: null, size: null, mode: 0, modifiedAt: null, isDirectory: false } as const;

/** Read one file to its end. `keep` gets the very bytes that are counted. Throws when it may not or cannot. */
export async function lookAt(
  paths: PathValidator,
  path: string,
  maxBytes: number,
  keep?: (piece: Buffer) => unknown,
  kept: number = KEPT,
): Promise<Look> {
  let opened: Opened;
  try {
    opened = paths.open(paths.relative(path), READ);
  } catch (error) {
    if (isCode(error, "ENOENT", "ENOTDIR")) {
      return { ...NOTHING, path, head: Buffer.alloc(0) };
    }
    throw asTold(path, error);
  }
  try {
    const info = fstatSync(opened.fd);
    if (info.isDirectory()) {
      return { ...NOTHING, path, head: Buffer.alloc(0), real: opened.real, isDirectory: true };
    }
    refuseOddKind(info, path);
    const read = await readThrough(opened.fd, path, maxBytes, kept, keep);
    const modifiedAt = timestamp(Math.floor(fstatSync(opened.fd).mtimeMs));
    return { ...read, path, real: opened.real, mode: info.mode, modifiedAt, isDirectory: false };
  } catch (error) {
    throw asTold(path, error);
  } finally {
    closeSync(opened.fd);
  }
}

/** The digest, size and beginning of an open file. */
export async function readThrough(
  fd: number,
  path: string,
  maxBytes: number,
  kept: number,
  keep?: (piece: Buffer) => unknown,
): Promise<Pick<Look, "sha256" | "size" | "head">> {
  const digest = createHash("sha256");
  const head: Buffer[] = [];
  const buffer = Buffer.allocUnsafe(CHUNK);
  let size = 0;
  for (;;) {
    const count = await readAsync(fd, buffer, 0, CHUNK, size);
    if (count === 0) {
      return { sha256: digest.digest("hex"), size, head: Buffer.concat(head) };
    }
    const piece = buffer.subarray(0, count);
    if (size < kept) {
      head.push(Buffer.from(piece.subarray(0, kept - size)));
    }
    size += count;
    if (size > maxBytes) {
      throw new ToolFailure(`${repr(path)} is larger than ${maxBytes} bytes.`);
    }
    digest.update(piece);
    keep?.(piece);
  }
}

/** A directory may stand where a file could, when what would run in it is named too. */
export function refuseDirectory(look: Look, among: readonly string[]): void {
  const inner = ["__main__.py", "index.js"].map((name) => posix.normalize(`${look.path}/${name}`));
  if (look.isDirectory && !inner.some((name) => among.includes(name))) {
    throw new ToolFailure(`${repr(look.path)} is a directory, so what it would run cannot be shown.`);
  }
}
