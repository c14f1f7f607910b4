// What a command may change in the workspace, and what it may not: the workspace's own mounts. Something else on this
// machine executes or trusts the names in `protected`: an editor, a shell, git, another agent. Those that exist are mounted
// read-only, those that are missing have an empty directory in their place for the time of the command, those that are
// links are held by `links`. Git alone may make them, and runs alone; what it made is told. Commands that only read get all
// of it read-only. Mounts are named by path, so a command that could swap such a name never runs beside another (`turns`).

import { lstatSync, mkdirSync, readdirSync, rmdirSync, type Stats, utimesSync } from "node:fs";
import { basename } from "node:path";
import { codeOf, PathValidationError, ToolFailure } from "./errors.js";
import { makesRepository, onlyReads, worksInAnother } from "./git_words.js";
import { type Link, linkAt, putAside, putBack } from "./links.js";
import { type Mask, parentsOf } from "./masking.js";
import { Turns } from "./turns.js";
import { repr, TABLES } from "./words.js";

/** Seconds of a stub's modification time; set once, and changed by whatever is put into it. */
const STAMP = 1_000_000_007;
const NEVER_LINKS = new Set([".git", ".byleave"]);
const GIT_SETTINGS = ["config", "commondir"];

/** How the workspace is mounted for one command. */
export interface Mounts {
  readonly arguments: string[];
  readonly protected: string[];
  readonly degraded: string[];
  /** Undo what was prepared; gives the protected names that were not there before. */
  release(): string[];
}

function found(path: string): Stats | undefined {
  return lstatSync(path, { throwIfNoEntry: false });
}

/** Whether what is there is only a stand-in: one that holds something is not, whatever its stamp says. */
function isStub(path: string): boolean {
  const info = found(path);
  const stamped = info?.isDirectory() === true && Math.floor(info.mtimeMs) === STAMP * 1000;
  return stamped && readdirSync(path).length === 0;
}

/** Keeps track of the commands of one workspace. */
export class Protection {
  readonly #turns = new Turns();
  readonly #stubs = new Map<string, number>();

  constructor(private readonly root: string) {}

