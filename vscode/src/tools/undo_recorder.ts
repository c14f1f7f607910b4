// Keeping what was there: what a write replaces, and what a command changed, so that it can be undone. A write's old
// content is kept in the same moment in which it is replaced, and its entry is on the disk before the new file has its
// name. At each beginning and end of a command the tree is looked at (`undo_tree`), and what differs belongs to a command
// that ran meanwhile: so each change is in one entry, also where calls ran at the same time. Recording never stops a call:
// what could not be kept is said with the result. While a call acts no undo begins, and the other way round.

import { closeSync, fstatSync, openSync } from "node:fs";
import { codeOf, systemWords, ToolFailure } from "./errors.js";
import { nameOf, type PathValidator, READ } from "./PathValidator.js";
import { type Clock, sleep } from "./ports.js";
import { digestOf } from "./replacing.js";
import { Turns, unlessCalledOff } from "./turns.js";
import type { Entry, UndoList } from "./undo_list.js";
import { merge } from "./undo_scan.js";
import { type Change, look, type State, same, stateOf } from "./undo_states.js";
import type { ContentStore } from "./undo_store.js";
import { WatchedTree } from "./undo_tree.js";
import { repr, visibleName } from "./words.js";
import type { Keep, Replacing } from "./writing.js";

/** The largest file that is kept. */
export const CALL_BYTES = 50 * 1024 * 1024;
const MAX_FILES = 20_000;
const NAMED = 5;
const SWEEP_EVERY = 60_000;
const BUSY = "A call or another undo runs in this workspace right now, so this one did not begin.";

/** Calls run side by side, and an undo only while none does. */
export class CallGate {
  #calls = 0;
  #undoing = false;
  readonly #waiting = new Set<() => void>();

  constructor(private readonly clock: Clock) {}

