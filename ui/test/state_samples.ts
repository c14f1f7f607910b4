// Values for the tests of state and app: small, whole, and each with what a test does not care about filled in.

import type {
  AgentInfo,
  ApprovalDecided,
  ApprovalRequest,
  ApprovalRequested,
  ChatMessage,
  Execution,
  FeedEvent,
  Grant,
  Me,
  Message,
  Run,
  Session,
  ToolFinished,
  ToolStarted,
} from "@protocol";
import type { Answer, FeedListener, Frame, Host, Waiting } from "../src/host";

export const at = (second: number): string => new Date(Date.UTC(2026, 0, 1, 12, 0, second)).toISOString();

export const me: Me = { user_id: "alice", scopes: ["chat", "approve"], version: "1", chat: true };

export const agent: AgentInfo = {
  name: "chat",
  description: "Talks.",
  model: "offline",
  models: ["offline"],
  mode: "sandbox",
  widest_mode: "full",
  tools: [],
};

export function session(id: string, title = id): Session {
  return { session_id: id, project_id: "p", title, created_at: at(0) };
}

export function message(id: string, second: number, changes: Partial<Message> = {}): Message {
  return {
    message_id: id,
    session_id: "s",
    run_id: "r",
    role: "user",
    content: id,
    created_at: at(second),
    ...changes,
  };
}

export function said(id: string, second: number, changes: Partial<ChatMessage> = {}): ChatMessage {
  return {
    kind: "chat.message",
    message_id: id,
    session_id: "s",
    run_id: "r",
    role: "agent",
    content: id,
    timestamp: at(second),
    ...changes,
  };
}

export function text(piece: string, second: number, session_id = "s", run_id = "r"): FeedEvent {
  return { kind: "chat.text", session_id, run_id, text: piece, timestamp: at(second) };
}

export function run(
  state: "ready" | "running" | "waiting" | "done" | "failed",
  run_id = "r",
  session_id = "s",
): FeedEvent {
  return { kind: "chat.run", session_id, run_id, state, timestamp: at(50) };
}

export function started(id: string, second: number, changes: Partial<ToolStarted> = {}): ToolStarted {
  return {
    kind: "tool.started",
    tool_id: id,
    tool_name: "read_file",
    tool_params: { path: "a" },
    risk_level: "LOW",
    session_id: "s",
    run_id: "r",
    approved_by: "risk:LOW",
    timestamp: at(second),
    ...changes,
  };
}

export function finished(id: string, second: number, changes: Partial<ToolFinished> = {}): ToolFinished {
  return {
    kind: "tool.finished",
    tool_id: id,
    tool_name: "read_file",
    status: "completed",
    result: { success: true },
    result_shortened: false,
    error: null,
    error_type: null,
    execution_time_ms: 5,
    session_id: "s",
    run_id: "r",
    approved_by: "risk:LOW",
    timestamp: at(second),
    ...changes,
  };
}

export function output(id: string, piece: string, stream: "stdout" | "stderr" = "stdout"): FeedEvent {
  return { kind: "tool.output", tool_id: id, stream, text: piece, sequence: 0, session_id: "s", timestamp: at(9) };
}

export function execution(id: string, second: number, changes: Partial<Execution> = {}): Execution {
  return {
    tool_id: id,
    user_id: "alice",
    project_id: "p",
    session_id: "s",
    run_id: "r",
    agent_id: "chat",
    mode: "sandbox",
    approval_id: null,
    client_id: null,
    tool_name: "read_file",
    tool_params: { path: "a" },
    digest: "d",
    result: { success: true },
    risk_level: "LOW",
    requires_approval: false,
    reasons: [],
    approved_by: "risk:LOW",
    decision: null,
    edit: null,
    status: "completed",
    error: null,
    error_type: null,
    execution_time_ms: 5,
    created_at: at(second),
    approved_at: null,
    started_at: null,
    completed_at: at(second),
    ...changes,
  };
}

export function asked(id: string, second: number, changes: Partial<ApprovalRequested> = {}): ApprovalRequested {
  return {
    kind: "tool.approval_request",
    approval_id: id,
    tool_id: `tool-${id}`,
    tool_name: "write_file",
    risk_level: "MEDIUM",
    timeout_seconds: 300,
    description: `Write ${id}`,
    tool_params: { path: id, content: "x" },
    findings: [],
    network: false,
    digest: "d",
    deadline: at(second + 300),
    session_id: "s",
    agent_id: "chat",
    inspection: null,
    suggestions: [],
    edit: null,
    calls: 1,
    timestamp: at(second),
    ...changes,
  };
}

export function approval(id: string, second: number, changes: Partial<ApprovalRequest> = {}): ApprovalRequest {
  const { kind: _, approval_id, tool_id, timestamp, ...told } = asked(id, second);
  return {
    ...told,
    id: approval_id,
    user_id: "alice",
    project_id: "p",
    tool_ids: [tool_id],
    status: "pending",
    created_at: timestamp,
    decided_at: null,
    decided_by: null,
    reason: null,
    scope: null,
    grant_id: null,
    decided_from: null,
    ...changes,
  };
}

