// Keeping what was there: what a write replaces, so that it can be undone. The old content is kept in the same moment in
// which it is replaced, and the entry is on the disk before the new file has its name. Recording never stops a call: what
// could not be kept is said with the result. While a call acts no undo begins, and the other way round.

import { closeSync, fstatSync, openSync } from "node:fs";
import { codeOf, ToolFailure } from "./errors.js";
import { nameOf, type PathValidator, READ } from "./PathValidator.js";
import { type Clock, sleep } from "./ports.js";
import { digestOf } from "./replacing.js";
import type { Entry, UndoList } from "./undo_list.js";
import { look, type State, stateOf } from "./undo_states.js";
import type { ContentStore } from "./undo_store.js";
import type { Replacing } from "./writing.js";

/** The largest file that is kept. */
export const CALL_BYTES = 50 * 1024 * 1024;
const SWEEP_EVERY = 60_000;
const BUSY = "A call runs in this workspace right now, so nothing is undone.";

/** Calls run side by side, and an undo only while none does. */
export class CallGate {
  #calls = 0;
  #undoing = false;
  readonly #waiting = new Set<() => void>();

  constructor(private readonly clock: Clock) {}

  /** A call acts; the function that is given ends it. */
  async begin(): Promise<() => void> {
    while (this.#undoing) {
      await this.#change();
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
}

/** What a write that is being recorded says afterwards. */
export interface KeptWrite {
  keep(replacing: Replacing): Promise<void>;
  /** Why it cannot be undone. */
  readonly warning: string | undefined;
}

/** Records what calls change in one workspace. */
export class UndoRecorder {
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
  }

  /** Around a write: what it replaces is kept under this id. */
  async writing<T extends { readonly warnings: readonly string[] }>(
    id: string,
    summary: string,
    write: (keep: (replacing: Replacing) => Promise<void>) => Promise<T>,
  ): Promise<T> {
    const end = await this.gate.begin();
    const kept = new Keeping(this.paths, this.store, this.list, this.limits.callBytes ?? CALL_BYTES, (changes) => ({
      id,
      toolName: "write_file",
      summary,
      at: this.clock.now(),
      changes,
      notes: [],
      together: [],
      undoes: null,
      done: true,
    }));
    try {
      const result = await write((replacing) => kept.keep(replacing));
      this.changed();
      return kept.warning === undefined ? result : { ...result, warnings: [...result.warnings, kept.warning] };
    } catch (error) {
      await kept.void(id);
      throw error;
    } finally {
      end();
      await this.#sweepIfFull();
    }
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
class Keeping implements KeptWrite {
  warning: string | undefined;
  #recorded = false;

  constructor(
    private readonly paths: PathValidator,
    private readonly store: ContentStore,
    private readonly list: UndoList,
    private readonly most: number,
    private readonly entry: (changes: Entry["changes"]) => Entry,
  ) {}

  async keep({ fd, made, old, real }: Replacing): Promise<void> {
    this.warning = undefined; // it may be the second try
    try {
      const before = old === undefined ? null : await this.#old(old.fd, real);
      const info = fstatSync(fd, { bigint: true });
      const after = { ...stateOf(info), digest: await digestOf(fd, Number(info.size)) };
      const directories = made.map((path) => [path, null, look(this.paths, path)] as const);
      await this.store.sync();
      const entry = this.entry([...directories, [real, before, after]]);
      await this.list.put({ ...entry, notes: this.warning === undefined ? [] : [this.warning] });
      this.#recorded = true;
    } catch (error) {
      this.warning = notKept(error);
    }
  }

  /** The write did not happen after all. */
  async void(id: string): Promise<void> {
    if (this.#recorded) {
      // Where that cannot be written the entry stays, and undoing it finds that there is nothing to do.
      await this.list.remove(id).catch(() => {});
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
  const code = codeOf(error) ?? "unknown";
  return `This cannot be undone: what was there before could not be kept (${WHY[code] ?? code}).`;
}
