// Reports on their way to the server: sent until it has them, kept while it cannot be reached (C5). A report leaves the
// journal only when the server took it, or said that the execution is over or unknown. A report the server cannot read is
// replaced once by a short failure, so that the agent hears of it.

import type { FailedReport } from "@protocol";
import { ByleaveError, CallerError, ConflictError, NotFound, UnreachableError } from "./errors.js";
import type { Journal } from "./journal.js";
import { type Link, pauseBefore } from "./link.js";
import { type Clock, type Log, sleep, type Timer } from "./ports.js";
import { firstCharacters, TABLES, timestamp } from "./words.js";

export interface OutboxParts {
  readonly link: Link;
  readonly projectId: string;
  readonly journal: Journal;
  readonly tries: number;
  readonly clock: Clock;
  readonly log: Log;
}

/** Sends the reports of one client's journal. */
export class Outbox {
  readonly #sending = new Set<string>();
  readonly #stop = new AbortController();
  #timer: Timer | undefined;

  constructor(private readonly parts: OutboxParts) {}

  /** Post a report; whether the matter is over. What fails is kept. */
  async send(toolId: string): Promise<boolean> {
    if (this.#sending.has(toolId)) {
      return false;
    }
    this.#sending.add(toolId);
    try {
      return await this.#send(toolId);
    } finally {
      this.#sending.delete(toolId);
    }
  }

  async #send(toolId: string): Promise<boolean> {
    const { clock, journal, link, log, projectId, tries } = this.parts;
    let [failures, replaced] = [0, false];
    while (failures < tries && !this.#stop.signal.aborted) {
      const body = journal.report(toolId);
      if (body === undefined) {
        return true;
      }
      try {
        await link.postResult(projectId, toolId, body);
        log.info("result accepted", { tool_id: toolId });
      } catch (error) {
        if (error instanceof NotFound || error instanceof ConflictError) {
          log.info("result no longer wanted", { tool_id: toolId, answer: error.message });
        } else if (error instanceof CallerError) {
          log.error("result not understood by the server", { tool_id: toolId, error: error.message });
          if (!replaced) {
            replaced = true;
            await journal.done(toolId, unreadable(error, clock), false);
            continue;
          }
        } else if (error instanceof UnreachableError) {
          failures += 1;
          log.warn("result not delivered", { tool_id: toolId, attempt: failures, error: error.message });
          if (failures < tries) {
            await sleep(clock, pauseBefore(failures - 1), this.#stop.signal);
          }
          continue;
        } else if (error instanceof ByleaveError) {
          // The token or its scopes: a person mends that, and the report is still there then.
          log.error("result refused", { tool_id: toolId, error: error.message });
          return this.#keep(toolId);
        } else {
          throw error;
        }
      }
      await journal.accepted(toolId);
      return true;
    }
    return this.#keep(toolId);
  }

  /** The server said that a call is over; whether something of it was still kept here. */
  settled(toolId: string): boolean {
    if (this.#sending.has(toolId) || this.parts.journal.report(toolId) === undefined) {
      return false;
    }
    void this.parts.journal.accepted(toolId);
    return true;
  }

  /** Send all that is kept, oldest first; stops at the first that does not get through. */
  async resend(toolIds: readonly string[] = this.parts.journal.unsent): Promise<void> {
    for (const toolId of toolIds) {
      if (!this.#sending.has(toolId) && !(await this.send(toolId))) {
        return;
      }
    }
  }

  /** Stop sending; what is kept is in the journal. */
  close(): void {
    this.#stop.abort();
    this.#timer?.cancel();
  }

  #keep(toolId: string): boolean {
    this.parts.log.warn("result kept for the next connection", { tool_id: toolId });
    if (this.#timer === undefined && !this.#stop.signal.aborted) {
      // A stream that stays up while posts fail brings no reconnection: try again all the same.
      this.#timer = this.parts.clock.after(TABLES.try_again_seconds * 1000, () => {
        this.#timer = undefined;
        void this.resend();
      });
    }
    return false;
  }
}

function unreadable(error: ByleaveError, clock: Clock): string {
  const report: FailedReport = {
    status: "failed",
    error: firstCharacters(`It ended, but the server did not take its result: ${error.message}`, 1000),
    error_type: "internal",
    timestamp: timestamp(clock.now()),
  };
  return JSON.stringify(report);
}
