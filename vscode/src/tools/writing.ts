// write_file's way to the disk: all of it or nothing, inside the workspace, with the old permissions. The target's
// directory is pinned by descriptor; the new content goes to a draft in it, is synced, and takes the target's name in one
// step. A link to elsewhere is never written through, and a failure leaves no trace, not even the directories it made.
// Writers of one file in this program come one after the other. A write that is bound replaces only what was shown,
// compared on the very file as the last thing before the name changes hands. Node has no file locks: a second program
// that appends at the same moment is noticed by the file's time and size, not kept out.

import { createHash, randomBytes } from "node:crypto";
import {
  closeSync,
  constants,
  fchmodSync,
  fchownSync,
  fstatSync,
  linkSync,
  lstatSync,
  openSync,
  renameSync,
  unlinkSync,
} from "node:fs";
import type { WriteFileResult } from "@protocol";
import { isWide } from "./contents.js";
import { refuseLate } from "./deadline.js";
import { refuseProtected } from "./disguises.js";
import { codeOf, ExecutionCancelled, isCode, isOsError, osError, ToolFailure } from "./errors.js";
import { fsyncAsync, readAsync, writeAsync } from "./io.js";
import { nameOf, namesDirectory, type PathValidator, READ } from "./PathValidator.js";
import { pathError } from "./path_errors.js";
import { alone, digestOf, drifted, isSame, isUnchanged, quietly, syncDirectory, type Target } from "./replacing.js";
import { NO_LINKS } from "./swapping.js";
import { TargetFinder } from "./targets.js";
import { repr, visibleName } from "./words.js";

const CHUNK = 1 << 20;
const PATIENCE = 10_000;
const MISSING = "missing";
const NOT_SYNCED = "The disk did not confirm that the new content will outlast a crash of the machine.";

export interface WriteOrder {
  readonly path: string;
  readonly data: Buffer;
  readonly append: boolean;
  readonly maxBytes: number;
  readonly signal: AbortSignal;
  /** The file that was shown (its real path) and its SHA-256, or `missing`. */
  readonly bound: Readonly<Record<string, string>>;
  readonly forbidden: (real: string) => boolean;
  /** Whether its time is up. */
  readonly late?: (() => boolean) | undefined;
  readonly keep?: Keep | undefined;
}

/** Keeps what is about to be replaced, right before it is; gives what must be told whether it was. */
export type Keep = (replacing: Replacing) => Promise<(written: boolean) => Promise<void>>;

/** A write right before its new name: what is there, and what takes its place. */
export interface Replacing {
  readonly real: string;
  readonly old: Target["old"];
  readonly fd: number;
  /** Directories that were made for it. */
  readonly made: readonly string[];
}

/** Replace or extend the file at a path. */
export async function writeBeneath(paths: PathValidator, order: WriteOrder): Promise<WriteFileResult> {
  const { path, data, maxBytes } = order;
  const relative = paths.relative(path);
  if (namesDirectory(path) || relative === ".") {
    throw new ToolFailure(`${repr(path)} names a directory, not a file.`);
  }
  refuseProtected(relative, path);
  if (data.length > maxBytes) {
    throw new ToolFailure(`The content for ${repr(path)} is larger than ${maxBytes} bytes.`);
  }
  const until = performance.now() + PATIENCE;
  do {
    const writer = new Writer(paths, relative, order);
    try {
      const result = await writer.attempt();
      if (result !== undefined) {
        return result;
      }
    } catch (error) {
      throw isOsError(error) ? pathError(path, error) : error;
    } finally {
      writer.close();
    }
  } while (performance.now() < until);
  throw new ToolFailure(`${repr(path)} kept changing while it was written.`, "Try again.");
}

/** One try. Closes what it opened; where it wrote nothing it also removes the directories it made. */
class Writer {
  readonly #open: number[] = [];
  readonly #finder: TargetFinder;
  #written = false;

  constructor(
    private readonly paths: PathValidator,
    relative: string,
    private readonly order: WriteOrder,
  ) {
    const { forbidden, path } = order;
    this.#finder = new TargetFinder(paths, relative, { path, forbidden, bound: this.#bound !== undefined });
  }

