// Until when a call may take effect. When the time passes in the middle the call is called off; and whoever is about to
// change something asks the clock itself, right before: a timer can come late, as after the machine slept.

import { ExecutionTimeout } from "./errors.js";
import type { Clock, Timer } from "./ports.js";

export const TOO_LATE = "Its time was up before it could be run; nothing was run.";

/** Right before an effect: throws when its time is up, and then there was none. */
export function refuseLate(late: (() => boolean) | undefined): void {
  if (late?.()) {
    throw new ExecutionTimeout(TOO_LATE);
  }
}

export class Deadline {
  readonly #passed = new AbortController();
  readonly #timer: Timer;
  readonly #most: number;

  /** `until`: in milliseconds since 1970, on our clock; `longest`: no call takes more. Throws where it is too late. */
  constructor(
    private readonly clock: Clock,
    private readonly until: number,
    longest: number,
  ) {
    this.#most = Math.min(longest, until - clock.now());
    if (this.#most <= 0) {
      throw new ExecutionTimeout(TOO_LATE);
    }
    this.#timer = clock.after(this.#most, () => this.#passed.abort());
  }

  /** Aborted when it passes. */
  get signal(): AbortSignal {
    return this.#passed.signal;
  }

  /** Whether nothing may take effect any more. */
  readonly late = (): boolean => this.clock.now() >= this.until;

  /** What a call ended with, in view of the deadline. */
  told(error: unknown): unknown {
    const ours = this.signal.aborted && !(error instanceof ExecutionTimeout);
    return ours ? new ExecutionTimeout(`It did not end within ${Math.round(this.#most / 1000)} s.`) : error;
  }

  end(): void {
    this.#timer.cancel();
  }
}
