// Going back: every path of a plan to what it was. Each step is taken in a directory that was opened without following a
// link, each file written beside and moved in, so that one somebody saves at that moment is not lost (`swapping`). It
// removes only what the call made, and only after its content is kept. A directory goes only when it is empty; `.git` is
// never entered. The undo is written down before its first step and confirmed after its last, and one that was
// interrupted can be repeated: what is already as it was is passed over.

import { randomBytes } from "node:crypto";
import {
  chmodSync,
  closeSync,
  constants,
  fchmodSync,
  fchownSync,
  fstatSync,
  lchownSync,
  lstatSync,
  mkdirSync,
  openSync,
  readdirSync,
  readlinkSync,
  rmdirSync,
  symlinkSync,
  unlinkSync,
} from "node:fs";
import { ByleaveError, codeOf, isCode, onlyOs, ToolFailure } from "./errors.js";
import { fsyncAsync, writeAsync } from "./io.js";
import { O_DIRECTORY, O_PATH, type Opened, type PathValidator, READ } from "./PathValidator.js";
import { asTold } from "./path_errors.js";
import type { Clock } from "./ports.js";
import { cut, digestOf, quietly } from "./replacing.js";
import { passingName, place, swap, takeAway, Unexpected } from "./swapping.js";
import type { Plan, Step, UndoHistory } from "./undo_history.js";
import { changeOf, type Entry, type UndoList } from "./undo_list.js";
import { type Change, inParent, openExact, PASSING, type State, same, stateOf } from "./undo_states.js";
import type { ContentStore } from "./undo_store.js";
import { repr, visibleName } from "./words.js";

const CREATE = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW;
const NOFOLLOW = constants.O_NOFOLLOW;

/** Carries plans out in one workspace. */
export class Restorer {
  constructor(
    private readonly paths: PathValidator,
    private readonly store: ContentStore,
    private readonly list: UndoList,
    private readonly history: UndoHistory,
    private readonly clock: Clock,
  ) {}

  /** Go back. The caller is alone. Rejects where something changed since the plan was made. */
  async apply(plan: Plan): Promise<Entry> {
    const begun = this.list.entries().filter((one) => one.undoes === plan.entry.id && !one.done);
    const undo: Entry = {
      id: `undo_${randomBytes(16).toString("hex")}`,
      toolName: "undo",
      summary: `undo of ${plan.entry.id}: ${plan.entry.summary}`,
      at: this.clock.now(),
      changes: await this.#changes(plan, begun),
      notes: [],
      together: [],
      undoes: plan.entry.id,
      done: false,
    };
    await this.store.sync();
    await this.list.put(undo);
    for (const { id } of begun) {
      await this.list.remove(id);
    }
    if (begun.length > 0) {
      await this.#clean(plan);
    }
    const down = plan.steps.toSorted((one, other) => (one.path < other.path ? -1 : 1));
    for (const { now, path, target } of down) {
      if (now?.kind === "directory") {
        // One the call closed must be open while its inside is put back.
        await this.#told(path, () => this.#setMode(path, (target?.kind === "directory" ? target : now).mode | 0o700));
      }
    }
    for (const step of down.toReversed()) {
      if (step.now !== null && step.target?.kind !== step.now.kind) {
        await this.#told(step.path, () => this.#remove(step, step.now as State));
      }
    }
    for (const step of down) {
      if (step.target !== null) {
        await this.#told(step.path, () => this.#putBack(step, step.target as State));
      }
    }
    for (const { path, target } of down.toReversed()) {
      if (target?.kind === "directory") {
        await this.#told(path, () => this.#setMode(path, target.mode));
      }
    }
    await this.#settleNames(plan);
    const over = { ...undo, done: true };
    await this.list.put(over);
    return over;
  }

