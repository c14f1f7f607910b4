// ToolHandler: what the editor keeps of the calls in its folder. Questions that wait, each with its timer; executions that
// run; how both ended. The engine executes, reports and decides what may run; a person answers; this tells each of the
// other, and shows what is known. It never runs anything and never answers a question by itself.

import type {
  ApprovalDecided,
  ApprovalRequest,
  ApprovalRequested,
  ApprovalStatus,
  ClientResult,
  ExecutionAcknowledged,
  ExecutionOutput,
  ExecutionStarted,
} from "@protocol";
import type { Log } from "../editor/log.js";

const HISTORY = 200;

/** A question that waits, as the feed or the list told it. */
export interface Asked {
  readonly id: string;
  readonly toolName: string;
  readonly params: Readonly<Record<string, unknown>>;
  readonly risk: "LOW" | "MEDIUM" | "HIGH";
  readonly description: string;
  readonly reasons: readonly string[];
  readonly network: boolean;
  readonly digest: string;
  /** How many identical calls wait for the answer. */
  readonly calls: number;
  /** Whether files belong to the question: what they hold, or why nobody could look, must be seen before it is allowed. */
  readonly inspected: boolean;
}

/** How one question ended, as this editor saw it. */
export interface PastApproval {
  readonly approvalId: string;
  readonly toolName: string;
  readonly status: ApprovalStatus;
  readonly decidedBy: string | null;
  readonly timestamp: string;
}

/** One execution that ran here. */
export interface ExecutionHistoryEntry {
  readonly toolId: string;
  readonly toolName: string;
  readonly status: ClientResult["status"] | "running" | "interrupted";
  readonly startTime: string;
  readonly endTime: string | null;
  readonly durationMs: number | null;
  readonly error: string | null;
  readonly userApproved: boolean;
  /** Whether the server has its result. */
  readonly acknowledged: boolean;
}

/** Puts questions to the person. */
export interface DialogProvider {
  ask(question: Asked): void;
  /** A question is over, by whoever: nothing of it may stay open. */
  over(question: Asked, status: ApprovalStatus): void;
}

/** Shows what executions do. */
export interface ExecutionViewer {
  started(event: ExecutionStarted): void;
  output(event: ExecutionOutput): void;
  ended(result: ClientResult): void;
}

export interface ToolHandlerConfig {
  /** The longest a question is kept; HIGH has twice as long, as on the server. */
  readonly approvalTimeoutMs: number;
}

interface Pending {
  readonly question: Asked;
  readonly timer: ReturnType<typeof setTimeout>;
}

export class ToolHandler {
  readonly #dialogs: DialogProvider;
  readonly #viewer: ExecutionViewer;
  readonly #log: Log;
  readonly #config: ToolHandlerConfig;
  readonly #changed: () => void;
  readonly #pending = new Map<string, Pending>();
  readonly #approvals: PastApproval[] = [];
  readonly #active = new Map<string, ExecutionHistoryEntry>();
  readonly #history: ExecutionHistoryEntry[] = [];
  #disposed = false;

  constructor(
    dialogs: DialogProvider,
    viewer: ExecutionViewer,
    log: Log,
    config: ToolHandlerConfig,
    changed: () => void = () => {},
  ) {
    this.#dialogs = dialogs;
    this.#viewer = viewer;
    this.#log = log;
    this.#config = config;
    this.#changed = changed;
  }

