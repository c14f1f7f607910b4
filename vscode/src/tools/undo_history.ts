// What undoing a call would do: each path it changed is compared with what the call left. Where one was changed since, or
// what was there was not kept, that is said, and nothing will be touched. Looking keeps what is there now, so that an undo
// can be undone; it changes nothing in the workspace.

import { closeSync, fstatSync } from "node:fs";
import { CallerError, isCode, isOsError, NotFound, ToolFailure } from "./errors.js";
import { type PathValidator, READ } from "./PathValidator.js";
import { cut } from "./replacing.js";
import { changeOf, type Entry, type UndoList } from "./undo_list.js";
import { CALL_BYTES } from "./undo_recorder.js";
import { CLOSED, look, openExact, type State, same, sizeOf, stateOf } from "./undo_states.js";
import type { ContentStore } from "./undo_store.js";
import { repr } from "./words.js";

const NO_ROOM = "There is no room on the disk to keep what is there now, so nothing is undone.";

/** One path on its way back. */
export interface Step {
  readonly path: string;
  readonly now: State | null;
  readonly target: State | null;
}

/** What an undo would do. */
export interface Plan {
  readonly entry: Entry;
  readonly steps: readonly Step[];
  /** Paths that changed since. */
  readonly conflicts: readonly string[];
  /** Paths that cannot be brought back, and why. */
  readonly lost: ReadonlyMap<string, string>;
  /** What the call made and an undo leaves, and why. */
  readonly left: ReadonlyMap<string, string>;
}

/** What was recorded for one workspace, and the way back. */
export class UndoHistory {
  constructor(
    private readonly paths: PathValidator,
    private readonly store: ContentStore,
    private readonly list: UndoList,
  ) {}

  /** The entry of a call, or of an undo that is to be undone. */
  entry(id: string): Entry {
    const found = this.list.get(id);
    if (found === undefined) {
      throw new NotFound(
        `Nothing that ${repr(id)} changed in this workspace is known.`,
        "what is older than a week is not kept, nor what a command changed while the editor was closed under it",
      );
    }
    const by = this.list.undoneBy(this.list.entries()).get(id);
    if (by !== undefined) {
      throw new CallerError(`${repr(id)} is already undone.`);
    }
    return found;
  }

  /** What a file held; undefined where that was not kept, or it was no file. */
  async content(state: State | null): Promise<Buffer | undefined> {
    return state?.digest ? this.store.read(state.digest) : undefined;
  }

  /** Compare everything, change nothing. Keeps what is there now, so that an undo can be undone. */
  async plan(entry: Entry): Promise<Plan> {
    const steps: Step[] = [];
    const conflicts: string[] = [];
    const lost = new Map<string, string>();
    const left = new Map<string, string>();
    const begun = this.list.entries().filter((one) => one.undoes === entry.id && !one.done);
    for (const [path, before, after] of entry.changes) {
      const stays = whyLeft(before, after);
      if (stays !== undefined) {
        left.set(path, stays);
        continue;
      }
      let current: State | null;
      try {
        current = await this.found(path, entry);
      } catch (error) {
        if (isCode(error, "ENOSPC", "EDQUOT")) {
          throw new ToolFailure(NO_ROOM, "Free some space on the disk, then undo again.");
        }
        if (!isOsError(error)) {
          throw error;
        }
        conflicts.push(path);
        continue;
      }
      if (same(current, before)) {
        continue;
      }
      if (
        !same(current, after) &&
        !isHalfWay(
          current,
          before,
          after,
          begun.some((one) => changeOf(one, path)),
        )
      ) {
        conflicts.push(path);
      } else if (before === null && isTooLarge(current)) {
        left.set(path, "too large to be kept, so it is yours to remove");
      } else {
        const why = await this.#cannot(before, after, current);
        if (why === undefined) {
          steps.push({ path, now: current, target: before });
        } else {
          lost.set(path, why);
        }
      }
    }
    return { entry, steps, conflicts, lost, left };
  }

  /** What a path of an entry is now, its content kept. */
  async found(path: string, entry: Entry): Promise<State | null> {
    try {
      return await this.current(path);
    } catch (error) {
      if (isOsError(error) && this.#isBehindLink(path, entry)) {
        return null;
      }
      throw error;
    }
  }

  /** Whether above a path a link is now where the entry knows a directory and a link: behind a link is nothing of it. */
  #isBehindLink(path: string, entry: Entry): boolean {
    for (let above = cut(path)[0]; above !== "."; above = cut(above)[0]) {
      const kinds = changeOf(entry, above)?.map((state) => state?.kind);
      if (kinds?.includes("link") && kinds.includes("directory")) {
        return isLink(this.paths, above);
      }
    }
    return false;
  }

  /** What a path is now, its content kept. */
  async current(path: string): Promise<State | null> {
    const state = look(this.paths, path);
    if (state === null || state.kind === "link" || state.kind === "other") {
      return state;
    }
    if (state.kind === "directory") {
      return CLOSED.has(cut(path)[1].toLowerCase()) ? { ...state, kind: "closed" } : state;
    }
    const { fd } = openExact(this.paths, path, READ);
    try {
      const found = stateOf(fstatSync(fd, { bigint: true }));
      if (found.kind !== "file" || sizeOf(found) > CALL_BYTES) {
        return found; // what is too large to be kept is known by its stamp
      }
      // However full the store is: its bound is for what calls pile up.
      return { ...found, digest: await this.store.putFile(fd, CALL_BYTES, Number.POSITIVE_INFINITY) };
    } finally {
      closeSync(fd);
    }
  }

  async #cannot(before: State | null, after: State | null, current: State | null): Promise<string | undefined> {
    if (after !== null && ["closed", "other"].includes(after.kind)) {
      return "what took its place is left alone";
    }
    if (isTooLarge(current)) {
      return "what is there now is too large to be kept, and would be lost: move it away first";
    }
    if (before === null || before.kind === "directory" || before.kind === "link") {
      return undefined;
    }
    if (before.kind !== "file") {
      return "what was there is not kept";
    }
    if (before.digest === null) {
      return "its old content was not kept: too large, not readable, or no room";
    }
    return (await this.store.read(before.digest)) === undefined ? "its old content can no longer be read" : undefined;
  }
}

/** Why an undo does not touch a path at all. */
function whyLeft(before: State | null, after: State | null): string | undefined {
  if (before?.kind === "git" || after?.kind === "git") {
    return "git's own state is left alone";
  }
  if (before !== null || after === null) {
    return undefined;
  }
  if (after.kind === "closed") {
    return "nobody looked into it";
  }
  return after.kind === "other" ? "it is no file, directory or link" : undefined;
}

function isLink(paths: PathValidator, path: string): boolean {
  try {
    return look(paths, path)?.kind === "link";
  } catch {
    return false; // there is no way to it either
  }
}

function isTooLarge(current: State | null): boolean {
  return current?.kind === "file" && current.digest === null;
}

/**
 * Whether a path is as an interrupted undo leaves it; a directory that goes must be empty, whatever its mode. Where one of
 * this call `began`, what it took away it may not have put back yet.
 */
function isHalfWay(current: State | null, before: State | null, after: State | null, began: boolean): boolean {
  if (current === null) {
    return began;
  }
  if (current.kind !== "directory") {
    return false;
  }
  if (before === null) {
    return after?.kind === "directory";
  }
  if (before.kind !== "directory") {
    return false;
  }
  const opened = current.mode === (before.mode | 0o700);
  if (after === null) {
    return current.mode === 0o700 || (began && opened);
  }
  return after.kind === "directory" ? opened : began && (current.mode === 0o700 || opened);
}
