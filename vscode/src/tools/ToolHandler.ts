// ToolHandler: what this machine does with the server's events (C1). A signal that is addressed to this client and new gets
// a place, or waits for one in order; `checks` decides whether it may run, the workspace runs it, and it ends in exactly one
// report, whatever goes wrong. A call never runs twice, and nothing runs that the journal could not write down first.
// Handling an event never waits: reports follow by themselves.

import type {
  ApprovalDecided,
  ApprovalRequested,
  ClientResult,
  ExecutionCancelSignal,
  ExecutionSignal,
  InspectionRequested,
  ReadFileResult,
  ResultAcknowledged,
} from "@protocol";
import { type Gate, maskText } from "../gate/index.js";
import { ApprovalDesk, type PastApproval } from "./approvals.js";
import { ReadCache } from "./cache.js";
import { boundOf, type Passed, SignalChecks } from "./checks.js";
import { Deadline } from "./deadline.js";
import { ByleaveError, ExecutionCancelled, kindOf, ToolTypeError } from "./errors.js";
import { Inspector } from "./inspector.js";
import type { Journal } from "./journal.js";
import type { Link } from "./link.js";
import { LiveOutput } from "./live_output.js";
import { Outbox } from "./outbox.js";
import { type Clock, type Log, NO_LOG, type Prompt, SYSTEM_CLOCK, sleep } from "./ports.js";
import { type Ending, loggedParams, reportOf, summaryOf } from "./reports.js";
import type { AnyResult, Workspace } from "./Workspace.js";
import { WaitingSignals } from "./waiting.js";
import { firstCharacters, isTool, repr, TABLES, type ToolName, timestamp } from "./words.js";

const HISTORY = 200;
/** How long a closing client still tries to deliver; the journal keeps what is left. */
const LAST_POST = 2_000;
/** The workspace keeps each tool's time limit; this much later the client gives up on it. */
const OVERTIME = 15_000;
const ENDED: readonly string[] = ["COMPLETED", "REJECTED", "TIMEOUT", "FAILED"];

export interface HandlerParts {
  readonly projectId: string;
  readonly clientId: string;
  readonly workspace: Workspace;
  readonly gate: Gate;
  readonly journal: Journal;
  readonly link: Link;
  /** Asks the person here; left out: nobody is asked. */
  readonly prompt?: Prompt | undefined;
  readonly log?: Log | undefined;
  readonly clock?: Clock | undefined;
  /** Told whenever what runs or waits has changed. */
  readonly onChange?: (() => void) | undefined;
}

/** One execution that runs now; aborting it ends its process. */
export interface ActiveExecution {
  readonly event: ExecutionSignal;
  readonly stop: AbortController;
  /** When it began, in milliseconds since 1970. */
  readonly since: number;
}

/** Executes what the server signals, asks what needs asking, reports everything. */
export class ToolHandler {
  readonly outbox: Outbox;
  readonly approvals: ApprovalDesk;
  readonly #checks: SignalChecks;
  readonly #inspector: Inspector;
  readonly #cache: ReadCache | undefined;
  readonly #queue: WaitingSignals;
  readonly #active = new Map<string, ActiveExecution>();
  readonly #history: ClientResult[] = [];
  readonly #work = new Set<Promise<void>>();
  readonly #log: Log;
  readonly #clock: Clock;
  #disposed: Promise<void> | undefined;

  constructor(private readonly parts: HandlerParts) {
    const { gate, journal, link, onChange, projectId, prompt, workspace } = parts;
    const { settings } = workspace;
    const [log, clock] = [parts.log ?? NO_LOG, parts.clock ?? SYSTEM_CLOCK];
    this.#log = log;
    this.#clock = clock;
    this.#checks = new SignalChecks({ projectId, workspace, gate, link, clock, log });
    const { approvalTimeoutSeconds: timeoutSeconds, postTries: tries } = settings;
    this.#inspector = new Inspector({ projectId, workspace, gate, link, tries, clock, log });
    this.outbox = new Outbox({ link, projectId, journal, tries, clock, log });
    this.approvals = new ApprovalDesk({ link, projectId, prompt, timeoutSeconds, tries, clock, log, onChange });
    this.#cache = settings.cacheEnabled ? new ReadCache(workspace.root, settings.cacheSeconds, clock) : undefined;
    this.#queue = new WaitingSignals(settings.queueLimit);
  }

