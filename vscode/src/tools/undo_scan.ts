// What the workspace's tree is at one moment: each path's kind and mode, found without following a link. A scan goes by
// directory descriptors and looks at names only, the upper levels first. Of `.git` only what decides which programs git runs
// is looked at. What could not be seen is said: nothing here takes "not seen" for "not there". It writes nothing.

import { closeSync, constants, lstatSync, readdirSync, readlinkSync } from "node:fs";
import { isOsError, onlyOs } from "./errors.js";
import { O_DIRECTORY, type Opened, type PathValidator } from "./PathValidator.js";
import { type Change, CLOSED, look, openExact, PASSING, type State, same, stateOf } from "./undo_states.js";
import { TABLES } from "./words.js";

const MAX_DEPTH = 64;
/** Most that is looked at in one directory. */
const MAX_NAMES = 10_000;
const MAX_HOOKS = 100;
const DIRECTORY = constants.O_RDONLY | O_DIRECTORY;
const OURS = new Set([".git", ".byleave"]); // made and removed by the sandbox around commands
const GIT_RUNS = ["config", "config.worktree"];
/** So many files are taken before others have their turn. */
const AT_ONCE = 200;

export interface Tree {
  readonly states: Map<string, State>;
  /** Whether there was more than a scan looks at. */
  truncated: boolean;
  /** Directories that were not read to their end, or not at all; "" is the workspace itself. */
  readonly unseen: Set<string>;
  /** Whether there are names that are no UTF-8: as a text they name nothing. */
  unnamed: boolean;
}

export function emptyTree(): Tree {
  return { states: new Map(), truncated: false, unseen: new Set(), unnamed: false };
}

/** One walk through the workspace, the upper levels first: where there is too much, the deepest are left out. */
export class Scan {
  readonly #tree = emptyTree();

  constructor(
    private readonly paths: PathValidator,
    /** What was seen before: a path with an equal stamp is taken from there, with what is known of its content. */
    private readonly known: ReadonlyMap<string, State>,
    private readonly maxFiles: number,
  ) {}

  /** Rejects when the workspace itself cannot be read. */
  async run(): Promise<Tree> {
    const { states, unseen } = this.#tree;
    const waiting: [directory: string, depth: number][] = [["", 0]];
    let pause = AT_ONCE;
    for (let next = waiting.shift(); next !== undefined; next = waiting.shift()) {
      const [directory, depth] = next;
      if (states.size >= this.maxFiles || depth > MAX_DEPTH) {
        this.#tree.truncated = true;
        unseen.add(directory);
        continue;
      }
      const before = states.size;
      waiting.push(...this.#enter(directory).map((path) => [path, depth + 1] as [string, number]));
      if (TABLES.protected.includes(directory) && states.size === before) {
        states.delete(directory); // empty: put there by the sandbox for the time of a command
      }
      if (states.size > pause) {
        pause = states.size + AT_ONCE;
        await new Promise(setImmediate);
      }
    }
    return this.#tree;
  }

  #enter(directory: string): string[] {
    let opened: Opened;
    try {
      opened = openExact(this.paths, directory || ".", DIRECTORY);
    } catch (error) {
      if (directory === "" || !isOsError(error)) {
        throw error;
      }
      this.#tree.unseen.add(directory); // gone, no permission, another mount, or swapped for a link
      return [];
    }
    try {
      return this.#read(opened, directory);
    } finally {
      closeSync(opened.fd);
    }
  }

  /** Take what lies in a directory, and tell which directories do. */
  #read({ base }: Opened, directory: string): string[] {
    const { states, unseen } = this.#tree;
    const directories: string[] = [];
    const room = Math.min(MAX_NAMES, this.maxFiles - states.size);
    const names = readdirSync(base).sort(); // two scans should see the same part
    if (names.length > room) {
      this.#tree.truncated = true;
      unseen.add(directory);
    }
    for (const name of names.slice(0, room)) {
      const path = directory === "" ? name : `${directory}/${name}`;
      if (OURS.has(path) || PASSING.test(name)) {
        this.#git(path);
        continue;
      }
      const state = this.#state(`${base}/${name}`, name, path);
      if (state === undefined) {
        this.#tree.unnamed ||= name.includes("\ufffd"); // else it is gone since it was named
        continue;
      }
      states.set(path, state);
      if (state.kind === "directory") {
        directories.push(path);
      } else if (name === ".git") {
        this.#git(path);
      }
    }
    return directories;
  }

  #state(place: string, name: string, path: string): State | undefined {
    const info = lstatSync(place, { bigint: true, throwIfNoEntry: false });
    if (info === undefined) {
      return undefined;
    }
    const old = this.known.get(path);
    const state = stateOf(info, info.isSymbolicLink() ? linkText(place) : null);
    if (old?.stamp.join() === state.stamp.join() && old.mode === state.mode && old.kind !== "git") {
      return old;
    }
    return state.kind === "directory" && CLOSED.has(name.toLowerCase()) ? { ...state, kind: "closed" } : state;
  }

  /** Of a repository's own files look at those that decide what git runs; nothing else, and never its content. */
  #git(path: string): void {
    if (!path.endsWith(".git")) {
      return;
    }
    for (const name of [...GIT_RUNS, ...this.#hooks(`${path}/hooks`)]) {
      try {
        const state = look(this.paths, `${path}/${name}`);
        if (state !== null) {
          this.#tree.states.set(`${path}/${name}`, { ...state, kind: "git", target: null });
        }
      } catch (error) {
        onlyOs(error);
      }
    }
  }

  #hooks(directory: string): string[] {
    try {
      const opened = openExact(this.paths, directory, DIRECTORY);
      try {
        const names = readdirSync(opened.base).filter((name) => !name.endsWith(".sample"));
        return names.slice(0, MAX_HOOKS).map((name) => `hooks/${name}`);
      } finally {
        closeSync(opened.fd);
      }
    } catch {
      return [];
    }
  }
}

function linkText(place: string): string {
  try {
    return readlinkSync(place);
  } catch {
    return "";
  }
}

/** Whether it is known of a path that is not among the states that there was nothing. */
export function isTold(path: string, { states, unseen }: Tree): boolean {
  for (let above = path; ; ) {
    above = above.slice(0, Math.max(above.lastIndexOf("/"), 0));
    if (unseen.has(above)) {
      return false;
    }
    if (above === "" || states.has(above)) {
      return true;
    }
  }
}

/** What differs. Where the first look did not see, nothing counts as new. */
export function changesBetween(before: Tree, after: ReadonlyMap<string, State>): Map<string, Change> {
  const changes = new Map<string, Change>();
  for (const [path, old] of before.states) {
    const now = after.get(path) ?? null;
    if (now !== old && !same(old, now)) {
      changes.set(path, [old, now]);
    }
  }
  for (const [path, now] of after) {
    if (!before.states.has(path) && isTold(path, before)) {
      changes.set(path, [null, now]);
    }
  }
  return changes;
}

/** Two steps as one. */
export function merge(earlier: Map<string, Change>, later: ReadonlyMap<string, Change>): void {
  for (const [path, [old, now]] of later) {
    const known = earlier.get(path);
    const first = known === undefined ? old : known[0];
    if (same(first, now)) {
      earlier.delete(path);
    } else {
      earlier.set(path, [first, now]);
    }
  }
}