  /** Protect the workspace for the time of one command. It may have to wait for others, until `signal` calls it off. */
  async hold(argv: readonly string[], masks: readonly Mask[], pinned: boolean, signal?: AbortSignal): Promise<Mounts> {
    const { root } = this;
    const reads = onlyReads(argv);
    if (reads && masks.length === 0 && !pinned) {
      return { arguments: ["--ro-bind", root, root], protected: ["."], degraded: [], release: () => [] };
    }
    const isGit = basename(argv[0] as string) === "git";
    const links = TABLES.protected.some((name) => found(this.#path(name))?.isSymbolicLink());
    const end = await this.#turns.take(isGit || links || pinned || masks.length > 0, signal);
    try {
      if (reads) {
        const release = () => {
          end();
          return [];
        };
        return { arguments: ["--ro-bind", root, root], protected: ["."], degraded: [], release };
      }
      return new Writing(this, root, argv, masks, isGit).mounts(end);
    } catch (error) {
      end();
      throw error;
    }
  }

  #path(name: string): string {
    return `${this.root}/${name}`;
  }

  /** Put a stub where nothing is; whether one of ours is there now. */
  placeStub(name: string): boolean {
    const users = this.#stubs.get(name);
    if (users !== undefined) {
      this.#stubs.set(name, users + 1);
      return true;
    }
    const path = this.#path(name);
    try {
      mkdirSync(path, 0o755);
      utimesSync(path, STAMP, STAMP);
    } catch (error) {
      const code = codeOf(error);
      if (code === "EEXIST") {
        if (!isStub(path)) {
          return false;
        }
      } else if (code === "EROFS") {
        return false; // the command cannot make it either
      } else {
        throw new ToolFailure(
          `${repr(name)} could not be protected from the command: ${code}.`,
          "Give the workspace's directory back its right to write: chmod u+wx",
        );
      }
    }
    this.#stubs.set(name, 1);
    return true;
  }

  isOurStub(name: string): boolean {
    return this.#stubs.has(name) && isStub(this.#path(name));
  }

  removeStub(name: string): void {
    const users = (this.#stubs.get(name) as number) - 1;
    if (users > 0) {
      this.#stubs.set(name, users);
      return;
    }
    this.#stubs.delete(name);
    try {
      rmdirSync(this.#path(name)); // what somebody put into it stays
    } catch {
      // it is no longer empty, or gone
    }
  }
}

/** The mounts of one command that could change the workspace. */
class Writing {
  readonly #arguments: string[];
  readonly #protected: string[] = [];
  readonly #degraded: string[] = [];
  readonly #links: Link[] = [];
  readonly #fixed = new Set<string>();

  constructor(
    private readonly protection: Protection,
    private readonly root: string,
    private readonly argv: readonly string[],
    private readonly masks: readonly Mask[],
    private readonly isGit: boolean,
  ) {
    this.#arguments = ["--bind", root, root];
  }

  mounts(end: () => void): Mounts {
    const { root, isGit } = this;
    const args = this.argv.slice(1);
    const missing = TABLES.protected.filter((name) => this.#isMissing(name));
    // `git init` and its like are the one way to a repository; anything else that appeared is told.
    const expected = isGit && makesRepository(args) ? [".git"] : [];
    const wanted = isGit ? [".git", ".byleave"].filter((name) => !expected.includes(name)) : TABLES.protected;
    const opensGit = isGit && !worksInAnother(root, args);
    const stubs: string[] = [];
    const created: string[] = [];
    const settings = opensGit && expected.length === 0 ? this.#missingSettings() : [];
    const release = () => {
      created.push(...this.#links.flatMap((link) => putBack(root, link)));
      created.push(...settings.flatMap((name) => this.#setAside(`.git/${name}`)));
      for (const name of stubs) {
        this.protection.removeStub(name);
      }
      created.push(...missing.filter((name) => !expected.includes(name) && !this.#isMissing(name)));
      end();
      return created;
    };
    try {
      for (const name of wanted) {
        if (this.protection.placeStub(name)) {
          stubs.push(name);
        }
      }
      // Before the names: a mount on the way to one would hide what is mounted there already.
      for (const mask of this.masks) {
        this.#fix(parentsOf(mask.path));
      }
      for (const name of [...TABLES.protected, ...(opensGit ? TABLES.git_protected : [])]) {
        this.#mount(name, opensGit);
      }
    } catch (error) {
      release();
      throw error;
    }
    return { arguments: this.#arguments, protected: this.#protected, degraded: this.#degraded, release };
  }

  #isMissing(name: string): boolean {
    const path = `${this.root}/${name}`;
    return found(path) === undefined || isStub(path);
  }

  /** What git itself never makes in a repository that is there, and would take its settings from. */
  #missingSettings(): string[] {
    const has = (name: string) => found(`${this.root}/.git/${name}`) !== undefined;
    return found(`${this.root}/.git`)?.isDirectory() && has("HEAD") ? GIT_SETTINGS.filter((name) => !has(name)) : [];
  }

  #setAside(name: string): string[] {
    try {
      const aside = putAside(`${this.root}/${name}`);
      return aside === undefined ? [] : [`${name}${aside}`];
    } catch {
      return [name];
    }
  }

  /** Make mounts of directories, so that they cannot be renamed: what lies in them keeps its name. */
  #fix(parents: readonly string[]): void {
    for (const parent of parents) {
      if (!this.#fixed.has(parent)) {
        this.#fixed.add(parent);
        this.#arguments.push("--bind", `${this.root}/${parent}`, `${this.root}/${parent}`);
      }
    }
  }

  #mount(name: string, opensGit: boolean): void {
    const path = `${this.root}/${name}`;
    const info = found(path);
    if (info === undefined) {
      return;
    }
    if (info.isSymbolicLink()) {
      this.#holdLink(name);
      return;
    }
    this.#fixed.add(name);
    const isOurs = this.protection.isOurStub(name);
    if (opensGit && name === ".git" && info.isDirectory() && !isOurs) {
      if (found(`${path}/HEAD`) !== undefined && found(`${path}/hooks`) === undefined) {
        mkdirSync(`${path}/hooks`); // a repository without hooks must not get any
      }
      this.#arguments.push("--bind", path, path); // a mount point: it cannot be renamed away
      return;
    }
    this.#protected.push(name);
    this.#arguments.push(
      // A private one over a stub: what is put into it never reaches the disk.
      ...(isOurs ? ["--size", "4096", "--perms", "0555", "--tmpfs", path] : ["--ro-bind", path, path]),
    );
  }

  /** A link cannot be a mount. What it leads to can; the link itself is put back when the command has ended. */
  #holdLink(name: string): void {
    if (NEVER_LINKS.has(name)) {
      throw new PathValidationError(
        `${repr(name)} is a link, so it cannot be protected from the command.`,
        "Replace it by what it leads to.",
      );
    }
    if (this.isGit) {
      this.#degraded.push(`${name} is a link and was not protected.`);
      return;
    }
    const link = linkAt(this.root, name);
    this.#links.push(link);
    if (link.target === undefined) {
      this.#degraded.push(`${name} is a link out of the workspace: if the command replaces it, it is put back.`);
      return;
    }
    this.#degraded.push(`${name} is a link to ${link.target}: if the command replaces it, it is put back.`);
    this.#fix(parentsOf(link.target));
    this.#arguments.push("--ro-bind", `${this.root}/${link.target}`, `${this.root}/${link.target}`);
    this.#protected.push(link.target);
  }
}