  // What is known (C4)

  /** What runs now. */
  get activeExecutions(): ActiveExecution[] {
    return [...this.#active.values()];
  }

  /** What waits for a place, in order. */
  get queued(): ExecutionSignal[] {
    return this.#queue.signals;
  }

  /** How the last executions ended. */
  get history(): ClientResult[] {
    return [...this.#history];
  }

  /** What waits for a person. */
  get pendingApprovals(): ApprovalRequested[] {
    return this.approvals.pending;
  }

  /** How the last questions ended. */
  get approvalHistory(): PastApproval[] {
    return this.approvals.history;
  }

  /** Learn the server's clock, on which deadlines are written. */
  setServerTime(milliseconds: number): void {
    this.#checks.serverAhead = milliseconds - this.#clock.now();
  }

  /** Milliseconds the server's clock is ahead of ours. */
  get serverAhead(): number {
    return this.#checks.serverAhead;
  }

  /** Files changed by another way than a call: nothing that was read of them counts any more (C6). */
  forgetReads(): void {
    this.#cache?.forget();
  }

  // What the server says

  /** A question for the person at this machine. */
  handleToolApprovalRequest(event: ApprovalRequested): void {
    this.approvals.request(event, this.serverAhead);
  }

  /** A question is answered, here or elsewhere. */
  handleToolApprovalDecided(event: ApprovalDecided): void {
    this.approvals.decided(event);
  }

  /** The server asks what a call would run or replace, before it asks a person. */
  handleToolInspectionRequest(event: InspectionRequested): void {
    if (event.client_id === this.parts.clientId) {
      this.#track(this.#inspector.request(event));
    }
  }

  /** Something to execute. */
  handleToolExecutionSignal(event: ExecutionSignal): void {
    const { clientId, journal } = this.parts;
    const { tool_id: toolId, tool_name: tool } = event;
    if (this.#disposed !== undefined) {
      return;
    }
    if (event.client_id !== clientId) {
      // Not ours to fail either: the machine it is meant for may be running it.
      this.#log.warn("signal for another client ignored", { tool_id: toolId });
      return;
    }
    if (journal.knows(toolId)) {
      this.#log.warn("repeated signal ignored", { tool_id: toolId });
      this.#track(this.outbox.resend([toolId]));
      return;
    }
    journal.take(toolId);
    this.#log.info("signal received", { tool_id: toolId, tool, approved_by: event.approved_by });
    if (!isTool(tool)) {
      this.#fail(toolId, tool, new ToolTypeError(`This client has no tool ${repr(firstCharacters(tool, 100))}.`));
    } else if (this.#active.size < this.parts.workspace.settings.concurrency) {
      this.#start(event);
    } else {
      this.#enqueue(event);
    }
    this.parts.onChange?.();
  }

  /** A signal for this client that cannot be understood: it never runs, and the server is told. */
  handleUnreadableSignal(toolId: string): void {
    if (this.#disposed === undefined && !this.parts.journal.knows(toolId)) {
      this.parts.journal.take(toolId);
      this.#fail(toolId, "", new ToolTypeError("This client could not understand the signal; nothing was run."));
    }
  }

  /** Call off what runs or waits; what is over stays as it is. */
  handleToolCancelSignal(event: ExecutionCancelSignal): void {
    if (event.client_id === this.parts.clientId) {
      this.#log.info("called off", { tool_id: event.tool_id });
      this.#cancel(event.tool_id, "It was called off.");
    }
  }

  /** The server has the result of a call: nothing of it needs sending again. */
  handleToolResultAck(event: ResultAcknowledged): void {
    const fields = { tool_id: event.tool_id, status: event.status };
    if (ENDED.includes(event.status) && this.outbox.settled(event.tool_id)) {
      this.#log.info("result acknowledged", fields);
    } else {
      this.#log.debug("acknowledgement of nothing open", fields);
    }
  }

  /** End everything (C8): timers, questions, queue, processes. What is not delivered stays in the journal. */
  dispose(): Promise<void> {
    this.#disposed ??= this.#dispose();
    return this.#disposed;
  }

  async #dispose(): Promise<void> {
    this.#log.info("closing", { active: this.#active.size, queued: this.queued.length });
    this.approvals.close();
    this.#inspector.close();
    for (const event of this.queued) {
      this.#cancel(event.tool_id, "The client was closed before this was run.");
    }
    for (const toolId of [...this.#active.keys()]) {
      this.#cancel(toolId, "The client was closed while this ran; part of its effect may remain.");
    }
    // Until the processes are gone, however long that takes: none may outlive the client.
    while (this.#active.size > 0) {
      await Promise.race(this.#work);
    }
    const stop = new AbortController();
    await Promise.race([Promise.all(this.#work), sleep(this.#clock, LAST_POST, stop.signal)]);
    stop.abort();
    this.outbox.close();
    this.parts.journal.close();
  }

  // Places and order (C3)

  #start(event: ExecutionSignal): void {
    this.#active.set(event.tool_id, { event, stop: new AbortController(), since: this.#clock.now() });
    this.#track(this.#execute(event));
  }

  #enqueue(event: ExecutionSignal): void {
    try {
      this.#queue.add(event);
      this.#log.info("queued", { tool_id: event.tool_id, waiting: this.queued.length });
    } catch (error) {
      this.#fail(event.tool_id, event.tool_name, error as ByleaveError);
    }
  }

  /** Hold some work until it ends; closing waits for it. */
  #track(work: Promise<void>): void {
    const held = work.catch((error: unknown) => this.#log.error("failed unexpectedly", { error: kindOf(error) }));
    this.#work.add(held);
    void held.then(() => this.#work.delete(held));
  }

  #release(toolId: string): void {
    this.#active.delete(toolId);
    const waiting = this.#disposed === undefined ? this.#queue.next() : undefined;
    if (waiting !== undefined) {
      this.#start(waiting);
    }
    this.parts.onChange?.();
  }

  #cancel(toolId: string, why: string): void {
    this.#active.get(toolId)?.stop.abort(new ExecutionCancelled(why));
    const waiting = this.#queue.take(toolId);
    if (waiting !== undefined) {
      this.#fail(toolId, waiting.tool_name, new ExecutionCancelled(why));
      this.parts.onChange?.();
    }
  }

  /** Report a call that never ran. */
  #fail(toolId: string, toolName: string, error: ByleaveError): void {
    this.#track(
      this.#report(
        { toolId, toolName, outcome: { error }, durationMs: 0, timestamp: timestamp(this.#clock.now()) },
        false,
      ),
    );
  }

  // One execution

  async #execute(event: ExecutionSignal): Promise<void> {
    const { tool_id: toolId, tool_name: toolName } = event;
    const { stop } = this.#active.get(toolId) as ActiveExecution;
    const began = this.#clock.monotonic();
    let outcome: Ending["outcome"];
    try {
      outcome = { result: await this.#perform(event, stop.signal) };
    } catch (error) {
      outcome = { error: this.#errorOf(error, toolId, stop.signal) };
    }
    // Nothing waits between the end of the run and this: a cancellation that comes later finds nothing to cancel.
    this.#release(toolId);
    const durationMs = Math.round(this.#clock.monotonic() - began);
    const changes = TABLES.tools[toolName as ToolName].changes_things;
    await this.#report({ toolId, toolName, outcome, durationMs, timestamp: timestamp(this.#clock.now()) }, changes);
  }

  #errorOf(error: unknown, toolId: string, signal: AbortSignal): ByleaveError {
    if (signal.aborted) {
      return signal.reason as ByleaveError;
    }
    if (error instanceof ByleaveError) {
      return error;
    }
    // The boundary: every execution reports, whatever goes wrong.
    this.#log.error("failed unexpectedly", { tool_id: toolId, error: kindOf(error) });
    return new ByleaveError(`The client failed with ${kindOf(error)}; see its log.`);
  }

  async #perform(event: ExecutionSignal, signal: AbortSignal): Promise<AnyResult> {
    const passed = await this.#checks.check(event);
    signal.throwIfAborted();
    const { params } = passed;
    this.#log.debug("executing", { tool_id: event.tool_id, params: loggedParams(event.tool_name, params) });
    const cache = this.#cache;
    if (TABLES.tools[event.tool_name as ToolName].changes_things) {
      cache?.forget(params.path);
      try {
        return await this.#run(event, passed, signal);
      } finally {
        cache?.forget(params.path);
      }
    }
    if (cache === undefined || event.tool_name !== "read_file") {
      return this.#run(event, passed, signal);
    }
    const known = cache.get(params);
    if (known !== undefined) {
      this.#log.debug("answered from memory", { tool_id: event.tool_id });
      return known;
    }
    const reading = cache.before(params);
    const result = await this.#run(event, passed, signal);
    cache.put(reading, result as ReadFileResult);
    return result;
  }

  /** Write it down, then do it. The network is there only when the approval and our own gate both say so. */
  async #run(event: ExecutionSignal, { params, verdict }: Passed, signal: AbortSignal): Promise<AnyResult> {
    const { journal, link, projectId, workspace } = this.parts;
    const { tool_id: toolId, tool_name: tool } = event;
    const { changes_things: changes, timeout_seconds: seconds } = TABLES.tools[tool as ToolName];
    await journal.acting(toolId, changes);
    signal.throwIfAborted();
    // Past its deadline nobody wants it any more, and a server that is out of reach cannot call it off.
    const until = Date.parse(event.deadline) - this.serverAhead;
    const deadline = new Deadline(this.#clock, until, seconds * 1000 + OVERTIME);
    const live =
      tool === "execute_command" ? new LiveOutput(link, projectId, toolId, this.#clock, this.#log) : undefined;
    try {
      return await workspace.run(tool, params, {
        network: verdict.network && event.network,
        signal: AbortSignal.any([signal, deadline.signal]),
        late: deadline.late,
        bound: boundOf(event),
        onOutput: live?.take,
        // LOW is what the gate knows not to write: there is nothing to keep.
        recordAs: verdict.level === "LOW" ? undefined : toolId,
      });
    } catch (error) {
      throw deadline.told(error);
    } finally {
      deadline.end();
      if (live !== undefined) {
        this.#track(live.stop());
      }
    }
  }

  async #report(end: Ending, durable: boolean): Promise<void> {
    const { toolId: tool_id } = end;
    const body = reportOf(end);
    const past = summaryOf(end, body.length);
    this.#history.push(past);
    this.#history.splice(0, this.#history.length - HISTORY);
    if (past.error_type !== null) {
      // Masked before it is cut: half a secret would no longer look like one.
      const error = firstCharacters(maskText(String(past.error)), 1000);
      this.#log.error("failed", { tool_id, error, error_type: past.error_type });
    } else {
      this.#log.info("done", { tool_id, status: past.status });
    }
    this.#log.debug("timing", { tool_id, duration_ms: end.durationMs, bytes: body.length });
    await this.parts.journal.done(tool_id, body, durable);
    await this.outbox.send(tool_id);
  }
}
