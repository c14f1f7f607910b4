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
  mkdirSync,
  openSync,
  renameSync,
  rmdirSync,
  unlinkSync,
} from "node:fs";
import type { WriteFileResult } from "@protocol";
import { refuseHiddenTarget, refuseProtected } from "./disguises.js";
import {
  codeOf,
  DriftedError,
  ExecutionCancelled,
  isOsError,
  osError,
  PathValidationError,
  ToolFailure,
} from "./errors.js";
import { fsyncAsync, readAsync, writeAsync } from "./io.js";
import { nameOf, O_DIRECTORY, O_PATH, type Opened, type PathValidator, pathError, READ } from "./PathValidator.js";
import {
  alone,
  cut,
  digestOf,
  drifted,
  isSame,
  isUnchanged,
  quietly,
  refuseIrreplaceable,
  syncDirectory,
  type Target,
} from "./replacing.js";
import { repr, visibleName } from "./words.js";

const CHUNK = 1 << 20;
const PATIENCE = 10_000;
const MAX_NEW_DIRECTORIES = 64;
const MISSING = "missing";
const DIRECTORY = O_PATH | O_DIRECTORY;
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
}

/** Replace or extend the file at a path. */
export async function writeBeneath(paths: PathValidator, order: WriteOrder): Promise<WriteFileResult> {
  const { path, data, maxBytes } = order;
  const relative = paths.relative(path);
  if (path.endsWith("/") || relative === ".") {
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
  readonly #made: { readonly parent: Opened; readonly name: string }[] = [];
  #written = false;

  constructor(
    private readonly paths: PathValidator,
    private readonly relative: string,
    private readonly order: WriteOrder,
  ) {}

  get #bound(): [string, string] | undefined {
    return Object.entries(this.order.bound)[0];
  }

  close(): void {
    if (!this.#written) {
      for (const { parent, name } of this.#made.toReversed()) {
        quietly(() => rmdirSync(`${parent.base}/${name}`)); // somebody else put something in it: then it stays
      }
    }
    for (const fd of this.#open) {
      closeSync(fd);
    }
  }

  /** Undefined: it was replaced while we looked; try again. */
  async attempt(): Promise<WriteFileResult | undefined> {
    const target = this.#found();
    return target && (await alone(`${this.paths.root}/${target.real}`, () => this.#replace(target)));
  }

  #opened(relative: string, flags: number): Opened {
    const opened = this.paths.open(relative, flags);
    this.#open.push(opened.fd);
    return opened;
  }

  #found(): Target | undefined {
    try {
      return this.#find();
    } catch (error) {
      if (this.#bound === undefined) {
        throw error;
      }
      // A look found a file that may be replaced: whatever speaks against it now came since.
      const told = isOsError(error) ? pathError(this.order.path, error) : error;
      if (isOsError(error) || told instanceof PathValidationError) {
        throw new DriftedError(`${(told as Error).message} It is not what was shown; nothing was written.`);
      }
      throw error;
    }
  }

  #find(): Target | undefined {
    let found: Opened;
    try {
      found = this.#opened(this.relative, O_PATH);
    } catch (error) {
      if (codeOf(error) !== "ENOENT") {
        throw error;
      }
      return this.#findNew();
    }
    const info = fstatSync(found.fd, { bigint: true });
    const [parent, name] = cut(found.real);
    const directory = this.#opened(parent, DIRECTORY);
    const target = { directory, name, real: found.real, old: { fd: found.fd, info } };
    if (!isSame(target)) {
      return undefined;
    }
    refuseIrreplaceable(found, info, this.order.path);
    this.#mayBeReal(found.real);
    return target;
  }

  #mayBeReal(real: string): void {
    refuseProtected(real, this.order.path);
    refuseHiddenTarget(this.relative, real);
    if (this.order.forbidden(real)) {
      throw new PathValidationError(`${repr(this.order.path)} leads to ${repr(visibleName(real))}, which is denied.`);
    }
  }

  #findNew(): Target | undefined {
    const [parent, name] = cut(this.relative);
    if (name === "..") {
      throw osError("EISDIR");
    }
    const directory = this.#directory(parent, 0);
    const real = directory.real === "." ? name : `${directory.real}/${name}`;
    this.#mayBeReal(real);
    const found = lstatSync(`${directory.base}/${name}`, { throwIfNoEntry: false });
    if (found?.isSymbolicLink()) {
      throw new PathValidationError(`${repr(this.order.path)} is a link to something that is not there.`);
    }
    // Somebody was faster, and it is there by now.
    return found === undefined ? { directory, name, real, old: undefined } : undefined;
  }

  /** Open the parent, making what is missing. Each step is resolved from the workspace down, so none leaves it. */
  #directory(parent: string, made: number): Opened {
    try {
      return this.#opened(parent, DIRECTORY);
    } catch (error) {
      const [above, name] = cut(parent);
      if (codeOf(error) !== "ENOENT" || name === "..") {
        throw error;
      }
      if (made === MAX_NEW_DIRECTORIES) {
        throw new ToolFailure(
          `${repr(this.order.path.slice(0, 60))}… would need more than ${MAX_NEW_DIRECTORIES} new directories, each in the other; nothing was written.`,
        );
      }
      const place = this.#directory(above, made + 1);
      refuseProtected(`${place.real}/${name}`, this.order.path);
      this.#make(place, name);
      return this.#opened(parent, DIRECTORY);
    }
  }

  #make(place: Opened, name: string): void {
    try {
      mkdirSync(`${place.base}/${name}`, 0o777);
    } catch (error) {
      if (codeOf(error) === "EEXIST") {
        return; // somebody was faster, or it is a link: opening it tells
      }
      throw error;
    }
    this.#made.push({ parent: place, name });
    if (process.geteuid?.() === 0) {
      const own = this.paths.child(place, name, constants.O_RDONLY | O_DIRECTORY);
      this.#open.push(own.fd);
      const owner = fstatSync(place.fd);
      fchownSync(own.fd, owner.uid, owner.gid); // theirs, as what root writes is
    }
  }

  async #replace(target: Target): Promise<WriteFileResult | undefined> {
    const { directory, name, old } = target;
    if (!isSame(target)) {
      return undefined;
    }
    if ((fstatSync(directory.fd).mode & 0o222) === 0) {
      throw osError("EACCES"); // root could write it all the same; its owner said nobody may
    }
    const draft = `${directory.base}/.assent-${randomBytes(8).toString("hex")}.tmp`;
    const flags = constants.O_RDWR | constants.O_CREAT | constants.O_EXCL | (constants.O_NOFOLLOW ?? 0);
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
    try {
      const copied = await this.#fill(target, fd);
      if (copied === undefined) {
        return undefined;
      }
      if (old === undefined) {
        this.#putNew(draft, `${directory.base}/${name}`);
      } else {
        renameSync(draft, `${directory.base}/${name}`);
      }
      this.#written = true;
      const synced = [directory, ...this.#made.map(({ parent }) => parent)].map(syncDirectory);
      const warnings = synced.includes(false) ? [NOT_SYNCED] : [];
      const size = copied + this.order.data.length;
      return { success: true, error: null, path: visibleName(target.real), size, warnings };
    } finally {
      quietly(() => unlinkSync(draft));
    }
  }

  #putNew(draft: string, name: string): void {
    try {
      linkSync(draft, name); // never replaces anything
    } catch (error) {
      if (codeOf(error) === "EEXIST") {
        throw this.#disturbed("appeared while it was written");
      }
      if (codeOf(error) !== "EPERM" && codeOf(error) !== "EOPNOTSUPP") {
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

  /** Write all of the draft and look once more; how much of the old file it begins with, or undefined: try again. */
  async #fill(target: Target, fd: number): Promise<number | undefined> {
    const { append, data, maxBytes, path, signal } = this.order;
    const copied = append && target.old !== undefined ? await this.#copyOld(target.old.fd, target.real, fd) : 0;
    if (copied + data.length > maxBytes) {
      throw new ToolFailure(`${repr(path)} would become larger than ${maxBytes} bytes.`);
    }
    for (let at = 0; at < data.length; ) {
      check(signal);
      at += await writeAsync(fd, data, at, Math.min(CHUNK, data.length - at), copied + at);
    }
    this.#takeOver(target, fd);
    await fsyncAsync(fd);
    if (!(append ? isUnchanged(target) : isSame(target))) {
      return undefined;
    }
    check(signal);
    if (this.#bound !== undefined) {
      await this.#checkBound(target, fd, copied, this.#bound);
    }
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
      check(this.order.signal);
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

function check(signal: AbortSignal): void {
  if (signal.aborted) {
    throw new ExecutionCancelled("The write was called off; nothing was changed.");
  }
}
