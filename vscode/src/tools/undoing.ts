// Undo asked for from elsewhere: `tool.undo_request` in, one report out. One at a time, beside the executions; the desk sees
// to it that none runs meanwhile. A request that was seen before, that is meant for another client or whose time is up is
// not carried out: a feed that is replayed must not act late or twice. What was begun is reported until the server has it,
// also on the next connection and by a client that was killed in between; anything else only while somebody waits for it.
// One that takes long says so. Nothing here decides what may be undone.

import type { UndoPlan, UndoReport, UndoRequested } from "@protocol";
import { maskText } from "../gate/index.js";
import { ByleaveError, codeOf, kindOf, systemWords, UnreachableError } from "./errors.js";
import { type Link, pauseBefore } from "./link.js";
import { type Clock, type Log, sleep } from "./ports.js";
import { type KeepOff, type UndoDesk, UndoRefused } from "./undo_desk.js";
import type { UndoIntent, UndoIntents } from "./undo_intents.js";
import { firstCharacters, withWhatToDo } from "./words.js";

const TRIES = 5;
/** More requests than this at once are not taken; whoever asks is told by the server that no answer came. */
const WAITING = 16;
const REMEMBERED = 1000;
const LAST_POST = 2_000;
/** Whoever waits for an undo that takes longer is told that it was begun. */
const LONG = 5_000;
const MAX_PROBLEM = 1000;
const NOTHING_DONE = "The client stopped before anything was undone.";
const HALF_DONE =
  "The client stopped in the middle: some paths may be as before the call, others not. " +
  "Look at what undoing would do now.";
const NOTHING_KEPT = "What calls change could not be kept on this machine, so nothing can be undone from it.";

type Asked = Omit<UndoRequested, "keep_off">;

interface Act {
  readonly request_id: string;
  readonly tool_id: string;
  readonly digest: string;
  readonly partial: boolean;
  readonly keepOff: KeepOff;
  readonly wanted: () => boolean;
}

/** A call was undone because the server asked; under `undoId` that can be taken back. */
export type OnUndone = (plan: UndoPlan, undoId: string) => void;

export interface UndoerParts {
  readonly projectId: string;
  readonly clientId: string;
  /** Left out: nothing could be kept here. */
  readonly desk: UndoDesk | undefined;
  readonly link: Pick<Link, "postUndoReport">;
  /** Ends what is remembered of files: they change. */
  readonly forget: () => void;
  readonly intents: UndoIntents;
  /** Told of each that was carried out and changed something. */
  readonly onUndone?: OnUndone | undefined;
  readonly clock: Clock;
  readonly log: Log;
}

/** Undoes calls in one workspace when the server asks. */
export class Undoer {
  readonly #seen = new Set<string>();
  readonly #work = new Set<Promise<void>>();
  /** Of what was begun: by request, until the server has it. */
  readonly #unsent = new Map<string, { readonly toolId: string; readonly report: UndoReport }>();
  readonly #closed = new AbortController();
  #turn: Promise<unknown> = Promise.resolve();

  constructor(private readonly parts: UndoerParts) {}

