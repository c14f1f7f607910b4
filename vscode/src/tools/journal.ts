// What this machine did, written down before it is done: the reason no call ever runs twice, not even after the editor was
// restarted. `acting` is written before a tool acts, `done` with the report before it is posted, `over` once the server has
// it. After a crash, `acting` becomes a report that says so (never a second run), and `done` is sent again. Where a line
// cannot be written nothing is executed, and where one cannot be read its call counts as run.

import type { FailedReport } from "@protocol";
import { codeOf, MachineError } from "./errors.js";
import { type Clock, type Log, type Memory, SYSTEM_CLOCK } from "./ports.js";
import { TABLES, timestamp } from "./words.js";

const KEPT_IDS = 10_000;
const PREFIX = "call:";

type Entry = { readonly step: "acting" | "over" } | { readonly step: "done"; readonly report: string };

/** One client's memory of its executions. */
export class Journal {
  readonly #taken = new Set<string>();
  /** Reports the disk did not take: they are sent all the same. */
  readonly #unwritten = new Map<string, string>();
  #kept = 0;

  private constructor(
    private readonly memory: Memory,
    private readonly log: Log,
  ) {}

  /** Read what an earlier run left: what acted then is reported as interrupted. */
  static async open(memory: Memory, log: Log, clock: Clock = SYSTEM_CLOCK): Promise<Journal> {
    const journal = new Journal(memory, log);
    for (const key of [...memory.keys()].filter((one) => one.startsWith(PREFIX))) {
      journal.#kept += 1;
      if (entryOf(memory.read(key)).step === "acting") {
        log.warn("interrupted by the client's end", { tool_id: key.slice(PREFIX.length) });
        const error = TABLES.interrupted;
        const report: FailedReport = {
          status: "failed",
          error,
          error_type: "interrupted",
          timestamp: timestamp(clock.now()),
        };
        await memory.write(key, JSON.stringify({ step: "done", report: JSON.stringify(report) }), false);
      }
    }
    return journal;
  }

  /** Whether this call reached this machine before. */
  knows(toolId: string): boolean {
    return this.#taken.has(toolId) || this.memory.read(PREFIX + toolId) !== undefined;
  }

  /** Count a call as known while this program lives; one that never acts may be signalled to the next. */
  take(toolId: string): void {
    this.#taken.add(toolId);
  }

  /** The calls whose report the server does not have yet, oldest first. */
  get unsent(): string[] {
    const written = [...this.memory.keys()]
      .filter((key) => key.startsWith(PREFIX) && entryOf(this.memory.read(key)).step === "done")
      .map((key) => key.slice(PREFIX.length));
    return [...new Set([...written, ...this.#unwritten.keys()])];
  }

  /** The report of a call as it will be posted; undefined when there is none to send. */
  report(toolId: string): string | undefined {
    const unwritten = this.#unwritten.get(toolId);
    if (unwritten !== undefined) {
      return unwritten;
    }
    const entry = entryOf(this.memory.read(PREFIX + toolId));
    return entry.step === "done" ? entry.report : undefined;
  }

  /** Write that a tool is about to act. Rejects when that cannot be written: then it must not act. */
  async acting(toolId: string, durable: boolean): Promise<void> {
    try {
      await this.#write(toolId, { step: "acting" }, durable);
    } catch (error) {
      throw new MachineError(
        `The client's journal cannot be written (${codeOf(error) ?? "unknown"}), so nothing was run.`,
        "free some space on the disk",
      );
    }
  }

  /** Keep a report until the server has it. A full disk costs its safety across a crash, not the report. */
  async done(toolId: string, report: string, durable: boolean): Promise<void> {
    try {
      await this.#write(toolId, { step: "done", report }, durable);
      this.#unwritten.delete(toolId);
    } catch (error) {
      this.#unwritten.set(toolId, report);
      this.log.error("result not written to the journal", { tool_id: toolId, error: codeOf(error) });
    }
  }

  /** The server has the report, or wants none: forget it, remember the id. */
  async accepted(toolId: string): Promise<void> {
    this.#unwritten.delete(toolId);
    try {
      await this.#write(toolId, { step: "over" }, false);
      await this.#forget();
    } catch (error) {
      // Sent again after a restart, and then told that it is over.
      this.log.error("acceptance not written to the journal", { tool_id: toolId, error: codeOf(error) });
    }
  }

  async #write(toolId: string, entry: Entry, durable: boolean): Promise<void> {
    this.#taken.add(toolId);
    this.#kept += this.memory.read(PREFIX + toolId) === undefined ? 1 : 0;
    await this.memory.write(PREFIX + toolId, JSON.stringify(entry), durable);
  }

  /** Drop the oldest ids beyond what is kept, but none that is still open. */
  async #forget(): Promise<void> {
    if (this.#kept <= 2 * KEPT_IDS) {
      return;
    }
    const over = [...this.memory.keys()].filter(
      (key) => key.startsWith(PREFIX) && entryOf(this.memory.read(key)).step === "over",
    );
    for (const key of over.slice(0, this.#kept - KEPT_IDS)) {
      await this.memory.remove(key);
      this.#kept -= 1;
    }
  }

  close(): void {
    this.memory.close();
  }
}

/** What is written of a call; what cannot be read counts as begun, and what is not there as over. */
function entryOf(text: string | undefined): Entry {
  if (text === undefined) {
    return { step: "over" };
  }
  try {
    const entry = JSON.parse(text) as { step?: unknown; report?: unknown };
    if (entry.step === "done" && typeof entry.report === "string") {
      return { step: "done", report: entry.report };
    }
    return { step: entry.step === "over" ? "over" : "acting" };
  } catch {
    return { step: "acting" };
  }
}
