// Who may run beside whom: commands that hold what they must not change as mounts run together; one that could swap a name
// another's mount is about to follow runs alone. In the order they came, so that nobody waits for ever; who is called off
// while waiting leaves at once.

import { ExecutionCancelled } from "./errors.js";

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
