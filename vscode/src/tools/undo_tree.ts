// What the workspace's tree is at one moment: each path's kind, mode and content, found without following a link. A scan
// goes by directory descriptors and looks at names only; contents are read by `WatchedTree`, and only where a file's stamp
// is not the one it had when it was last read. Of `.git` only what decides which programs git runs is looked at. What could
// not be seen is said: nothing here takes "not seen" for "not there". It writes nothing into the workspace.

import { closeSync, constants, fstatSync, lstatSync, readdirSync, readlinkSync } from "node:fs";
import { codeOf, isOsError } from "./errors.js";
import { O_DIRECTORY, type Opened, type PathValidator, READ } from "./PathValidator.js";
import { type Change, CLOSED, look, openExact, PASSING, type State, same, sizeOf, stateOf } from "./undo_states.js";
import type { ContentStore } from "./undo_store.js";
import { TABLES } from "./words.js";

const MAX_DEPTH = 64;
/** Most that is looked at in one directory. */
const MAX_NAMES = 10_000;
const MAX_HOOKS = 100;
const DIRECTORY = constants.O_RDONLY | O_DIRECTORY;
const OURS = new Set([".git", ".assent"]); // made and removed by the sandbox around commands
const GIT_RUNS = ["config", "config.worktree"];
/** The file system's clock ticks more coarsely than ours: read this soon after, a file may change without a new stamp. */
const TICK_NS = 20_000_000n;
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

function emptyTree(): Tree {
  return { states: new Map(), truncated: false, unseen: new Set(), unnamed: false };
}

/** One walk through the workspace, the upper levels first: where there is too much, the deepest are left out. */
class Scan {
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
        if (!isOsError(error)) {
          throw error;
        }
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
function isTold(path: string, { states, unseen }: Tree): boolean {
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
function changesBetween(before: Tree, after: ReadonlyMap<string, State>): Map<string, Change> {
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

/** What one workspace held when it was last looked at. */
export class WatchedTree {
  #tree = emptyTree();
  #looked = false;

  constructor(
    private readonly paths: PathValidator,
    private readonly store: ContentStore,
    private readonly maxFiles: number,
    private readonly callBytes: number,
  ) {}

  get looked(): boolean {
    return this.#looked;
  }

  get truncated(): boolean {
    return this.#tree.truncated;
  }

  get unnamed(): boolean {
    return this.#tree.unnamed;
  }

  /** Directories that could not be looked into. */
  get closed(): string[] {
    return this.truncated ? [] : [...this.#tree.unseen].sort();
  }

  get(path: string): State | null {
    return this.#tree.states.get(path) ?? null;
  }

  /** Take something as seen. */
  learn(path: string, state: State | null): void {
    if (state === null) {
      this.#tree.states.delete(path);
    } else {
      this.#tree.states.set(path, state);
    }
  }

  /** What changed since the last look; the contents of what is new are kept. Rejects as the disk does. */
  async look(): Promise<Map<string, Change>> {
    const known = this.#tree;
    const tree = await new Scan(this.paths, known.states, this.maxFiles).run();
    this.#carryOver(known, tree);
    await this.#capture(tree.states);
    const changes = this.#looked ? changesBetween(known, tree.states) : new Map<string, Change>();
    this.#tree = tree;
    this.#looked = true;
    return changes;
  }

  /** Paths that a scan did not see and that may be there all the same stay as they were known. */
  #carryOver(known: Tree, tree: Tree): void {
    for (const [path, state] of tree.unseen.size === 0 ? [] : known.states) {
      if (!tree.states.has(path) && !isTold(path, tree) && !this.#isGone(path)) {
        tree.states.set(path, state);
      }
    }
  }

  #isGone(path: string): boolean {
    try {
      return look(this.paths, path) === null;
    } catch {
      return false;
    }
  }

  /** Keep contents, small files first, as far as there is room. */
  async #capture(states: Map<string, State>): Promise<void> {
    const fresh = [...states].filter(([, state]) => state.kind === "file" && !this.#isKept(state));
    fresh.sort(([, one], [, other]) => sizeOf(one) - sizeOf(other));
    let [room, count] = [this.callBytes, 0];
    for (const [path, state] of fresh) {
      const size = sizeOf(state);
      if (size > room || !this.store.roomFor(size)) {
        return;
      }
      try {
        states.set(path, await this.#read(path));
        room -= size;
      } catch (error) {
        if (["ENOSPC", "EDQUOT"].includes(codeOf(error) ?? "")) {
          return;
        }
        if (!isOsError(error)) {
          throw error;
        }
        // gone, not permitted, or swapped for something else
      }
      count += 1;
      if (count % AT_ONCE === 0) {
        await new Promise(setImmediate);
      }
    }
  }

  /** Whether a file's content is kept, and an equal stamp means that it is still this one. */
  #isKept({ digest, settled }: State): boolean {
    return settled === true && digest !== null && this.store.has(digest);
  }

  async #read(path: string): Promise<State> {
    const { fd } = openExact(this.paths, path, READ);
    try {
      const began = BigInt(Date.now()) * 1_000_000n;
      const before = fstatSync(fd, { bigint: true });
      const digest = await this.store.putFile(fd, this.callBytes);
      const after = fstatSync(fd, { bigint: true });
      const state = stateOf(after);
      const steady = stateOf(before).stamp.join() === state.stamp.join();
      const isOld = (time: bigint) => time + TICK_NS < began;
      return { ...state, digest, settled: steady && isOld(after.mtimeNs) && isOld(after.ctimeNs) };
    } finally {
      closeSync(fd);
    }
  }
}
