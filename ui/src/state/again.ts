// Trying again what the server could not answer, after pauses that grow, until it worked or nobody wants it any more.

import { Problem } from "../api";
import { FIRST_PAUSE_MS, LONGEST_PAUSE_MS } from "../feed";

/** What went wrong and what to do about it. */
export function told(error: unknown): string {
  const hint = error instanceof Problem ? error.hint : null;
  const text = error instanceof Error ? error.message : String(error);
  return hint === null ? text : `${text} ${hint}`;
}

export function pauseAfter(tries: number): number {
  return Math.min(FIRST_PAUSE_MS * 2 ** tries, LONGEST_PAUSE_MS);
}

export class Again {
  #tries = 0;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #work: (() => void) | null = null;

  /** Does it after the next pause; one that waits already is not done twice. */
  later(work: () => void): void {
    if (this.#work) return;
    this.#work = work;
    this.#timer = setTimeout(() => this.now(), pauseAfter(this.#tries));
    this.#tries += 1;
  }

  /** Does what waits at once. */
  now(): void {
    const work = this.#work;
    clearTimeout(this.#timer);
    this.#work = null;
    work?.();
  }

  /** It worked, or something else is wanted. */
  reset(): void {
    clearTimeout(this.#timer);
    this.#work = null;
    this.#tries = 0;
  }
}