  /** Answer in the background. `ahead`: milliseconds the server's clock is ahead of ours. */
  request(event: UndoRequested, ahead: number): void {
    const { clientId, log } = this.parts;
    const fields = { tool_id: event.tool_id };
    if (this.#closed.signal.aborted || event.client_id !== clientId) {
      return;
    }
    if (this.#seen.has(event.request_id)) {
      log.warn("repeated undo request ignored", fields);
      return;
    }
    if (this.#isLate(event, ahead)) {
      log.info("late undo request ignored", fields);
      return;
    }
    if (this.#work.size >= WAITING) {
      log.warn("undo request left out", fields);
      return;
    }
    this.#seen.add(event.request_id);
    forgetOldest(this.#seen);
    log.info("undo requested", { ...fields, acts: event.plan !== null });
    const work = this.#answer(event, ahead);
    this.#work.add(work);
    void work.then(() => this.#work.delete(work));
  }

  /** Deliver what could not be delivered, also by a client that was killed. Never rejects. */
  async resend(): Promise<void> {
    const { desk, intents } = this.parts;
    for (const intent of desk === undefined ? [] : [...intents.left.values()]) {
      await this.#post(intent.toolId, owed(intent, desk as UndoDesk));
    }
    for (const { report, toolId } of [...this.#unsent.values()]) {
      await this.#post(toolId, report);
    }
  }

  /** Begin nothing more; what is being undone comes to its end, and is told if the server answers soon. */
  async close(): Promise<void> {
    this.#closed.abort();
    await this.#turn;
    const stop = new AbortController();
    await Promise.race([Promise.all(this.#work), sleep(this.parts.clock, LAST_POST, stop.signal)]);
    stop.abort();
  }

  async #answer(event: UndoRequested, ahead: number): Promise<void> {
    const acting = this.#turn.then(() => (this.#closed.signal.aborted ? undefined : this.#act(event, ahead)));
    this.#turn = acting;
    const report = await acting;
    if (report === undefined) {
      return;
    }
    this.#show(report);
    if (this.parts.intents.has(event.request_id)) {
      this.#unsent.set(event.request_id, { toolId: event.tool_id, report });
      forgetOldest(this.#unsent);
    }
    for (let attempt = 0; attempt < TRIES && !(await this.#post(event.tool_id, report)); attempt += 1) {
      await sleep(this.parts.clock, pauseBefore(attempt), this.#closed.signal);
    }
  }

  /** To whoever is at this machine. What becomes of that does not concern the report. */
  #show({ done, plan, undo_id: undoId }: UndoReport): void {
    if (!done || !plan || !undoId) {
      return;
    }
    try {
      this.parts.onUndone?.(plan, undoId);
    } catch (error) {
      this.parts.log.error("undo not shown", { tool_id: plan.tool_id, error: String(error) });
    }
  }

  /** One report, whatever goes wrong. */
  async #act(event: UndoRequested, ahead: number): Promise<UndoReport> {
    const { desk, forget, log } = this.parts;
    // A server of an earlier version says nothing of it.
    const {
      keep_off: keepOff = {},
      partial,
      plan: digest,
      request_id,
      tool_id,
    } = event as Partial<UndoRequested> & Asked;
    if (desk === undefined) {
      return { request_id, problem: NOTHING_KEPT };
    }
    try {
      if (digest === null) {
        return { request_id, plan: await desk.look(tool_id, keepOff) };
      }
      forget();
      try {
        const wanted = () => !this.#isLate(event, ahead);
        const { plan, undoId } = await this.#carryOut(desk, { digest, keepOff, partial, request_id, tool_id, wanted });
        log.info("undone", { tool_id, undo_id: undoId, paths: plan.total_files });
        return { request_id, plan, undo_id: undoId, done: true };
      } finally {
        forget();
      }
    } catch (error) {
      if (error instanceof UndoRefused) {
        return { request_id, plan: error.plan, problem: problemOf(error) };
      }
      if (error instanceof ByleaveError) {
        return { request_id, problem: problemOf(error) };
      }
      // The boundary: every request is answered, whatever goes wrong.
      log.error("undo failed unexpectedly", { tool_id, error: String(error) });
      return { request_id, problem: unexpected(error) };
    }
  }

  /** Undo it; who waits is told when that takes long. */
  async #carryOut(desk: UndoDesk, asked: Act): ReturnType<UndoDesk["carryOut"]> {
    const { clock, intents } = this.parts;
    const { digest, keepOff, partial, request_id, tool_id } = asked;
    const begun = new AbortController();
    const over = new AbortController();
    const wanted = async () => {
      if (!asked.wanted()) {
        return false;
      }
      await intents.keep(request_id, tool_id, digest, clock.now());
      if (!asked.wanted()) {
        intents.drop(request_id); // a disk takes its time
        return false;
      }
      begun.abort();
      return true;
    };
    const telling = this.#sayIfLong(asked, begun.signal, over.signal);
    try {
      return await desk.carryOut(tool_id, digest, partial, wanted, keepOff);
    } finally {
      over.abort();
      await telling; // else the server could hear that it was begun after it heard how it ended
    }
  }

  /** Once; nothing depends on it. */
  async #sayIfLong({ request_id, tool_id }: Act, begun: AbortSignal, over: AbortSignal): Promise<void> {
    const { clock, link, log, projectId } = this.parts;
    do {
      await sleep(clock, LONG, over);
    } while (!begun.aborted && !over.aborted);
    if (over.aborted) {
      return;
    }
    try {
      await link.postUndoReport(projectId, tool_id, { request_id, begun: true });
    } catch (error) {
      log.info("undo under way not told", { tool_id, error: (error as Error).message });
    }
  }

  /** Whether the matter is over. */
  async #post(toolId: string, report: UndoReport): Promise<boolean> {
    const { link, log, projectId } = this.parts;
    try {
      await link.postUndoReport(projectId, toolId, report);
    } catch (error) {
      const fields = { tool_id: toolId, error: (error as Error).message };
      if (error instanceof UnreachableError) {
        log.warn("undo report not delivered", fields);
        return false;
      }
      log.warn("undo report not taken", fields);
    }
    this.#unsent.delete(report.request_id);
    this.parts.intents.drop(report.request_id);
    return true;
  }

  #isLate(event: UndoRequested, ahead: number): boolean {
    return this.parts.clock.now() + ahead >= Date.parse(event.deadline);
  }
}

/** What a client that was killed did not get to say. */
function owed({ at, plan, requestId: request_id, toolId: tool_id }: UndoIntent, desk: UndoDesk): UndoReport {
  const found = desk.outcome(tool_id, at);
  if (found === undefined || !found.finished) {
    return { request_id, problem: found === undefined ? NOTHING_DONE : HALF_DONE };
  }
  const { paths, undoId } = found;
  return { request_id, plan: { tool_id, plan, files: [], total_files: paths }, undo_id: undoId, done: true };
}

function forgetOldest(known: { readonly size: number; keys(): Iterator<string>; delete(key: string): boolean }): void {
  if (known.size > REMEMBERED) {
    known.delete(String(known.keys().next().value));
  }
}

/** What happened and what to do, as one remark. */
export function problemOf({ hint, message }: ByleaveError): string {
  // Masked before it is cut: half a secret would no longer look like one.
  return firstCharacters(maskText(withWhatToDo(message, hint)), MAX_PROBLEM);
}

function unexpected(error: unknown): string {
  return codeOf(error) === undefined
    ? `The client failed with ${kindOf(error)}; its log says more.`
    : `The machine could not do it: ${systemWords(error)}. Look at the files before you try again.`;
}
