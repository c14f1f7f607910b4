// list_directory: sorted, bounded, and never through a link. Directories are read by descriptor and their children opened
// from it, so a directory that is swapped for a link while the listing runs is not entered. A link is listed as what it
// leads to inside the workspace; one that leads outside or nowhere as a file with its own size, and nothing about its
// target is told. What the owner has ruled out is neither listed nor entered. Bounds: entries, depth, time.

import { closeSync, constants, fstatSync, lstatSync, opendirSync, type Stats } from "node:fs";
import type { DirectoryEntry, ListDirectoryResult } from "@protocol";
import { InvalidParameters, isCode, PathValidationError } from "./errors.js";
import { fnmatch } from "./fnmatch.js";
import { isOpen, O_DIRECTORY, O_PATH, type Opened, type PathValidator } from "./PathValidator.js";
import { toldOf } from "./path_errors.js";
import { expandGlob } from "./search_terms.js";
import { repr, TABLES, timestamp, visibleBytes } from "./words.js";

const MAX_DEPTH = 64;
const MAX_NAMES = 100_000;
const MAX_MILLISECONDS = 10_000;
const FIRST = Date.parse("0001-01-01T00:00:00Z");
const LAST = Date.parse("9999-12-31T00:00:00Z");
const READ_DIRECTORY = constants.O_RDONLY | O_DIRECTORY | constants.O_NONBLOCK;
const AT_ONCE = 256;

export interface ListParams {
  readonly path: string;
  readonly recursive: boolean;
  readonly pattern: string;
}

interface Named {
  readonly bytes: Buffer;
  readonly isDirectory: boolean;
}

/** One listing, from its parameters to its result. */
export class Listing {
  readonly #fits: (name: string) => boolean;
  readonly #hidden: boolean;
  readonly #deadline = performance.now() + MAX_MILLISECONDS;
  readonly #entries: DirectoryEntry[] = [];
  #truncated = false;
  #looked = 0;

  constructor(
    private readonly paths: PathValidator,
    private readonly params: ListParams,
    private readonly signal: AbortSignal,
    private readonly forbidden: (real: string) => boolean = () => false,
  ) {
    const pattern = params.recursive ? params.pattern.replace(/^\*\*\//, "") : params.pattern;
    if (pattern.includes("/") || pattern.includes("\0")) {
      throw new InvalidParameters(
        `The pattern ${repr(params.pattern)} is for names and cannot hold a '/'.`,
        "Name the directory in 'path'.",
      );
    }
    const globs = pattern.includes("{") || pattern.startsWith("!") ? expandGlob(pattern) : [pattern];
    const fitting = globs.map(fnmatch);
    this.#fits = (name) => fitting.some((fits) => fits(name));
    this.#hidden = globs.some((glob) => glob.startsWith("."));
  }

  async run(): Promise<ListDirectoryResult> {
    const { path } = this.params;
    await toldOf(path, async () => {
      const opened = this.paths.open(this.paths.relative(path), READ_DIRECTORY);
      try {
        this.paths.refuseClosed(opened, fstatSync(opened.fd));
        if (this.forbidden(opened.real)) {
          const hint = "Work without it; no approval opens it.";
          throw new PathValidationError(`The owner of this machine has ruled out ${repr(path)}.`, hint);
        }
        await this.#read(opened, 0);
      } finally {
        closeSync(opened.fd);
      }
    });
    const files = this.#entries;
    return { success: true, error: null, files, total_count: files.length, truncated: this.#truncated };
  }

  async #read(here: Opened, depth: number): Promise<void> {
    for (const { bytes, isDirectory } of this.#names(here)) {
      this.#looked += 1;
      if (this.#looked % AT_ONCE === 0) {
        await new Promise(setImmediate); // the editor has other things to do
      }
      if (this.#full()) {
        return;
      }
      const name = bytes.toString("utf8");
      const real = here.real === "." ? name : `${here.real}/${name}`;
      if (this.forbidden(real)) {
        continue;
      }
      const entry = this.#fits(name) ? this.#entry(here, bytes, real) : undefined;
      if (entry !== undefined) {
        this.#entries.push(entry);
      }
      if (this.params.recursive && isDirectory && !name.startsWith(".")) {
        await this.#descend(here, name, depth + 1);
      }
    }
  }

  #names(here: Opened): Named[] {
    const names: Named[] = [];
    // The types allow no buffers here; the system gives them.
    const directory = opendirSync(here.base, { encoding: "buffer" as BufferEncoding, bufferSize: AT_ONCE });
    try {
      for (let entry = directory.readSync(); entry !== null; entry = directory.readSync()) {
        const bytes = entry.name as unknown as Buffer;
        const name = bytes.toString("utf8");
        const isDirectory = entry.isDirectory();
        const wanted = this.#fits(name) || (this.params.recursive && isDirectory);
        if (wanted && (this.#hidden || !name.startsWith("."))) {
          names.push({ bytes, isDirectory });
        }
        if (names.length >= MAX_NAMES || this.#full()) {
          this.#truncated = true;
          break;
        }
      }
    } finally {
      directory.closeSync();
    }
    return names.sort((one, other) => Buffer.compare(one.bytes, other.bytes));
  }

  #full(): boolean {
    const full =
      this.#entries.length >= TABLES.max_listing || performance.now() > this.#deadline || this.signal.aborted;
    this.#truncated ||= full;
    return full;
  }

  async #descend(here: Opened, name: string, depth: number): Promise<void> {
    if (depth > MAX_DEPTH) {
      this.#truncated = true;
      return;
    }
    let child: Opened;
    try {
      child = this.paths.child(here, name, READ_DIRECTORY);
    } catch {
      return; // no permission, another mount, or swapped for a link: its entry is listed, its inside is not
    }
    try {
      if (isOpen(fstatSync(child.fd))) {
        await this.#read(child, depth);
      }
    } finally {
      closeSync(child.fd);
    }
  }

  #entry(here: Opened, bytes: Buffer, real: string): DirectoryEntry | undefined {
    let info: Stats;
    try {
      info = lstatSync(Buffer.concat([Buffer.from(`${here.base}/`), bytes]));
    } catch (error) {
      if (isCode(error, "ENOENT", "EACCES")) {
        return undefined; // gone since it was named, or in a directory that tells names and nothing else
      }
      throw error;
    }
    const shown = (info.isSymbolicLink() ? this.#behind(real) : undefined) ?? info;
    const prefix = here.real === "." ? "" : `${here.real}/`;
    return {
      name: visibleBytes(bytes),
      path: prefix + visibleBytes(bytes),
      type: shown.isDirectory() ? "directory" : "file",
      size: shown.isDirectory() ? 0 : shown.size,
      modified: timestamp(Math.min(Math.max(Math.floor(shown.mtimeMs), FIRST), LAST)),
    };
  }

  #behind(real: string): Stats | undefined {
    try {
      return this.paths.with(real, O_PATH, (opened) =>
        this.forbidden(opened.real) ? undefined : fstatSync(opened.fd),
      );
    } catch {
      return undefined;
    }
  }
}
