// Signals that wait for a place, in order: bounded by their number and by the bytes they hold (C3). A signal carries the
// whole content of a write, and it is queued before the gate has judged it, so every text in it counts. What does not fit is
// refused with an error to report; nothing already here is dropped.

import type { ExecutionSignal } from "@protocol";
import { ConcurrencyLimitError } from "./errors.js";

const MAX_QUEUED_BYTES = 256 * 1024 * 1024;

/** A queue by tool id. */
export class WaitingSignals {
  readonly #signals = new Map<string, { readonly event: ExecutionSignal; readonly size: number }>();
  #bytes = 0;

  constructor(
    private readonly limit: number,
    private readonly maxBytes = MAX_QUEUED_BYTES,
  ) {}

  /** What waits, in order. */
  get signals(): ExecutionSignal[] {
    return [...this.#signals.values()].map(({ event }) => event);
  }

  /** Put it at the end; throws when there is no room for it. */
  add(event: ExecutionSignal): void {
    const size = Buffer.byteLength(JSON.stringify(event.tool_params));
    const count = this.#signals.size;
    if (count >= this.limit) {
      throw new ConcurrencyLimitError(`${count} calls wait on this machine already; it was not run.`);
    }
    if (this.#bytes + size > this.maxBytes) {
      throw new ConcurrencyLimitError(
        `Calls of ${this.#bytes} bytes wait on this machine already and this one has ${size}; it was not run.`,
        "call it again when others have ended",
      );
    }
    this.#signals.set(event.tool_id, { event, size });
    this.#bytes += size;
  }

  /** Take one out of the order; undefined when it does not wait here. */
  take(toolId: string): ExecutionSignal | undefined {
    const found = this.#signals.get(toolId);
    this.#signals.delete(toolId);
    this.#bytes -= found?.size ?? 0;
    return found?.event;
  }

  /** Take the one that has waited longest. */
  next(): ExecutionSignal | undefined {
    const [first] = this.#signals.keys();
    return first === undefined ? undefined : this.take(first);
  }
}