  /** A call acts; the function that is given ends it. Rejects when it is called off before it may. */
  async begin(signal?: AbortSignal): Promise<() => void> {
    while (this.#undoing) {
      await unlessCalledOff(this.#change(), signal);
    }
    this.#calls += 1;
    let over = false;
    return () => {
      this.#calls -= over ? 0 : 1;
      over = true;
      this.#tell();
    };
  }

  /** While no call acts, and none begins. Rejects where one still acts after some patience, in milliseconds. */
  async alone<T>(patience: number, work: () => Promise<T>): Promise<T> {
    const until = this.clock.monotonic() + patience;
    while (this.#calls > 0 || this.#undoing) {
      const left = until - this.clock.monotonic();
      if (left <= 0) {
        throw new ToolFailure(BUSY, "Try again in a moment.");
      }
      const stop = new AbortController();
      await Promise.race([this.#change(), sleep(this.clock, left, stop.signal)]);
      stop.abort();
    }
    this.#undoing = true;
    try {
      return await work();
    } finally {
      this.#undoing = false;
      this.#tell();
    }
  }

  #change(): Promise<void> {
    return new Promise((resolve) => this.#waiting.add(resolve));
  }

  #tell(): void {
    const waiting = [...this.#waiting];
    this.#waiting.clear();
    for (const wake of waiting) {
      wake();
    }
  }
}

export interface UndoLimits {
  readonly days: number;
  readonly maxBytes: number;
  /** The largest file that is kept. */
  readonly callBytes?: number;
  /** How many are watched while commands run. */
  readonly maxFiles?: number;
}

/** A command that runs now. */
export interface RunningCommand {
  readonly id: string;
  readonly summary: string;
  readonly changes: Map<string, Change>;
  readonly together: Set<string>;
  /** What a person should know of it: what was not watched, what cannot be brought back. */
  readonly notes: string[];
  readonly over: () => void;
}

/** Records what calls change in one workspace. */
export class UndoRecorder {
  readonly #watch: WatchedTree;
  readonly #running = new Map<string, RunningCommand>();
  /** One look, or one write that takes its name, at a time. */
  readonly #lock = new Turns();
  #swept: number;

  constructor(
    private readonly paths: PathValidator,
    readonly store: ContentStore,
    readonly list: UndoList,
    readonly gate: CallGate,
    private readonly clock: Clock,
    private readonly limits: UndoLimits,
    /** Told whenever an entry was added or went. */
    private readonly changed: () => void,
  ) {
    this.#swept = clock.monotonic();
    this.#watch = new WatchedTree(paths, store, limits.maxFiles ?? MAX_FILES, this.#callBytes);
  }

  get #callBytes(): number {
    return this.limits.callBytes ?? CALL_BYTES;
  }

  /** Look at everything now, so that the first command need not wait for it. Rejects as the disk does. */
  async prepare(): Promise<void> {
    await this.#alone(async () => this.#attribute(await this.#watch.look()));
  }

  async #alone<T>(work: () => Promise<T>, signal?: AbortSignal): Promise<T> {
    const end = await this.#lock.take(true, signal);
    try {
      return await work();
    } finally {
      end();
    }
  }

  // A write

  /** Around a write: what it replaces is kept under this id. */
  async writing<T extends { readonly warnings: readonly string[] }>(
    id: string,
    summary: string,
    write: (keep: Keep) => Promise<T>,
    signal?: AbortSignal,
  ): Promise<T> {
    const end = await this.gate.begin(signal);
    const kept = new Keeping(this.paths, this.store, this.#callBytes);
    try {
      const result = await write(async (replacing) => {
        // Until this try is over: nobody looks in between. Never longer: the next try waits for others of the same file.
        const unlock = await this.#lock.take(true, signal);
        const changes = await kept.keep(replacing);
        await this.#written(id, summary, kept, changes);
        return async (written) => {
          try {
            await (written ? undefined : this.#void(id, kept));
          } finally {
            unlock();
          }
        };
      });
      this.changed();
      return kept.warning === undefined ? result : { ...result, warnings: [...result.warnings, kept.warning] };
    } finally {
      end();
      await this.#sweepIfFull();
    }
  }

  async #written(id: string, summary: string, kept: Keeping, changes: Entry["changes"] | undefined): Promise<void> {
    if (changes === undefined) {
      return;
    }
    try {
      const notes = kept.warning === undefined ? [] : [kept.warning];
      await this.list.put(this.#entry(id, "write_file", summary, changes, { notes }));
      kept.recorded = changes;
      this.#learn(changes);
    } catch (error) {
      kept.warning = notKept(error);
    }
  }

  /** The write did not happen after all. */
  async #void(id: string, kept: Keeping): Promise<void> {
    const { recorded } = kept;
    kept.recorded = undefined;
    if (recorded !== undefined) {
      this.#learn(recorded.map(([path, before, after]) => [path, after, before] as const));
      // Where that cannot be written the entry stays, and undoing it finds that there is nothing to do.
      await this.list.remove(id).catch(() => {});
    }
  }

  /** Count our own write as known, and what was there before it as the doing of what runs. */
  #learn(changes: Entry["changes"]): void {
    for (const [path, before, after] of this.#watch.looked ? changes : []) {
      const known = this.#watch.get(path);
      if (!same(known, before)) {
        this.#attribute(new Map([[path, [known, before]]]));
      }
      this.#watch.learn(path, after);
    }
  }

  #entry(
    id: string,
    toolName: string,
    summary: string,
    changes: Entry["changes"],
    more: Partial<Pick<Entry, "notes" | "together">>,
  ): Entry {
    const base = { id, toolName, summary, at: this.clock.now(), changes };
    return { ...base, notes: [], together: [], undoes: null, done: true, ...more };
  }

  // A command

