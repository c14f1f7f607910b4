// The workspace's tree as it was last seen, and what differs at the next look. A look reads the contents of what is new and
// keeps them in the undo store: what a command changes next is known from before. What does not fit is known by its stamp
// alone. Files are read only where their stamp is not the one they had when they were last read. Writes nothing into the
// workspace.

import { type BigIntStats, closeSync, fstatSync, readSync } from "node:fs";
import { isOsError, onlyOs, osError } from "./errors.js";
import { O_DIRECTORY, O_PATH, type Opened, type PathValidator, READ } from "./PathValidator.js";
import { cut } from "./replacing.js";
import { changesBetween, emptyTree, isTold, Scan, type Tree } from "./undo_scan.js";
import { type Change, look, openExact, type State, sizeOf, stateOf } from "./undo_states.js";
import type { ContentStore } from "./undo_store.js";

/** The file system's clock ticks more coarsely than ours: read this soon after, a file may change without a new stamp. */
const TICK_NS = 20_000_000n;
/** So many files are read before others have their turn. */
const AT_ONCE = 50;
/** Files up to this size are read at one go. */
const SMALL = 1 << 18;

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

  /** Keep contents as far as there is room; small files first where there is not enough for all. */
  async #capture(states: Map<string, State>): Promise<void> {
    let fresh = [...states].filter(([, state]) => state.kind === "file" && !this.#isKept(state));
    const total = fresh.reduce((sum, [, state]) => sum + sizeOf(state), 0);
    if (total > this.callBytes || !this.store.roomFor(total)) {
      fresh = this.#fitting(fresh);
    }
    const small = fresh.filter(([, state]) => sizeOf(state) <= SMALL).map(([path]) => path);
    for (let at = 0; at < small.length; at += AT_ONCE) {
      await this.#captureSmall(states, small.slice(at, at + AT_ONCE));
      await new Promise(setImmediate);
    }
    for (const [path, state] of fresh) {
      if (sizeOf(state) > SMALL) {
        await passOver(async () => states.set(path, await this.#read(path)));
      }
    }
  }

  /** As many of the smallest as there is room for. */
  #fitting(fresh: [string, State][]): [string, State][] {
    let room = this.callBytes;
    return fresh
      .sort(([, one], [, other]) => sizeOf(one) - sizeOf(other))
      .filter(([, state]) => {
        room -= sizeOf(state);
        return room >= 0 && this.store.roomFor(this.callBytes - room);
      });
  }

  /** Many at one go, each directory opened once where they follow each other. */
  #captureSmall(states: Map<string, State>, small: readonly string[]): Promise<void> {
    return this.store.batch((put) => {
      let directory: Opened | undefined;
      const leave = () => {
        if (directory !== undefined) {
          closeSync(directory.fd);
          directory = undefined;
        }
      };
      for (const path of small) {
        const [parent, name] = cut(path);
        try {
          if (directory?.real !== parent) {
            leave();
            directory = openExact(this.paths, parent, O_PATH | O_DIRECTORY);
          }
          states.set(path, this.#readNow(directory, name, put));
        } catch (error) {
          if (!isOsError(error)) {
            leave();
            throw error;
          }
          // gone, not permitted, swapped for something else, or no room: known by its stamp alone
        }
      }
      leave();
    });
  }

  #readNow(directory: Opened, name: string, put: (data: Buffer) => string): State {
    const { fd } = this.paths.child(directory, name, READ);
    try {
      const began = BigInt(Date.now()) * 1_000_000n;
      const before = fstatSync(fd, { bigint: true });
      if (!before.isFile() || before.size > BigInt(SMALL)) {
        throw osError("EINVAL");
      }
      const data = Buffer.allocUnsafe(Number(before.size) + 1);
      const count = readSync(fd, data, 0, data.length, 0);
      return settledState(before, fstatSync(fd, { bigint: true }), put(data.subarray(0, count)), began);
    } finally {
      closeSync(fd);
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
      return settledState(before, fstatSync(fd, { bigint: true }), digest, began);
    } finally {
      closeSync(fd);
    }
  }
}

/** A file that was read: what it was before and after, and when that began (ns). */
function settledState(before: BigIntStats, after: BigIntStats, digest: string, began: bigint): State {
  const state = stateOf(after);
  const steady = stateOf(before).stamp.join() === state.stamp.join();
  const isOld = (time: bigint) => time + TICK_NS < began;
  return { ...state, digest, settled: steady && isOld(after.mtimeNs) && isOld(after.ctimeNs) };
}

/** Gone, not permitted, swapped for something else, or no room: then it is known by its stamp alone. */
async function passOver(work: () => Promise<unknown>): Promise<void> {
  try {
    await work();
  } catch (error) {
    onlyOs(error);
  }
}
