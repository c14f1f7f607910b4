// What an approval was bound to, held from the last check to the command's start. The files are watched, then read and
// compared, and the bytes that were compared are kept; the sandbox lays them over the files, so that a file written to
// afterwards changes nothing. Whoever renames another file over it would take the cover away with it: so for the first
// seconds a change of any name on the way is drift, and the command is ended. Our own writes wait meanwhile. Files that
// were missing are only checked before the start, as are those it is the command's own business to rewrite.

import { type FSWatcher, watch } from "node:fs";
import { ByleaveError, DriftedError } from "./errors.js";
import { lookAt, refuseDirectory } from "./looking.js";
import { O_PATH, type PathValidator } from "./PathValidator.js";
import { type Clock, SYSTEM_CLOCK, type Timer } from "./ports.js";
import { drifted } from "./replacing.js";
import type { Pin } from "./sandbox.js";

const START = 10_000;
const MISSING = "missing";

/** The bound files of one command, while it starts. */
export class Holding {
  readonly pins: Pin[] = [];
  /** Whether the sandbox laid the pins over the files; else a write to one is drift too. */
  covered = false;
  /** The first path that changed since it was compared. */
  drifted: string | undefined;
  /** Resolved when the files may change again. */
  readonly over: Promise<void>;
  readonly #watchers: FSWatcher[] = [];
  #end = () => {};
  #timer: Timer | undefined;
  #changed: (() => void) | undefined;

  constructor(
    private readonly paths: PathValidator,
    private readonly bound: Readonly<Record<string, string>>,
    private readonly watches: boolean,
    private readonly maxBytes: number,
    private readonly clock: Clock,
  ) {
    this.over = new Promise((resolve) => (this.#end = resolve));
  }

  /** Compare every file with what was shown, and keep what was compared. */
  async take(): Promise<void> {
    for (const [path, digest] of Object.entries(this.bound)) {
      const before = digest === MISSING ? undefined : this.#real(path);
      if (before !== undefined && this.watches) {
        this.#watch(this.paths.relative(path), path);
        this.#watch(before, path);
      }
      const kept: Buffer[] = [];
      try {
        const look = await lookAt(this.paths, path, this.maxBytes, (piece) => kept.push(Buffer.from(piece)));
        refuseDirectory(look, Object.keys(this.bound));
        if (look.sha256 !== digest || (digest !== MISSING && look.real !== before)) {
          throw drifted(path);
        }
        if (this.watches && look.real !== null && !look.isDirectory) {
          this.pins.push({ path: look.real, data: Buffer.concat(kept), mode: (look.mode & 0o777) | 0o400 });
        }
      } catch (error) {
        if (error instanceof DriftedError || !(error instanceof ByleaveError)) {
          throw error;
        }
        throw new DriftedError(`${error.message} Nothing was run.`, error.hint);
      }
    }
  }

  #real(path: string): string {
    try {
      return this.paths.with(this.paths.relative(path), O_PATH, ({ real }) => real);
    } catch {
      throw drifted(path);
    }
  }

  /** Watch each name of `way`, which leads to `path`. */
  #watch(way: string, path: string): void {
    const parts = way.split("/");
    parts.forEach((name, index) => {
      if (name === "..") {
        return;
      }
      try {
        this.paths.with(parts.slice(0, index).join("/") || ".", O_PATH, ({ base }) => {
          const last = index === parts.length - 1;
          const watcher = watch(base, (kind, changed) => {
            const counts = kind === "rename" || (last && !this.covered);
            if (counts && (changed === name || changed === null)) {
              this.#note(path);
            }
          });
          watcher.on("error", () => this.#note(path)); // what happened cannot be told, so it counts
          this.#watchers.push(watcher);
        });
      } catch {
        throw drifted(path);
      }
    });
  }

  #note(path: string): void {
    this.drifted ??= path;
    this.#changed?.();
  }

  /** Right before the start: has anything changed since the files were compared? */
  async check(): Promise<void> {
    await new Promise(setImmediate); // what the system has told by now is heard
    if (this.drifted !== undefined) {
      throw drifted(this.drifted);
    }
  }

  /** Watch the start: call `kill` at a change, until `close` or until the start is over. */
  begin(kill: () => void): void {
    this.#changed = kill;
    this.#timer = this.clock.after(START, () => this.close());
  }

  /** The start is over; the files may change again. */
  close(): void {
    this.#changed = undefined;
    this.#timer?.cancel();
    for (const watcher of this.#watchers.splice(0)) {
      watcher.close();
    }
    this.#end();
  }
}

/** All holdings of one workspace. */
export class HeldFiles {
  readonly #holdings = new Set<Holding>();

  constructor(
    private readonly paths: PathValidator,
    private readonly maxBytes: number,
    private readonly clock: Clock = SYSTEM_CLOCK,
  ) {}

  /** Compare files with what was shown, and hold them while a command starts. */
  async hold(bound: Readonly<Record<string, string>>, watches: boolean): Promise<Holding> {
    const holding = new Holding(this.paths, bound, watches, this.maxBytes, this.clock);
    this.#holdings.add(holding);
    void holding.over.then(() => this.#holdings.delete(holding));
    try {
      await holding.take();
      return holding;
    } catch (error) {
      holding.close();
      throw error;
    }
  }

  /** Wait until no command that is starting holds the file at `path`: our own writes must not disturb it. */
  async free(path: string): Promise<void> {
    for (;;) {
      let real: string;
      try {
        real = this.paths.with(this.paths.relative(path), O_PATH, (opened) => opened.real);
      } catch {
        return; // what is wrong with it is told by the one who writes
      }
      const holding = [...this.#holdings].find((one) => one.pins.some((pin) => pin.path === real));
      if (holding === undefined) {
        return;
      }
      await holding.over;
    }
  }
}