  /** What was renamed and removed is on the disk before it is confirmed. */
  async #settleNames({ steps }: Plan): Promise<void> {
    for (const parent of new Set(steps.map(({ path }) => cut(path)[0]))) {
      try {
        const directory = openExact(this.paths, parent, constants.O_RDONLY | O_DIRECTORY);
        try {
          await fsyncAsync(directory.fd);
        } finally {
          closeSync(directory.fd);
        }
      } catch (error) {
        onlyOs(error); // gone with what was in it, or not ours to read
      }
    }
  }

  /** What this undo changes, with what others of the same call did before they were interrupted. */
  async #changes({ steps }: Plan, begun: readonly Entry[]): Promise<Entry["changes"]> {
    const all = new Map<string, Change>();
    for (const one of begun) {
      for (const [path, before, after] of one.changes) {
        const there = await this.history.found(path, one).catch(() => undefined);
        if (!all.has(path) && there !== undefined && same(there, after)) {
          all.set(path, [before, after]);
        }
      }
    }
    for (const { now, path, target } of steps) {
      const first = begun.map((one) => changeOf(one, path)).find((one) => one !== undefined);
      all.set(path, [first === undefined ? now : first[0], target]);
    }
    return [...all].map(([path, [before, after]]) => [path, before, after] as const);
  }

  /** Remove what an interrupted undo left between two steps: its content is kept. */
  async #clean({ entry }: Plan): Promise<void> {
    for (const parent of new Set(entry.changes.map(([path]) => cut(path)[0]))) {
      try {
        const directory = openExact(this.paths, parent, constants.O_RDONLY | O_DIRECTORY);
        try {
          for (const name of readdirSync(directory.base).filter((one) => PASSING.test(one))) {
            await this.history.current(parent === "." ? name : `${parent}/${name}`);
            await this.store.sync();
            unlinkSync(`${directory.base}/${name}`);
          }
        } finally {
          closeSync(directory.fd);
        }
      } catch (error) {
        onlyOs(error);
      }
    }
  }

  /** With what the system says of a path, and a change that was noticed, turned into what a person can act on. */
  async #told(path: string, act: () => void | Promise<void>): Promise<void> {
    try {
      await act();
    } catch (error) {
      if (error instanceof Unexpected || isCode(error, "EEXIST", "ENOENT", "ELOOP", "ENOTDIR")) {
        throw changed(path);
      }
      throw stopped(asTold(visibleName(path), error));
    }
  }

  /** The stat of a file or link that is still the one the plan saw, down to its bytes. */
  async #isWhatWasCompared({ base }: Opened, name: string, state: State) {
    if (state.kind === "link") {
      const info = lstatSync(`${base}/${name}`, { bigint: true, throwIfNoEntry: false });
      return info?.isSymbolicLink() && readlinkSync(`${base}/${name}`) === state.target ? info : undefined;
    }
    let fd: number;
    try {
      fd = openSync(`${base}/${name}`, READ | NOFOLLOW);
    } catch {
      return undefined;
    }
    try {
      const info = fstatSync(fd, { bigint: true });
      const found = stateOf(info);
      // Not the time of the inode's change: giving it another name is one.
      const still = found.stamp.slice(0, 3).join() === state.stamp.slice(0, 3).join() && found.mode === state.mode;
      if (found.kind !== "file" || !still) {
        return undefined;
      }
      // What was compared is kept; so nothing is written for this, also where the disk is full.
      return (await digestOf(fd, Number(info.size))) === state.digest ? info : undefined;
    } finally {
      closeSync(fd);
    }
  }

  async #remove(step: Step, state: State): Promise<void> {
    await inParent(this.paths, step.path, async (directory, name) => {
      if (state.kind !== "directory") {
        await takeAway(directory, name, (one) => this.#isWhatWasCompared(directory, one, state));
        return;
      }
      try {
        rmdirSync(`${directory.base}/${name}`);
      } catch {
        // Somebody put something in it: it stays, unless something else has to take its name.
        if (step.target !== null) {
          throw new Unexpected("it is not empty");
        }
      }
    });
  }

  async #putBack({ now, path }: Step, target: State): Promise<void> {
    const was = now?.kind === target.kind ? now : null;
    await inParent(this.paths, path, async (directory, name) => {
      const full = `${directory.base}/${name}`;
      if (target.kind === "directory") {
        if (was === null) {
          mkdirSync(full, 0o700);
          give(() => lchownSync(full, ...target.owner));
        }
      } else if (target.kind === "link") {
        if (was !== null) {
          await takeAway(directory, name, (one) => this.#isWhatWasCompared(directory, one, was));
        }
        symlinkSync(target.target ?? "", full); // fails where something is there
        give(() => lchownSync(full, ...target.owner));
      } else if (was !== null && was.digest === target.digest) {
        this.#setFileMode(full, was, target.mode);
      } else {
        await this.#putFile(directory, name, path, target, was);
      }
    });
  }

  async #putFile(directory: Opened, name: string, path: string, target: State, was: State | null): Promise<void> {
    const data = await this.history.content(target); // compared with its digest as it is read
    if (data === undefined) {
      throw new ToolFailure(`What ${repr(visibleName(path))} held can no longer be read.`);
    }
    const draft = passingName();
    const fd = openSync(`${directory.base}/${draft}`, CREATE, 0o600);
    try {
      try {
        give(() => fchownSync(fd, ...target.owner));
        for (let at = 0; at < data.length; ) {
          at += await writeAsync(fd, data, at, data.length - at, at);
        }
        fchmodSync(fd, target.mode & 0o777); // never set-uid
        await fsyncAsync(fd);
      } finally {
        closeSync(fd);
      }
      if (was === null) {
        place(directory, draft, name);
      } else {
        await swap(directory, draft, name, (one) => this.#isWhatWasCompared(directory, one, was));
      }
    } finally {
      quietly(() => unlinkSync(`${directory.base}/${draft}`)); // where it did not get its name
    }
  }

  #setFileMode(full: string, was: State, mode: number): void {
    const fd = openSync(full, READ | NOFOLLOW);
    try {
      if (stateOf(fstatSync(fd, { bigint: true })).stamp.join() !== was.stamp.join()) {
        throw new Unexpected("it changed");
      }
      fchmodSync(fd, mode & 0o777);
    } finally {
      closeSync(fd);
    }
  }

  /** Of a directory. */
  #setMode(path: string, mode: number): void {
    const opened = openExact(this.paths, path, O_PATH | O_DIRECTORY);
    try {
      chmodSync(opened.base, mode & 0o3777);
    } finally {
      closeSync(opened.fd);
    }
  }
}

/** To its old owner; only root may give files away. */
function give(act: () => void): void {
  try {
    act();
  } catch (error) {
    if (codeOf(error) !== "EPERM") {
      throw error;
    }
  }
}

/** Also where the disk is full, or somebody may not: that it stopped in the middle is what a person must know. */
function stopped(error: unknown): unknown {
  if (!(error instanceof ByleaveError)) {
    return error;
  }
  const hint = error.hint === null ? "Undo again when that is mended" : `${error.hint} Then undo again`;
  return new ToolFailure(
    `${error.message} The undo stopped there; other paths may be back already.`,
    `${hint}: what is already as it was is passed over.`,
  );
}

function changed(path: string): ToolFailure {
  return new ToolFailure(
    `${repr(visibleName(path))} changed while it was undone; the undo stopped there.`,
    "Look at the file, then undo again: what is already as it was is passed over.",
  );
}
