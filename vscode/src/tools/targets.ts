// Where a write goes: the directory of the file a path really leads to, pinned by descriptor, the name in it, and what is
// there now. Directories that are missing are made, each step resolved from the workspace down, so that none leaves it;
// where nothing was written they are removed again. What may never be written is refused by its real name.

import { closeSync, constants, fchownSync, fstatSync, lstatSync, mkdirSync, rmdirSync } from "node:fs";
import { refuseHiddenTarget, refuseProtected, refuseProtectedDirectory } from "./disguises.js";
import { codeOf, DriftedError, isOsError, osError, PathValidationError, ToolFailure } from "./errors.js";
import { O_DIRECTORY, O_PATH, type Opened, type PathValidator } from "./PathValidator.js";
import { asTold } from "./path_errors.js";
import { cut, isSame, quietly, refuseIrreplaceable, type Target } from "./replacing.js";
import { repr, visibleName } from "./words.js";

const MAX_NEW_DIRECTORIES = 64;
const DIRECTORY = O_PATH | O_DIRECTORY;

export interface Wanted {
  readonly path: string;
  /** Whether a file was shown before: what speaks against it now came since. */
  readonly bound: boolean;
  readonly forbidden: (real: string) => boolean;
}

/** One search. Closes what it opened. */
export class TargetFinder {
  readonly made: { readonly parent: Opened; readonly name: string }[] = [];
  readonly #open: number[] = [];

  constructor(
    private readonly paths: PathValidator,
    private readonly relative: string,
    private readonly wanted: Wanted,
  ) {}

  /** `written`: the directories that were made are needed. */
  close(written: boolean): void {
    for (const { parent, name } of written ? [] : this.made.toReversed()) {
      quietly(() => rmdirSync(`${parent.base}/${name}`)); // somebody else put something in it: then it stays
    }
    for (const fd of this.#open) {
      closeSync(fd);
    }
  }

  /** The real names of the directories that were made, the upper ones first. */
  get madeNames(): string[] {
    return this.made.map(({ parent, name }) => (parent.real === "." ? name : `${parent.real}/${name}`));
  }

  #opened(relative: string, flags: number): Opened {
    const opened = this.paths.open(relative, flags);
    this.#open.push(opened.fd);
    return opened;
  }

  /** Undefined: it was replaced while we looked. */
  find(): Target | undefined {
    try {
      return this.#find();
    } catch (error) {
      if (!this.wanted.bound) {
        throw error;
      }
      // A look found a file that may be replaced: whatever speaks against it now came since.
      const told = asTold(this.wanted.path, error);
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
    this.paths.refuseOutOfReach(found.real);
    refuseIrreplaceable(found, info, this.wanted.path);
    this.#mayBeReal(found.real);
    return target;
  }

  #mayBeReal(real: string): void {
    refuseProtected(real, this.wanted.path);
    refuseHiddenTarget(this.relative, real);
    if (this.wanted.forbidden(real)) {
      throw new PathValidationError(`${repr(this.wanted.path)} leads to ${repr(visibleName(real))}, which is denied.`);
    }
  }

  #findNew(): Target | undefined {
    const [parent, name] = cut(this.relative);
    if (name === "..") {
      throw osError("EISDIR");
    }
    const directory = this.#directory(parent, 0);
    const real = directory.real === "." ? name : `${directory.real}/${name}`;
    this.paths.refuseOutOfReach(real);
    this.#mayBeReal(real);
    const found = lstatSync(`${directory.base}/${name}`, { throwIfNoEntry: false });
    if (found?.isSymbolicLink()) {
      throw new PathValidationError(`${repr(this.wanted.path)} is a link to something that is not there.`);
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
          `${repr(this.wanted.path.slice(0, 60))}… would need more than ${MAX_NEW_DIRECTORIES} new directories, each in the other; nothing was written.`,
        );
      }
      const place = this.#directory(above, made + 1);
      const real = place.real === "." ? name : `${place.real}/${name}`;
      refuseProtectedDirectory(real, this.wanted.path);
      this.paths.refuseOutOfReach(real);
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
    this.made.push({ parent: place, name });
    if (process.geteuid?.() === 0) {
      const own = this.paths.child(place, name, constants.O_RDONLY | O_DIRECTORY);
      this.#open.push(own.fd);
      const owner = fstatSync(place.fd);
      fchownSync(own.fd, owner.uid, owner.gid); // theirs, as what root writes is
    }
  }
}
