// The approvals this client knows of: what waits with its timer, what became of the rest, and the asking. One question is
// put at a time, in the order they came. An answer is posted with the digest that was shown; one that cannot be posted is
// kept for the next connection while its question is open. No answer, an answer too late, a closed window or a closing
// client never become an approval: they post nothing at all.

import type { ApprovalDecided, ApprovalRequest, ApprovalRequested, ApprovalStatus, DecisionAnswer } from "@protocol";
import { ByleaveError, CallerError, ConflictError, NotFound, ToolApprovalTimeout, UnreachableError } from "./errors.js";
import { type Link, pauseBefore } from "./link.js";
import { type Answer, type Clock, type Log, type Prompt, type Question, sleep, type Timer } from "./ports.js";
import { timestamp } from "./words.js";

const HISTORY = 200;
const STATUSES: readonly string[] = ["pending", "approved", "rejected", "timeout", "cancelled"];

/** How one question ended, as this client saw it. */
export interface PastApproval {
  readonly approvalId: string;
  readonly toolName: string;
  readonly status: ApprovalStatus;
  readonly decidedBy: string | null;
  readonly timestamp: string;
}

interface Pending {
  readonly event: ApprovalRequested;
  readonly timer: Timer;
  readonly question: Question;
  readonly close: AbortController;
  /** Given here, but not yet with the server. */
  answer: Answer | undefined;
  asked: boolean;
  posting: boolean;
}

export interface DeskParts {
  readonly link: Link;
  readonly projectId: string;
  readonly prompt: Prompt | undefined;
  readonly timeoutSeconds: number;
  readonly tries: number;
  readonly clock: Clock;
  readonly log: Log;
  /** Told whenever what waits has changed. */
  readonly onChange?: (() => void) | undefined;
}

/** Keeps the questions, asks them through a prompt, and posts the answers. */
export class ApprovalDesk {
  readonly #pending = new Map<string, Pending>();
  readonly #over: PastApproval[] = [];
  readonly #stop = new AbortController();
  #asking = false;

  constructor(private readonly parts: DeskParts) {}