  /** Questions that wait, oldest first. */
  get pendingApprovals(): readonly Asked[] {
    return [...this.#pending.values()].map(({ question }) => question);
  }

  get approvalHistory(): readonly PastApproval[] {
    return [...this.#approvals];
  }

  /** Executions that run now. */
  get activeExecutions(): readonly ExecutionHistoryEntry[] {
    return [...this.#active.values()];
  }

  /** How the last executions ended, oldest first. */
  get history(): readonly ExecutionHistoryEntry[] {
    return [...this.#history];
  }

  isWaiting(approvalId: string): boolean {
    return this.#pending.has(approvalId);
  }

  /** A question for the person; one that is known is not asked twice. */
  handleToolApprovalRequest(event: ApprovalRequested): void {
    this.#take(asked(event.approval_id, event), event.timeout_seconds, event.deadline);
  }

  /** A question is answered, here or elsewhere. */
  handleToolApprovalDecided(event: ApprovalDecided): void {
    this.#end(event.approval_id, event.status, event.decided_by);
  }

  /** The server's list is the truth: of the questions `known` before it was asked for, those not on it are over. */
  settleApprovals(list: readonly ApprovalRequest[], known: readonly Asked[]): void {
    const still = new Set(list.map(({ id }) => id));
    for (const { id } of known) if (!still.has(id)) this.#end(id, "cancelled", null);
    for (const each of list) {
      if (each.status === "pending") this.#take(asked(each.id, each), each.timeout_seconds, each.deadline);
    }
  }

  /** Put a question to the person. What they answer goes to the server; the feed says how it ended. */
  requestUserApproval(question: Asked): void {
    this.#log.info("question", { id: question.id, tool: question.toolName, risk: question.risk });
    this.#dialogs.ask(question);
  }

  /** The engine began to execute a call that the server signalled. */
  handleToolExecutionSignal(event: ExecutionStarted): void {
    if (this.#disposed) return;
    const { approved_by, timestamp, tool_id, tool_name } = event;
    this.#log.info("executing", { tool_id, tool: tool_name, approved_by });
    this.#active.set(tool_id, {
      toolId: tool_id,
      toolName: tool_name,
      status: "running",
      startTime: timestamp,
      endTime: null,
      durationMs: null,
      error: null,
      userApproved: approved_by.startsWith("person:"),
      acknowledged: false,
    });
    this.#viewer.started(event);
    this.#changed();
  }

  handleToolOutput(event: ExecutionOutput): void {
    if (this.#active.has(event.tool_id)) this.#viewer.output(event);
  }

  handleToolEnded(result: ClientResult): void {
    const { duration_ms, error, status, timestamp, tool_id } = result;
    const active = this.#active.get(tool_id);
    if (active === undefined) return; // refused before it began
    this.#active.delete(tool_id);
    this.#keep({ ...active, status, endTime: timestamp, durationMs: duration_ms, error });
    this.#viewer.ended(result);
    this.#changed();
  }

  /** The server has the result of a call. */
  handleToolResultAck({ status, tool_id }: ExecutionAcknowledged): void {
    this.#log.info("result acknowledged", { tool_id, status });
    const at = this.#history.findLastIndex(({ toolId }) => toolId === tool_id);
    const entry = this.#history[at];
    if (entry !== undefined) this.#history[at] = { ...entry, acknowledged: true };
  }

  /** The engine ended by itself: what ran there is interrupted. A new engine tells the server so. */
  handleEngineGone(): void {
    const [error, timestamp] = ["The engine ended while this ran.", new Date().toISOString()];
    for (const entry of this.#active.values()) {
      this.#keep({ ...entry, status: "interrupted", error, endTime: timestamp });
      const { toolId: tool_id, toolName: tool_name } = entry;
      const how = { status: "error", result: null, error, error_type: "interrupted", duration_ms: 0 } as const;
      this.#viewer.ended({ tool_id, tool_name, timestamp, ...how });
    }
    this.#active.clear();
    this.#changed();
  }

  /** Timers are cleared, questions close unanswered. What runs is ended by whoever ends the engine. */
  dispose(): void {
    if (this.#disposed) return;
    for (const id of [...this.#pending.keys()]) this.#end(id, "rejected", "the editor closed");
    this.#disposed = true;
    this.#active.clear();
  }

  #take(question: Asked, timeoutSeconds: number, deadline: string): void {
    if (this.#disposed) return;
    const known = this.#pending.get(question.id);
    if (known !== undefined) {
      // An identical call joined; what is open already keeps the number that it shows.
      if (question.calls > known.question.calls) this.#pending.set(question.id, { ...known, question });
      return;
    }
    if (this.#approvals.some(({ approvalId }) => approvalId === question.id)) return;
    const limit = this.#config.approvalTimeoutMs * (question.risk === "HIGH" ? 2 : 1);
    const left = Math.min(limit, timeoutSeconds * 1000);
    const timer = setTimeout(() => this.#end(question.id, "timeout", null), left);
    this.#pending.set(question.id, { question, timer });
    this.#log.debug("question waits", { id: question.id, milliseconds: left, deadline });
    this.#changed();
    this.requestUserApproval(question);
  }

  #end(approvalId: string, status: ApprovalStatus, decidedBy: string | null): void {
    const pending = this.#pending.get(approvalId);
    const past = { approvalId, status, decidedBy, timestamp: new Date().toISOString() };
    if (pending === undefined) {
      // Decided before it was asked here: it must not be asked later.
      if (!this.#approvals.some((each) => each.approvalId === approvalId)) this.#past({ ...past, toolName: "" });
      return;
    }
    clearTimeout(pending.timer);
    this.#pending.delete(approvalId);
    this.#past({ ...past, toolName: pending.question.toolName });
    this.#log.info("question over", { id: approvalId, status, by: decidedBy });
    this.#changed();
    this.#dialogs.over(pending.question, status);
  }

  #past(past: PastApproval): void {
    this.#approvals.push(past);
    this.#approvals.splice(0, this.#approvals.length - HISTORY);
  }

  #keep(entry: ExecutionHistoryEntry): void {
    this.#history.push(entry);
    this.#history.splice(0, this.#history.length - HISTORY);
  }
}

function asked(id: string, told: ApprovalRequest | ApprovalRequested): Asked {
  return {
    id,
    toolName: told.tool_name,
    params: told.tool_params,
    risk: told.risk_level,
    description: told.description,
    reasons: told.findings.filter((each) => each.level !== "LOW").map((each) => each.reason),
    network: told.network,
    digest: told.digest,
    calls: "tool_ids" in told ? Math.max(1, told.tool_ids.length) : told.calls,
    inspected: (told.inspection?.files.length ?? 0) > 0 || (told.inspection?.problem ?? null) !== null,
  };
}