  get #bound(): [string, string] | undefined {
    return Object.entries(this.order.bound)[0];
  }

  close(): void {
    this.#finder.close(this.#written);
    for (const fd of this.#open) {
      closeSync(fd);
    }
  }

  /** Undefined: it was replaced while we looked; try again. */
  async attempt(): Promise<WriteFileResult | undefined> {
    const target = this.#finder.find();
    return target && (await alone(`${this.paths.root}/${target.real}`, this.order.signal, () => this.#replace(target)));
  }

  async #replace(target: Target): Promise<WriteFileResult | undefined> {
    const { directory, name, old } = target;
    if (!isSame(target)) {
      return undefined;
    }
    if ((fstatSync(directory.fd).mode & 0o222) === 0) {
      throw osError("EACCES"); // root could write it all the same; its owner said nobody may
    }
    const draft = `${directory.base}/.byleave-${randomBytes(8).toString("hex")}.tmp`;
    const flags = constants.O_RDWR | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW;
    let fd: number;
    try {
      fd = openSync(draft, flags, old === undefined ? 0o666 : 0o600);
    } catch (error) {
      if (codeOf(error) === "ENOENT") {
        return undefined; // somebody removed the directory; the next try makes it again
      }
      throw error;
    }
    this.#open.push(fd);
    let end: ((written: boolean) => Promise<void>) | undefined;
    try {
      const copied = await this.#fill(target, fd);
      end = await this.order.keep?.({ real: target.real, old, fd, made: this.#finder.madeNames });
      if (this.#bound !== undefined) {
        await this.#checkBound(target, fd, copied, this.#bound);
      }
      // From here to the new name nothing waits any more.
      this.#check();
      if (!(this.order.append || this.order.keep ? isUnchanged(target) : isSame(target))) {
        return undefined;
      }
      if (old === undefined) {
        this.#putNew(draft, `${directory.base}/${name}`);
      } else {
        renameSync(draft, `${directory.base}/${name}`);
      }
      this.#written = true;
      const synced = [directory, ...this.#finder.made.map(({ parent }) => parent)].map(syncDirectory);
      const warnings = synced.includes(false) ? [NOT_SYNCED] : [];
      const size = copied + this.order.data.length;
      return { success: true, error: null, path: visibleName(target.real), size, warnings };
    } finally {
      quietly(() => unlinkSync(draft));
      await end?.(this.#written);
    }
  }

  #putNew(draft: string, name: string): void {
    try {
      linkSync(draft, name); // never replaces anything
    } catch (error) {
      if (codeOf(error) === "EEXIST") {
        throw this.#disturbed("appeared while it was written");
      }
      if (!isCode(error, ...NO_LINKS)) {
        throw error;
      }
      if (lstatSync(name, { throwIfNoEntry: false }) !== undefined) {
        throw this.#disturbed("appeared while it was written");
      }
      renameSync(draft, name); // a file system without hard links: the next best is a look right before
    }
  }

  #disturbed(what: string): Error {
    const { path } = this.order;
    return this.#bound ? drifted(path, "nothing was written") : new ToolFailure(`${repr(path)} ${what}.`, "Try again.");
  }

  /** It was called off, or its time is up. A timer may come late: the clock itself is asked. */
  #check(): void {
    refuseLate(this.order.late);
    if (this.order.signal.aborted) {
      throw new ExecutionCancelled("The write was called off; nothing was changed.");
    }
  }

  /** Write all of the draft; how much of the old file it begins with. */
  async #fill(target: Target, fd: number): Promise<number> {
    const { append, data, maxBytes, path } = this.order;
    const copied = append && target.old !== undefined ? await this.#copyOld(target.old.fd, target.real, fd) : 0;
    if (copied + data.length > maxBytes) {
      throw new ToolFailure(`${repr(path)} would become larger than ${maxBytes} bytes.`);
    }
    for (let at = 0; at < data.length; ) {
      this.#check();
      at += await writeAsync(fd, data, at, Math.min(CHUNK, data.length - at), copied + at);
    }
    this.#takeOver(target, fd);
    await fsyncAsync(fd);
    return copied;
  }

  async #copyOld(oldFd: number, real: string, fd: number): Promise<number> {
    // Through the descriptor: it is the very file whose permissions were asked.
    const source = openSync(nameOf(oldFd, `${this.paths.root}/${real}`), READ);
    this.#open.push(source);
    const buffer = Buffer.allocUnsafe(CHUNK);
    let size = 0;
    for (;;) {
      const count = await readAsync(source, buffer, 0, CHUNK, size);
      if (count === 0) {
        return size;
      }
      if (size === 0 && isWide(buffer.subarray(0, count))) {
        throw new ToolFailure(
          `${repr(this.order.path)} is in UTF-16 or UTF-32, and what is appended would be in UTF-8; nothing was written.`,
          "Write the whole file.",
        );
      }
      this.#check();
      for (let at = 0; at < count; ) {
        at += await writeAsync(fd, buffer, at, count - at, size + at);
      }
      size += count;
      if (size > this.order.maxBytes) {
        throw new ToolFailure(`${repr(this.order.path)} would become larger than ${this.order.maxBytes} bytes.`);
      }
    }
  }

  /** Give the new file the old one's owner and permissions (never set-uid), or the directory's owner. */
  #takeOver(target: Target, fd: number): void {
    if (target.old === undefined) {
      if (process.geteuid?.() === 0) {
        const owner = fstatSync(target.directory.fd);
        fchownSync(fd, owner.uid, owner.gid);
      }
      return;
    }
    const { gid, mode, uid } = target.old.info;
    quietly(() => fchownSync(fd, Number(uid), Number(gid))); // only root may give files away
    fchmodSync(fd, Number(mode & 0o777n));
  }

  async #checkBound(target: Target, fd: number, copied: number, [real, shown]: [string, string]): Promise<void> {
    const { old } = target;
    const wrong = drifted(this.order.path, "nothing was written");
    if (target.real !== real || (old === undefined && shown !== MISSING)) {
      throw wrong;
    }
    if (old !== undefined && !(await this.#isShown(target, fd, copied, shown))) {
      throw wrong;
    }
    if (!isSame(target)) {
      throw wrong;
    }
  }

  async #isShown(target: Target, fd: number, copied: number, shown: string): Promise<boolean> {
    const { append, data, maxBytes } = this.order;
    const source = openSync(nameOf((target.old as { fd: number }).fd, `${this.paths.root}/${target.real}`), READ);
    this.#open.push(source);
    const before = fstatSync(source, { bigint: true });
    if (before.size > BigInt(maxBytes)) {
      return false; // no look reads so far
    }
    const there = await digestOf(source, Number(before.size));
    // What was copied counts too. A file that already is what it was approved to become is no surprise to anybody.
    const same = append
      ? there === shown && (await digestOf(fd, copied)) === shown
      : there === shown || there === createHash("sha256").update(data).digest("hex");
    const after = fstatSync(source, { bigint: true });
    return same && after.size === before.size && after.mtimeNs === before.mtimeNs;
  }
}