  get pending(): ApprovalRequested[] {
    return [...this.#pending.values()].map(({ event }) => event);
  }

  get history(): PastApproval[] {
    return [...this.#over];
  }

  /** Take in a question; one already known is not asked twice. */
  request(event: ApprovalRequested, serverAhead = 0): void {
    const { clock, log } = this.parts;
    const id = event.approval_id;
    if (this.#stop.signal.aborted || this.#pending.has(id) || this.#over.some((past) => past.approvalId === id)) {
      return;
    }
    const milliseconds = Math.max(this.#milliseconds(event, serverAhead), 0);
    const close = new AbortController();
    const timer = clock.after(milliseconds, () => this.#expire(id));
    const question = this.#question(event, close.signal, clock.now() + milliseconds);
    this.#pending.set(id, { event, timer, question, close, answer: undefined, asked: false, posting: false });
    log.info("approval requested", { approval_id: id, tool: event.tool_name, risk: event.risk_level });
    this.parts.onChange?.();
    void this.#askAll();
  }

  /** Somebody decided, here or elsewhere. */
  decided(event: ApprovalDecided): void {
    this.#end(event.approval_id, event.status, event.decided_by);
  }

  /** An answer given by another way than the prompt, such as the chat beside it. False when the question is over. */
  async answer(approvalId: string, answer: Answer): Promise<boolean> {
    const waiting = this.#pending.get(approvalId);
    if (waiting === undefined) {
      return false;
    }
    waiting.asked = true;
    waiting.answer = answer;
    await this.#post(waiting);
    return true;
  }

  /** Take the server's list as the truth: what was `known` before it was asked for and is not on it is over. */
  settle(waiting: readonly ApprovalRequest[], known: readonly ApprovalRequested[], serverAhead = 0): void {
    const still = new Set(waiting.map(({ id }) => id));
    for (const event of known.filter(({ approval_id: id }) => !still.has(id))) {
      this.#end(event.approval_id, "cancelled", null);
    }
    for (const request of waiting) {
      if (request.project_id === this.parts.projectId && request.status === "pending") {
        this.request(asEvent(request), serverAhead);
      }
    }
  }

  /** Post the answers that could not be posted before. */
  async resend(): Promise<void> {
    const kept = [...this.#pending.values()].filter(({ answer, posting }) => answer !== undefined && !posting);
    await Promise.all(kept.map((waiting) => this.#post(waiting)));
  }

  /** Clear the timers and close the questions: refused here, left open for others. Nothing is approved. */
  close(): void {
    this.#stop.abort();
    for (const id of [...this.#pending.keys()]) {
      this.#end(id, "rejected", "the client closed");
    }
  }

  /** How long the question is kept: never past the server's deadline. HIGH has twice as long, as on the server. */
  #milliseconds(event: ApprovalRequested, serverAhead: number): number {
    const limit = this.parts.timeoutSeconds * (event.risk_level === "HIGH" ? 2 : 1) * 1000;
    const left = Date.parse(event.deadline) - this.parts.clock.now() - serverAhead;
    return Math.min(limit, left, event.timeout_seconds * 1000);
  }

  #expire(approvalId: string): void {
    const error = new ToolApprovalTimeout("Nobody answered in time; nothing was run.");
    this.parts.log.error("approval timed out", { approval_id: approvalId, error: error.message });
    this.#end(approvalId, "timeout", null);
  }

  #end(approvalId: string, status: ApprovalStatus, decidedBy: string | null): void {
    const waiting = this.#pending.get(approvalId);
    if (waiting === undefined) {
      return;
    }
    this.#pending.delete(approvalId);
    waiting.timer.cancel();
    const at = timestamp(this.parts.clock.now());
    this.#over.push({ approvalId, toolName: waiting.event.tool_name, status, decidedBy, timestamp: at });
    this.#over.splice(0, this.#over.length - HISTORY);
    this.parts.log.info("approval over", { approval_id: approvalId, status, decided_by: decidedBy });
    waiting.close.abort(told(status, decidedBy));
    this.parts.onChange?.();
  }

  #question(event: ApprovalRequested, closed: AbortSignal, until: number): Question {
    const { link } = this.parts;
    const id = event.approval_id;
    const base = { event, closed, until, whole: async () => (await link.wholeCall(id)).text };
    return event.tool_name === "write_file" ? { ...base, change: () => link.change(id) } : base;
  }

  async #askAll(): Promise<void> {
    const { log, prompt } = this.parts;
    if (prompt === undefined || this.#asking) {
      return;
    }
    this.#asking = true;
    try {
      for (let waiting = this.#next(); waiting !== undefined; waiting = this.#next()) {
        waiting.asked = true;
        const answer = await prompt.ask(waiting.question);
        // An answer that came by another way meanwhile counts.
        if (answer !== undefined && waiting.answer === undefined && this.#pending.has(waiting.event.approval_id)) {
          waiting.answer = answer;
          await this.#post(waiting);
        }
      }
    } catch (error) {
      log.error("the question could not be put", { error: error instanceof Error ? error.message : String(error) });
    } finally {
      this.#asking = false;
    }
  }

  #next(): Pending | undefined {
    return [...this.#pending.values()].find(({ asked }) => !asked);
  }

  /** Post an answer, a few times; what does not get through is kept while the question is open. */
  async #post(waiting: Pending): Promise<void> {
    const { clock, log, tries } = this.parts;
    const id = waiting.event.approval_id;
    waiting.posting = true;
    try {
      for (let attempt = 0; attempt < tries && this.#pending.has(id); attempt += 1) {
        try {
          const { status } = await this.#decide(waiting);
          this.#end(id, status, "you");
          this.#say(told(status, "you"));
          return;
        } catch (error) {
          if (!(error instanceof UnreachableError)) {
            this.#notTaken(waiting, error);
            return;
          }
          log.warn("decision not delivered", { approval_id: id, error: error.message });
          if (attempt + 1 < tries) {
            await sleep(clock, pauseBefore(attempt), this.#stop.signal);
          }
        }
      }
      if (this.#pending.has(id)) {
        this.#say("The server cannot be reached; your answer is sent when it can.");
      }
    } finally {
      waiting.posting = false;
    }
  }

  #notTaken(waiting: Pending, error: unknown): void {
    const id = waiting.event.approval_id;
    if (error instanceof ConflictError) {
      const state = error.state.toLowerCase();
      this.#end(id, STATUSES.includes(state) ? (state as ApprovalStatus) : "cancelled", "somebody faster");
      this.#say(`Your answer came too late: ${error.message.replaceAll("person:", "")}`);
      return;
    }
    const sentence = error instanceof ByleaveError ? error.sentence : String(error);
    this.parts.log.error("decision not taken", { approval_id: id, error: sentence });
    const aboutTerms = waiting.answer?.terms != null && !(error instanceof NotFound);
    if (error instanceof CallerError && !aboutTerms) {
      this.#end(id, "cancelled", null);
      this.#say(told("cancelled", null));
      return;
    }
    this.#say(`Your answer was not taken: ${sentence}`);
    waiting.answer = undefined;
    if (error instanceof CallerError) {
      waiting.asked = false; // a grant that may not be saved decides nothing: the question is put again
      queueMicrotask(() => void this.#askAll());
    }
  }

  async #decide({ answer, event }: Pending): Promise<DecisionAnswer> {
    const { link, projectId } = this.parts;
    if (answer?.allow === true) {
      const { scope = "once", terms = null } = answer;
      return link.approve(projectId, event.approval_id, { decision: "approved", digest: event.digest, scope, terms });
    }
    const reason = answer?.reason ?? null;
    return link.reject(projectId, event.approval_id, { decision: "rejected", reason });
  }

  #say(sentence: string): void {
    this.parts.prompt?.say(sentence);
  }
}

function asEvent(request: ApprovalRequest): ApprovalRequested {
  const { created_at, id, tool_ids, ...rest } = request;
  return {
    timestamp: created_at,
    kind: "tool.approval_request",
    approval_id: id,
    tool_id: tool_ids[0] ?? "",
    tool_name: rest.tool_name,
    risk_level: rest.risk_level,
    timeout_seconds: rest.timeout_seconds,
    description: rest.description,
    tool_params: rest.tool_params,
    findings: rest.findings,
    network: rest.network,
    digest: rest.digest,
    deadline: rest.deadline,
    session_id: rest.session_id,
    agent_id: rest.agent_id,
    inspection: rest.inspection,
    suggestions: rest.suggestions,
  };
}

/** What the person at the prompt is told when a question ends. */
function told(status: ApprovalStatus, decidedBy: string | null): string {
  const by = decidedBy === null ? "" : ` by ${decidedBy.replace(/^(?:person|grant|rule|mode):/, "")}`;
  switch (status) {
    case "approved":
      return `Allowed${by}.`;
    case "rejected":
      return `Denied${by}.`;
    case "timeout":
      return "Nobody answered in time; nothing was run.";
    default:
      return "This question is no longer open.";
  }
}
