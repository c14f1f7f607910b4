// Who may run beside whom: commands that hold what they must not change as mounts run together; one that could swap a name
// another's mount is about to follow runs alone. In the order they came, so that nobody waits for ever; who is called off
// while waiting leaves at once. And a write that replaces a protected name (`WriteTurns`) waits for the commands that run:
// the sandbox keeps it read-only by a mount, which a file that is replaced loses. Where such a name is a link, that goes
// for what it leads to.

import { ExecutionCancelled, ToolFailure } from "./errors.js";
import { type Clock, SYSTEM_CLOCK } from "./ports.js";
import { repr, TABLES } from "./words.js";

/** Less than a write has, by what it may take itself: else nobody is told what it waited for. */
export const MAX_WAIT = 40_000;

/** What is waited for, or a rejection as soon as it is called off. */
export function unlessCalledOff(waiting: Promise<void>, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    const leave = () => reject(new ExecutionCancelled("It was called off while it waited for its turn."));
    signal?.addEventListener("abort", leave, { once: true });
    void waiting.then(() => {
      signal?.removeEventListener("abort", leave);
      resolve();
    });
    if (signal?.aborted) leave();
  });
}

export class Turns {
  #running = 0;
  #alone = false;
  readonly #waiting: { readonly alone: boolean; readonly begin: () => void }[] = [];

  /** Wait for a turn; the function that is given ends it. Rejects when it is called off before it has one. */
  async take(alone: boolean, signal?: AbortSignal): Promise<() => void> {
    await new Promise<void>((resolve, reject) => {
      const leave = () => {
        this.#waiting.splice(this.#waiting.indexOf(waits), 1);
        reject(new ExecutionCancelled("It was called off while it waited for its turn."));
        this.#next(); // those behind may run beside the ones that do
      };
      const begin = () => {
        signal?.removeEventListener("abort", leave);
        resolve();
      };
      const waits = { alone, begin };
      this.#waiting.push(waits);
      signal?.addEventListener("abort", leave, { once: true });
      if (signal?.aborted) leave();
      else this.#next();
    });
    let over = false;
    return () => {
      if (!over) {
        over = true;
        this.#running -= 1;
        this.#alone = false;
        this.#next();
      }
    };
  }

  #next(): void {
    for (let first = this.#waiting[0]; first !== undefined; first = this.#waiting[0]) {
      if (this.#alone || (first.alone && this.#running > 0)) {
        return;
      }
      this.#waiting.shift();
      this.#running += 1;
      this.#alone = first.alone;
      first.begin();
    }
  }
}

/** Whose turn it is in one workspace: commands, or a write to a name they are held off. */
export class WriteTurns {
  /** Of each command that runs, what the protected names that are links led to when it began. */
  readonly #commands = new Set<readonly string[]>();
  #writes = 0;
  #waiting: (() => void)[] = [];

  constructor(private readonly clock: Clock = SYSTEM_CLOCK) {}

  /** Run a command, once no such write is under way. `ledTo`: what the protected names that are links lead to. */
  async command<T>(run: () => Promise<T>, ledTo: readonly string[] = [], signal?: AbortSignal): Promise<T> {
    while (this.#writes > 0) {
      await this.#next(signal);
    }
    const own = [...ledTo];
    this.#commands.add(own); // nothing waits between the look and this
    try {
      return await run();
    } finally {
      this.#commands.delete(own);
      this.#ended();
    }
  }

  /** Write the file at a real path (from the workspace, links resolved). */
  async write<T>(real: string, run: () => Promise<T>, ledTo: readonly string[] = [], signal?: AbortSignal): Promise<T> {
    // As it is now, and as it was when the commands began: one of them may have replaced the link.
    const isLedTo = [ledTo, ...this.#commands].some((paths) => paths.includes(real));
    if (!TABLES.protected.includes(real.split("/", 1)[0] as string) && !isLedTo) {
      return run();
    }
    await this.#begin(real, signal);
    try {
      return await run();
    } finally {
      this.#writes -= 1;
      this.#ended();
    }
  }

  async #begin(real: string, signal: AbortSignal | undefined): Promise<void> {
    const stop = new AbortController();
    const cancel = () => stop.abort();
    const timer = this.clock.after(MAX_WAIT, cancel);
    signal?.addEventListener("abort", cancel, { once: true });
    if (signal?.aborted) cancel();
    try {
      while (this.#commands.size > 0) {
        await this.#next(stop.signal);
      }
      this.#writes += 1;
    } catch (error) {
      if (signal?.aborted) {
        throw error;
      }
      throw new ToolFailure(
        `${repr(real)} was not written: commands are still running, and while it is replaced they could change it.`,
        "Wait until they have ended, or cancel them.",
      );
    } finally {
      timer.cancel();
      signal?.removeEventListener("abort", cancel);
    }
  }

  /** Until the next one ends. */
  #next(signal: AbortSignal | undefined): Promise<void> {
    return unlessCalledOff(new Promise<void>((resolve) => this.#waiting.push(resolve)), signal);
  }

  #ended(): void {
    for (const wake of this.#waiting.splice(0)) {
      wake();
    }
  }
}