/** A run of the session as the server lists it. */
export function listed(id: string, state: Run["state"], second: number, error: string | null = null): Run {
  return {
    run_id: id,
    project_id: "p",
    session_id: "s",
    agent: "chat",
    state,
    mode: "sandbox",
    model: null,
    error,
    created_at: at(second),
    updated_at: at(second + 1),
  };
}

export function decided(id: string, changes: Partial<ApprovalDecided> = {}): ApprovalDecided {
  return {
    kind: "tool.approval_decided",
    approval_id: id,
    tool_ids: [`tool-${id}`],
    status: "approved",
    decided_by: "person:bob",
    reason: null,
    session_id: "s",
    scope: null,
    grant_id: null,
    decided_from: null,
    timestamp: at(40),
    ...changes,
  };
}

export function grant(id: string, changes: Partial<Grant> = {}): Grant {
  return {
    id,
    user_id: "alice",
    project_id: "p",
    session_id: "s",
    agent_id: null,
    scope: "class",
    rule: null,
    text: "reading src",
    status: "active",
    approval_id: null,
    uses: 0,
    max_uses: null,
    created_at: at(0),
    created_by: "person:alice",
    expires_at: "2999-01-01T00:00:00.000Z",
    revoked_at: null,
    revoked_by: null,
    ...changes,
  };
}

type Reply = unknown | ((body: unknown, path: string) => unknown);

/** A host whose server is a table of answers: "GET /my/me" → body, or a function of the body. */
export class TableHost implements Host {
  readonly kind: Host["kind"];
  readonly asked: { method: string; path: string; body: unknown }[] = [];
  readonly kept = new Map<string, string>();
  readonly told: Waiting[] = [];
  readonly streams: { path: string; last: string | null; listener: FeedListener; closed: boolean }[] = [];
  readonly table: Record<string, Reply>;
  signOut?: () => Promise<void>;
  /** Streams open by themselves, as a server's would. */
  opens = true;

  constructor(table: Record<string, Reply> = {}, kind: Host["kind"] = "embedded") {
    this.kind = kind;
    this.table = {
      "GET /my/me": me,
      "GET /my/projects": { projects: [{ project_id: "p", name: "demo", created_at: at(0) }], total_count: 1 },
      "GET /my/projects/p/chat/sessions": { sessions: [session("s", "First")], total_count: 1 },
      "GET /my/projects/p/chat/messages": { messages: [], total_count: 0, more: false },
      "GET /my/projects/p/agents": { agents: [agent], total_count: 1 },
      "GET /my/projects/p/machines": {
        machines: [{ client_id: "laptop", workspace: "/w", isolation: "bwrap", next: true }],
        total_count: 1,
      },
      "GET /my/projects/p/chat/runs": { runs: [], total_count: 0 },
      "GET /my/tools/history": { executions: [], total_count: 0, next_cursor: null },
      "GET /my/approvals": { approvals: [], total_count: 0 },
      "GET /my/grants": { grants: [], total_count: 0 },
      ...table,
    };
  }

  async request(method: "GET" | "POST", path: string, body?: unknown): Promise<Answer> {
    this.asked.push({ method, path, body });
    const key = `${method} ${path.split("?")[0]}`;
    if (!(key in this.table)) return { status: 404, body: { detail: `Nothing at ${key}.` }, serverTime: null };
    const reply = this.table[key];
    const given = await (typeof reply === "function" ? reply(body, path) : reply);
    if (given instanceof Refusal) return { status: given.status, body: given.body, serverTime: null };
    return { status: 200, body: given, serverTime: null };
  }

  feed(path: string, last: string | null, listener: FeedListener): () => void {
    const stream = { path, last, listener, closed: false };
    this.streams.push(stream);
    if (this.opens) queueMicrotask(() => stream.closed || listener.open());
    return () => {
      stream.closed = true;
    };
  }

  /** The stream that is open now. */
  get stream(): FeedListener {
    const stream = this.streams.at(-1);
    if (!stream) throw new Error("No stream was opened.");
    return stream.listener;
  }

  #next = 1;
  tell(...events: FeedEvent[]): void {
    for (const event of events) this.stream.frame(frame(event, this.#next++));
  }

  forget?: () => void;
  onSignedOut: (() => void) | null = null;
  onShowWaiting: ((approvalId: string | null) => void) | null = null;

  waiting(waiting: Waiting): void {
    this.told.push(waiting);
  }

  recall(key: string): string | null {
    return this.kept.get(key) ?? null;
  }

  remember(key: string, value: string | null): void {
    if (value === null) this.kept.delete(key);
    else this.kept.set(key, value);
  }
}

export class Refusal {
  constructor(
    readonly status: number,
    readonly body: unknown = { detail: "No." },
  ) {}
}

export function frame(event: FeedEvent, id: number): Frame {
  return { id: String(id), event: event.kind, data: JSON.stringify(event) };
}