  /** Before a command: look at everything. Rejects as the disk does. */
  async begin(id: string, summary: string, signal?: AbortSignal): Promise<RunningCommand> {
    const over = await this.gate.begin(signal);
    try {
      return await this.#alone(async () => {
        this.#attribute(await this.#watch.look());
        const together = new Set(this.#running.keys());
        const running = { id, summary, changes: new Map<string, Change>(), together, notes: [], over };
        for (const other of this.#running.values()) {
          other.together.add(id);
        }
        this.#running.set(id, running);
        return running;
      }, signal);
    } catch (error) {
      over();
      throw error;
    }
  }

  /** After a command: what it changed, written down. Rejects as the disk does. */
  async end(running: RunningCommand): Promise<void> {
    try {
      await this.#alone(async () => {
        this.#running.delete(running.id);
        this.#takeOver(running, await this.#watch.look());
        running.notes.push(...this.#notes(running.changes));
        if (running.changes.size > 0) {
          await this.store.sync();
          const changes = [...running.changes].map(([path, [before, after]]) => [path, before, after] as const);
          const more = { notes: running.notes, together: [...running.together].sort() };
          await this.list.put(this.#entry(running.id, "execute_command", running.summary, changes, more));
        }
      });
    } finally {
      this.#running.delete(running.id);
      running.over();
      this.changed();
    }
    await this.#sweepIfFull();
  }

  /** What was not seen, and what cannot be brought back. */
  #notes(changes: ReadonlyMap<string, Change>): string[] {
    const notes: string[] = [];
    if (this.#watch.truncated) {
      const most = this.limits.maxFiles ?? MAX_FILES;
      notes.push(
        `There are more files here than are watched (${most}, the upper levels first): what it changed beyond them is not listed and cannot be undone.`,
      );
    }
    if (this.#watch.closed.length > 0) {
      notes.push(`What it changed in ${named(this.#watch.closed)} is not known: no permission to look.`);
    }
    if (this.#watch.unnamed) {
      notes.push("What it changed under names that are not UTF-8 is not known.");
    }
    const lost = [...changes].filter(([, [before]]) => before?.kind === "file" && !this.store.has(before.digest ?? ""));
    if (lost.length > 0) {
      const paths = lost.map(([path]) => path).sort();
      notes.push(`${named(paths)} cannot be brought back by undo: too large, not readable, or no room to keep it.`);
    }
    return notes;
  }

  /** A change while commands run belongs to one of them; while none runs, it is somebody else's own. */
  #attribute(changes: ReadonlyMap<string, Change>): void {
    const [first] = this.#running.values();
    if (first !== undefined && changes.size > 0) {
      this.#takeOver(first, changes);
    }
  }

  /** Count changes for one command, with what was counted for another that still runs: a path has one of them. */
  #takeOver(running: RunningCommand, changes: ReadonlyMap<string, Change>): void {
    for (const other of this.#running.values()) {
      for (const path of other === running ? [] : changes.keys()) {
        const theirs = other.changes.get(path);
        if (theirs !== undefined) {
          running.changes.set(path, theirs);
          other.changes.delete(path);
        }
      }
    }
    merge(running.changes, changes);
  }

  /** Forget what is too old or too much; what stands in the way of that is no reason against a call. */
  async sweep(): Promise<void> {
    this.#swept = this.clock.monotonic();
    const { days, maxBytes } = this.limits;
    await this.list.sweep(this.store, this.clock.now(), days, maxBytes).catch(() => {});
  }

  async #sweepIfFull(): Promise<void> {
    const due = this.clock.monotonic() - this.#swept > SWEEP_EVERY;
    if (due && !this.store.roomFor(this.limits.maxBytes / 10)) {
      await this.gate.alone(0, () => this.sweep()).catch(() => {}); // in use: the next call tries again
    }
  }

  close(): void {
    this.store.close();
  }
}

/** One write, from the moment before it has its name. */
class Keeping {
  /** Why it cannot be undone. */
  warning: string | undefined;
  /** What was written down of it. */
  recorded: Entry["changes"] | undefined;

  constructor(
    private readonly paths: PathValidator,
    private readonly store: ContentStore,
    private readonly most: number,
  ) {}

  /** What it changes, with the old content kept; undefined where that could not be done. */
  async keep({ fd, made, old, real }: Replacing): Promise<Entry["changes"] | undefined> {
    this.warning = undefined; // it may be the second try
    try {
      const before = old === undefined ? null : await this.#old(old.fd, real);
      const info = fstatSync(fd, { bigint: true });
      const after = { ...stateOf(info), digest: await digestOf(fd, Number(info.size)) };
      const directories = made.map((path) => [path, null, look(this.paths, path)] as const);
      await this.store.sync();
      return [...directories, [real, before, after]];
    } catch (error) {
      this.warning = notKept(error);
      return undefined;
    }
  }

  async #old(fd: number, real: string): Promise<State> {
    const source = openSync(nameOf(fd, `${this.paths.root}/${real}`), READ);
    try {
      const state = stateOf(fstatSync(source, { bigint: true }));
      try {
        return { ...state, digest: await this.store.putFile(source, this.most) };
      } catch (error) {
        this.warning = notKept(error);
        return state;
      }
    } finally {
      closeSync(source);
    }
  }
}

const WHY: Readonly<Record<string, string>> = {
  EFBIG: "the file is too large",
  ENOSPC: "there is no room",
  EDQUOT: "there is no room",
  EACCES: "no permission",
};

function notKept(error: unknown): string {
  const why = WHY[codeOf(error) ?? ""] ?? systemWords(error);
  return `This cannot be undone: what was there before could not be kept (${why}).`;
}

function named(paths: readonly string[]): string {
  const listed = paths
    .slice(0, NAMED)
    .map((path) => repr(visibleName(path)))
    .join(", ");
  return paths.length > NAMED ? `${listed} and ${paths.length - NAMED} more` : listed;
}
