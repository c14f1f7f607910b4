/* Generated from byleave.schema.json by `make schema`. Do not edit. */

/**
 * How much it must ask when a message does not say.
 */
export type AgentMode = "sandbox" | "full";
/**
 * The most a message may choose.
 */
export type AgentMode1 = "sandbox" | "full";
/**
 * How much an agent must ask.
 */
export type AgentMode2 = "sandbox" | "full";
/**
 * Where a person gave an answer.
 */
export type AnsweredFrom = "page" | "program";
/**
 * Where an approval stands.
 */
export type ApprovalStatus = "pending" | "approved" | "rejected" | "timeout" | "cancelled";
/**
 * How far an answer reaches (G8).
 */
export type ApprovalScope = "once" | "class" | "session";
/**
 * How much a call could harm. Ordered: `max()` of several is the strictest.
 */
export type RiskLevel = "LOW" | "MEDIUM" | "HIGH";
/**
 * LOW runs at once, MEDIUM and HIGH ask, REFUSE never runs.
 */
export type VerdictLevel = "LOW" | "MEDIUM" | "HIGH" | "REFUSE";
/**
 * What the call would do with a file.
 */
export type SeenRole = "runs" | "replaces";
/**
 * How far an answer reaches (G8).
 */
export type ApprovalScope1 = "once" | "class" | "session";
/**
 * What happens to a path.
 */
export type ChangeKind = "create" | "change" | "delete";
export type CheckDecision = "runs" | "asks" | "refused";
/**
 * How much an agent must ask.
 */
export type AgentMode3 = "sandbox" | "full";
/**
 * How an execution ended on the user's machine (C7).
 */
export type ClientResultStatus = "success" | "error" | "timeout" | "cancelled";
/**
 * Why an execution did not complete. Outcomes that share a state differ here.
 */
export type ErrorType =
  | "invalid"
  | "refused"
  | "rejected"
  | "approval_timeout"
  | "no_client"
  | "drifted"
  | "cancelled"
  | "interrupted"
  | "execution_timeout"
  | "tool_error"
  | "internal";
/**
 * How far an answer reaches (G8).
 */
export type ApprovalScope2 = "once" | "class" | "session";
/**
 * What a token lets its bearer do. An `agent` token never approves, whatever else it carries.
 */
export type Scope = "chat" | "approve" | "execute" | "agent";
/**
 * Where an execution stands. Lower case on the wire; the record's tables hold the names.
 */
export type ExecutionStatus =
  "pending" | "awaiting_approval" | "approved" | "executing" | "completed" | "rejected" | "timeout" | "failed";
export type FeedEvent =
  | ApprovalRequested
  | ApprovalDecided
  | InspectionRequested
  | UndoRequested
  | ToolUndone
  | MachinesChanged
  | GrantChanged
  | ExecutionSignal
  | ExecutionCancelSignal
  | ResultAcknowledged
  | ToolStarted
  | ToolQueued
  | ToolFinished
  | ToolOutput
  | ChatMessage
  | ChatText
  | RunChanged
  | RunUsage
  | ChatError;
export type GrantStatus = "active" | "revoked" | "expired" | "used_up";
/**
 * Where an agent's run stands. Lower case on the wire; the record's tables hold the names.
 */
export type RunState = "ready" | "running" | "waiting" | "done" | "failed";
/**
 * Where a rule comes from.
 */
export type Layer = "built-in" | "organisation" | "user" | "device" | "project";
/**
 * What an agent is told of its call.
 */
export type ResponseStatus = "pending" | "awaiting_approval" | "completed" | "rejected" | "timeout" | "failed";
export type ResultReport = CompletedReport | FailedReport;
/**
 * What the call would do with a file.
 */
export type SeenRole1 = "runs" | "replaces";

/**
 * One of the agents that work on messages.
 */
export interface AgentInfo {
  name: string;
  description: string;
  model: string;
  mode: AgentMode;
  widest_mode: AgentMode1;
  tools: string[];
}
export interface AgentList {
  agents: AgentInfo[];
  total_count: number;
}
export interface ApprovalDecided {
  /**
   * ISO 8601, UTC, milliseconds
   */
  timestamp: string;
  kind: "tool.approval_decided";
  approval_id: string;
  tool_ids: string[];
  status: ApprovalStatus;
  decided_by: string | null;
  reason: string | null;
  session_id: string | null;
  scope: ApprovalScope | null;
  grant_id: string | null;
  /**
   * Where a person answered; null when no person did.
   */
  decided_from: AnsweredFrom | null;
}
export interface ApprovalList {
  approvals: ApprovalRequest[];
  total_count: number;
}
/**
 * The question. What is shown here is what runs: `digest` covers the tool, its true parameters and project.
 */
export interface ApprovalRequest {
  id: string;
  user_id: string;
  project_id: string;
  session_id: string | null;
  agent_id: string | null;
  /**
   * The executions that wait for it; identical calls join one question.
   */
  tool_ids: string[];
  tool_name: string;
  /**
   * As shown: secrets masked, long text shortened and said so.
   */
  tool_params: {
    [k: string]: unknown;
  };
  digest: string;
  risk_level: RiskLevel;
  findings: Finding[];
  /**
   * Whether approving lets it use the network.
   */
  network: boolean;
  /**
   * What would happen, made from the stored parameters, safe to print.
   */
  description: string;
  /**
   * What would run, as the machine sees it; the digest covers it.
   */
  inspection: Inspection | null;
  /**
   * Rules that a yes for a class of calls could save; none for a HIGH call.
   */
  suggestions: Suggestion[];
  status: ApprovalStatus;
  timeout_seconds: number;
  /**
   * ISO 8601, UTC, milliseconds
   */
  created_at: string;
  /**
   * ISO 8601, UTC, milliseconds
   */
  deadline: string;
  decided_at: string | null;
  decided_by: string | null;
  reason: string | null;
  scope: ApprovalScope | null;
  /**
   * The grant that was saved with the answer, or that answered.
   */
  grant_id: string | null;
  /**
   * Where a person answered; null when no person did.
   */
  decided_from: AnsweredFrom | null;
}
/**
 * One reason for a level, in words a person understands.
 */
export interface Finding {
  level: VerdictLevel;
  /**
   * For example: `-delete` removes files.
   */
  reason: string;
  /**
   * Which rule found it: `commands.find.-delete`, `paths.outside`, …
   */
  rule: string;
  /**
   * What an agent could do instead.
   */
  instead: string | null;
  /**
   * Asked about in `full` mode too: secrets, what would run or be trusted later, the catastrophic.
   */
  always_asks: boolean;
}
/**
 * What a client says of the files a call would run or replace.
 */
export interface Inspection {
  /**
   * @maxItems 16
   */
  files:
    | []
    | [SeenFile]
    | [SeenFile, SeenFile]
    | [SeenFile, SeenFile, SeenFile]
    | [SeenFile, SeenFile, SeenFile, SeenFile]
    | [SeenFile, SeenFile, SeenFile, SeenFile, SeenFile]
    | [SeenFile, SeenFile, SeenFile, SeenFile, SeenFile, SeenFile]
    | [SeenFile, SeenFile, SeenFile, SeenFile, SeenFile, SeenFile, SeenFile]
    | [SeenFile, SeenFile, SeenFile, SeenFile, SeenFile, SeenFile, SeenFile, SeenFile]
    | [SeenFile, SeenFile, SeenFile, SeenFile, SeenFile, SeenFile, SeenFile, SeenFile, SeenFile]
    | [SeenFile, SeenFile, SeenFile, SeenFile, SeenFile, SeenFile, SeenFile, SeenFile, SeenFile, SeenFile]
    | [SeenFile, SeenFile, SeenFile, SeenFile, SeenFile, SeenFile, SeenFile, SeenFile, SeenFile, SeenFile, SeenFile]
    | [
        SeenFile,
        SeenFile,
        SeenFile,
        SeenFile,
        SeenFile,
        SeenFile,
        SeenFile,
        SeenFile,
        SeenFile,
        SeenFile,
        SeenFile,
        SeenFile
      ]
    | [
        SeenFile,
        SeenFile,
        SeenFile,
        SeenFile,
        SeenFile,
        SeenFile,
        SeenFile,
        SeenFile,
        SeenFile,
        SeenFile,
        SeenFile,
        SeenFile,
        SeenFile
      ]
    | [
        SeenFile,
        SeenFile,
        SeenFile,
        SeenFile,
        SeenFile,
        SeenFile,
        SeenFile,
        SeenFile,
        SeenFile,
        SeenFile,
        SeenFile,
        SeenFile,
        SeenFile,
        SeenFile
      ]
    | [
        SeenFile,
        SeenFile,
        SeenFile,
        SeenFile,
        SeenFile,
        SeenFile,
        SeenFile,
        SeenFile,
        SeenFile,
        SeenFile,
        SeenFile,
        SeenFile,
        SeenFile,
        SeenFile,
        SeenFile
      ]
    | [
        SeenFile,
        SeenFile,
        SeenFile,
        SeenFile,
        SeenFile,
        SeenFile,
        SeenFile,
        SeenFile,
        SeenFile,
        SeenFile,
        SeenFile,
        SeenFile,
        SeenFile,
        SeenFile,
        SeenFile,
        SeenFile
      ];
  /**
   * Why it could not look; then nothing is known, and the approval says so.
   */
  problem?: string | null;
}
/**
 * One file that a call would use, as it is now.
 */
export interface SeenFile {
  /**
   * From the workspace.
   */
  path: string;
  role?: SeenRole;
  sha256: string;
  size?: number | null;
  modified_at?: string | null;
  /**
   * What will run, or its beginning; or all of what will be replaced. Secrets masked.
   */
  text?: string | null;
  /**
   * Not all of it is here. Of a long file that would be replaced none is: see `GET /my/approvals/{id}/change`.
   */
  shortened?: boolean;
  /**
   * Why there is no text: it is binary, too long, or may hold secrets.
   */
  note?: string | null;
}
/**
 * A rule a person may save with an answer, in words.
 */
export interface Suggestion {
  rule: GrantRule;
  /**
   * What it would cover, in one sentence.
   */
  text: string;
  /**
   * The most that could run without asking under it.
   */
  widest: string;
}
/**
 * Which calls a grant covers. Fields that are left empty do not narrow it; the tool always does.
 */
export interface GrantRule {
  tool: string;
  /**
   * With execute_command: the words the line begins with, one for one.
   *
   * @maxItems 64
   */
  command?: string[];
  /**
   * Whether nothing may follow those words.
   */
  exact?: boolean;
  /**
   * With a file tool: patterns of paths, from the workspace (`src/**`).
   *
   * @maxItems 32
   */
  paths?: string[];
  /**
   * With a command that runs files: it covers the call only while these have this content (SHA-256).
   */
  files?: {
    [k: string]: string;
  };
}
export interface ApprovalRequested {
  /**
   * ISO 8601, UTC, milliseconds
   */
  timestamp: string;
  kind: "tool.approval_request";
  approval_id: string;
  tool_id: string;
  tool_name: string;
  risk_level: RiskLevel;
  timeout_seconds: number;
  description: string;
  tool_params: {
    [k: string]: unknown;
  };
  findings: Finding[];
  network: boolean;
  digest: string;
  /**
   * ISO 8601, UTC, milliseconds
   */
  deadline: string;
  session_id: string | null;
  agent_id: string | null;
  inspection: Inspection | null;
  suggestions: Suggestion[];
}
export interface ApproveBody {
  /**
   * Said in so many words: an empty body approves nothing.
   */
  decision: "approved";
  scope?: ApprovalScope1;
  /**
   * With a scope beyond this call: its rule, end and number of uses.
   */
  terms?: GrantTerms | null;
  /**
   * The digest that was shown; when given it must be the one that waits.
   */
  digest?: string | null;
}
/**
 * What a person asks for with an answer that reaches further than one call.
 */
export interface GrantTerms {
  /**
   * With scope `class`: the rule as it was shown, perhaps edited.
   */
  rule?: GrantRule | null;
  expires_in_seconds?: number | null;
  max_uses?: number | null;
  /**
   * With scope `session`: that the warning was shown and accepted.
   */
  warned?: boolean;
}
/**
 * What recomputing a project's chain found.
 */
export interface AuditCheck {
  project_id: string;
  records: number;
  head: string;
  holds: boolean;
  fault: string | null;
  /**
   * ISO 8601, UTC, milliseconds
   */
  checked_at: string;
}
/**
 * One link of a project's audit chain.
 */
export interface AuditEntry {
  seq: number;
  /**
   * ISO 8601, UTC, milliseconds
   */
  at: string;
  actor: string;
  action: string;
  tool_id: string | null;
  approval_id: string | null;
  detail: {
    [k: string]: unknown;
  };
  previous_hash: string;
  hash: string;
}
/**
 * Newest first.
 */
export interface AuditPage {
  entries: AuditEntry[];
  total_count: number;
  /**
   * Pass as `before` to go on; null at the end.
   */
  next_before: number | null;
}
/**
 * When a call that had waited in a client's queue was begun, and when the server gives up on its result.
 */
export interface Begun {
  /**
   * ISO 8601, UTC, milliseconds
   */
  started_at: string;
  /**
   * ISO 8601, UTC, milliseconds
   */
  deadline: string;
}
/**
 * One call, or one undo, by its id.
 */
export interface CallRef {
  tool_id: string;
}
export interface Cancelled {
  success: boolean;
  message: string;
}
/**
 * Undo a call as the preview showed it.
 */
export interface CarryOut {
  tool_id: string;
  plan: string;
  partial?: boolean;
}
/**
 * A file that a call changed and nobody took back.
 */
export interface ChangedFile {
  tool_id: string;
  path: string;
  kind: ChangeKind;
  /**
   * ISO 8601, UTC, milliseconds
   */
  at: string;
  /**
   * Its undo began and did not end.
   */
  interrupted: boolean;
}
export interface ChatError {
  /**
   * ISO 8601, UTC, milliseconds
   */
  timestamp: string;
  kind: "chat.error";
  session_id: string;
  run_id: string | null;
  message: string;
  hint: string | null;
}
export interface ChatMessage {
  /**
   * ISO 8601, UTC, milliseconds
   */
  timestamp: string;
  kind: "chat.message";
  message_id: string;
  session_id: string;
  run_id: string | null;
  role: "user" | "agent";
  content: string;
}
/**
 * A piece of the agent's text as it streams.
 */
export interface ChatText {
  /**
   * ISO 8601, UTC, milliseconds
   */
  timestamp: string;
  kind: "chat.text";
  session_id: string;
  run_id: string;
  text: string;
}
/**
 * What the gate says of a call, and why. Nothing ran, and nothing was recorded.
 */
export interface CheckAnswer {
  verdict: VerdictLevel;
  decision: CheckDecision;
  /**
   * What decides, in one sentence: the level, a rule of a layer, a grant, the mode.
   */
  because: string;
  findings: Finding[];
  /**
   * The strictest finding's rule, or what lets it run without a question (`grant:…`, `rule:…`, `mode:full`).
   */
  decided_by: string;
  /**
   * Where that rule was written: a layer and its file; null when no rule decided.
   */
  layer: string | null;
  always_asks: boolean;
  network: boolean;
  /**
   * Files whose content would run.
   */
  runs: string[];
  /**
   * What a person would be asked; null for what is refused.
   */
  description: string | null;
  /**
   * How a command's arguments were read.
   */
  understood: {
    [k: string]: unknown;
  } | null;
  /**
   * How long there would be to answer; null when it does not ask.
   */
  timeout_seconds: number | null;
}
/**
 * What would happen if an agent made this call?
 */
export interface CheckBody {
  tool_name: string;
  tool_params: {
    [k: string]: unknown;
  };
  /**
   * Also look at the grants of this session.
   */
  session_id?: string | null;
  mode?: AgentMode3;
}
/**
 * How an execution ended on the user's machine (C7), kept in the client's history.
 */
export interface ClientResult {
  tool_id: string;
  tool_name: string;
  status: ClientResultStatus;
  result: {
    [k: string]: unknown;
  } | null;
  error: string | null;
  error_type: ErrorType | null;
  duration_ms: number;
  /**
   * ISO 8601, UTC, milliseconds
   */
  timestamp: string;
}
/**
 * A client's result.
 */
export interface CompletedReport {
  status: "completed";
  result: {
    [k: string]: unknown;
  };
  duration_ms?: number | null;
  timestamp?: string | null;
}
/**
 * A decision without the project in the path (R9).
 */
export interface ConfirmBody {
  decision: "approved" | "rejected";
  reason?: string | null;
  scope?: ApprovalScope2;
  terms?: GrantTerms | null;
  digest?: string | null;
}
/**
 * Execute a project's calls in a directory, with the server and token of `server/use`.
 */
export interface ConnectWorkspace {
  project_id: string;
  /**
   * An absolute path.
   */
  workspace: string;
  settings?: WorkspaceSettings;
}
/**
 * What a person set in the editor; what is left out is as in the terminal.
 */
export interface WorkspaceSettings {
  command_timeout_seconds?: number | null;
  max_file_bytes?: number | null;
  concurrency?: number | null;
  approval_timeout_seconds?: number | null;
  cache_enabled?: boolean | null;
  cache_seconds?: number | null;
  sandbox?: string | null;
  search_provider?: string | null;
  searxng_url?: string | null;
  tavily_url?: string | null;
  tavily_api_key?: string | null;
  brave_url?: string | null;
  brave_api_key?: string | null;
  search_allow_private?: boolean | null;
}
/**
 * How the client that executes stands with the server.
 */
export interface ConnectionChanged {
  /**
   * `lost` is tried again by itself; `ended` is not.
   */
  state: "connected" | "lost" | "ended";
  message: string | null;
  hint: string | null;
  /**
   * It ended because the token is no longer taken.
   */
  signed_out: boolean;
}
/**
 * How a question ended: answered, out of time (`timeout`), or withdrawn (`cancelled`).
 */
export interface Decision {
  approval_id: string;
  status: ApprovalStatus;
  /**
   * `person:alice`, `grant:…`; null when nobody answered.
   */
  decided_by: string | null;
  decided_from: AnsweredFrom | null;
  /**
   * ISO 8601, UTC, milliseconds
   */
  decided_at: string;
  /**
   * What the person said with a no.
   */
  reason: string | null;
  /**
   * With a yes: how far it reaches.
   */
  scope: ApprovalScope | null;
  grant_id: string | null;
}
export interface DecisionAnswer {
  success: boolean;
  approval_id: string;
  status: ApprovalStatus;
  message: string;
  grant_id: string | null;
  /**
   * Executions that waited and were let go by the same answer.
   */
  released: string[];
}
/**
 * The engine as it stands: facts for a log or a report, without secrets.
 */
export interface Diagnosis {
  version: string;
  python: string;
  system: string;
  home: string;
  server_url: string | null;
  workspace: string | null;
  connection: string;
  isolation: IsolationFound | null;
  running: string[];
  queued: string[];
  /**
   * Results that the server does not have yet.
   */
  unsent: number;
  history: ClientResult[];
}
/**
 * What holds the commands that run here.
 */
export interface IsolationFound {
  isolated: boolean;
  backend: string;
  warnings: string[];
}
export interface DirectoryEntry {
  name: string;
  path: string;
  type: "file" | "directory";
  size: number;
  /**
   * ISO 8601, UTC, milliseconds
   */
  modified: string;
}
/**
 * The code of a one-time link, to be exchanged for a token.
 */
export interface ExchangeBody {
  code: string;
}
/**
 * Exchange the code of a one-time link for a token.
 */
export interface ExchangeLink {
  server_url: string;
  code: string;
}
/**
 * A program's own token.
 */
export interface ExchangedToken {
  token: string;
  user_id: string;
  scopes: Scope[];
  expires_in_seconds: number;
}
export interface ExecuteCommandParams {
  /**
   * Name of an allowed command; no path, no shell.
   */
  command: string;
  /**
   * Arguments, one item each; nothing is expanded.
   */
  args?: string[];
  /**
   * Seconds it may run.
   */
  timeout?: number;
}
/**
 * What a command printed. One that ran to its end is a success, whatever its exit code.
 */
export interface ExecuteCommandResult {
  success: boolean;
  error: string | null;
  stdout: string;
  stderr: string;
  /**
   * None when it was ended by us.
   */
  exit_code: number | null;
  /**
   * Seconds.
   */
  execution_time: number;
  /**
   * Whether output was left out of the middle.
   */
  truncated: boolean;
  /**
   * Which isolation was really applied.
   */
  isolation: {
    [k: string]: unknown;
  };
  /**
   * Files that differ after it, the first 200.
   *
   * @maxItems 200
   */
  changed: FileChange[];
  /**
   * How many files differ after it.
   */
  changed_count: number;
  /**
   * What a person should know: a file it changed runs later, or what it changed could not be seen.
   */
  warnings: string[];
}
/**
 * One file that a command left different.
 */
export interface FileChange {
  path: string;
  change: "created" | "changed" | "deleted";
}
/**
 * A call from an agent that runs elsewhere (R7).
 */
export interface ExecuteRequest {
  /**
   * May be left out where `session_id` tells it.
   */
  project_id?: string | null;
  tool_name: string;
  tool_params: {
    [k: string]: unknown;
  };
  /**
   * Left out: the agent's own session in the project.
   */
  session_id?: string | null;
  /**
   * How much to ask, never wider than the token allows; left out: as the token says.
   */
  mode?: AgentMode2 | null;
  /**
   * Not used any more: an agent is called what its token says.
   */
  agent_id?: string | null;
  /**
   * The same key in the same session names the same call: a repeated request never runs twice. Without a session_id
   * that holds in the whole project, whichever of the agent's tokens it comes with.
   */
  idempotency_key?: string | null;
}
/**
 * The record of one call (D). Parameters and result have their secrets masked.
 */
export interface Execution {
  tool_id: string;
  user_id: string;
  project_id: string;
  session_id: string;
  run_id: string | null;
  agent_id: string | null;
  mode: AgentMode2;
  approval_id: string | null;
  client_id: string | null;
  tool_name: string;
  tool_params: {
    [k: string]: unknown;
  };
  digest: string;
  result: {
    [k: string]: unknown;
  } | null;
  risk_level: RiskLevel;
  requires_approval: boolean;
  reasons: string[];
  /**
   * Who or what let it run: `risk:LOW`, `person:alice`, `mode:full`, `grant:…`, `rule:…`.
   */
  approved_by: string | null;
  /**
   * How its question ended: by whom, where and when it was allowed or denied, or that nobody answered in time; null
   * when nobody was asked, or the question still waits.
   */
  decision: Decision | null;
  status: ExecutionStatus;
  error: string | null;
  error_type: ErrorType | null;
  /**
   * The work alone, without what it waited for.
   */
  execution_time_ms: number | null;
  /**
   * ISO 8601, UTC, milliseconds
   */
  created_at: string;
  approved_at: string | null;
  /**
   * When the client began with it; null before that, also while it waits in the client's queue.
   */
  started_at: string | null;
  completed_at: string | null;
}
/**
 * The server has the result.
 */
export interface ExecutionAcknowledged {
  tool_id: string;
  status: ExecutionStatus;
}
export interface ExecutionCancelSignal {
  /**
   * ISO 8601, UTC, milliseconds
   */
  timestamp: string;
  kind: "tool.cancel_signal";
  tool_id: string;
  client_id: string;
  session_id: string;
}
/**
 * A piece of what a command prints, with secrets masked.
 */
export interface ExecutionOutput {
  tool_id: string;
  stream: "stdout" | "stderr";
  text: string;
}
export interface ExecutionPage {
  executions: Execution[];
  total_count: number;
  /**
   * Pass as `cursor` to go on; null at the end.
   */
  next_cursor: string | null;
}
export interface ExecutionSignal {
  /**
   * ISO 8601, UTC, milliseconds
   */
  timestamp: string;
  kind: "tool.execution_signal";
  tool_id: string;
  tool_name: string;
  /**
   * The true parameters.
   */
  tool_params: {
    [k: string]: unknown;
  };
  /**
   * What was approved; the client computes it again and refuses a difference.
   */
  digest: string;
  risk_level: RiskLevel;
  approval_id: string | null;
  /**
   * `risk:LOW`, `person:alice`, `mode:full`, `grant:…`, `rule:…`.
   */
  approved_by: string;
  /**
   * Files the approval is bound to, with the digests of what was shown.
   */
  bound: {
    [k: string]: string;
  };
  mode: AgentMode2;
  network: boolean;
  /**
   * ISO 8601, UTC, milliseconds
   */
  deadline: string;
  client_id: string;
  session_id: string;
  /**
   * Where the client's spans hang, when the server traces; it decides nothing.
   */
  traceparent: string | null;
}
/**
 * A call began to run.
 */
export interface ExecutionStarted {
  tool_id: string;
  tool_name: string;
  /**
   * With secrets masked.
   */
  tool_params: {
    [k: string]: unknown;
  };
  approved_by: string;
  /**
   * ISO 8601, UTC, milliseconds
   */
  timestamp: string;
}
/**
 * A client's failure.
 */
export interface FailedReport {
  status: "failed";
  error: string;
  error_type?: ErrorType | null;
  /**
   * What there is all the same, such as the output of a command that timed out.
   */
  result?: {
    [k: string]: unknown;
  } | null;
  duration_ms?: number | null;
  timestamp?: string | null;
}
/**
 * A stream ended. `status` when the server refused it, 0 when it could not be reached or broke off.
 */
export interface FeedClosed {
  feed: number;
  status: number;
}
/**
 * The client that will execute is asked to look at what the call would run.
 */
export interface InspectionRequested {
  /**
   * ISO 8601, UTC, milliseconds
   */
  timestamp: string;
  kind: "tool.inspection_request";
  tool_id: string;
  tool_name: string;
  /**
   * The true parameters.
   */
  tool_params: {
    [k: string]: unknown;
  };
  client_id: string;
  session_id: string;
}
/**
 * The client that executed a call is asked what undoing it would do, or to do it.
 */
export interface UndoRequested {
  /**
   * ISO 8601, UTC, milliseconds
   */
  timestamp: string;
  kind: "tool.undo_request";
  request_id: string;
  tool_id: string;
  client_id: string;
  session_id: string;
  /**
   * The plan to carry out; null: only say what it would be.
   */
  plan: string | null;
  partial: boolean;
  /**
   * ISO 8601, UTC, milliseconds
   */
  deadline: string;
  /**
   * Paths that the server's own rules deny, by tool; the machine adds its owner's.
   */
  keep_off: {
    [k: string]: string[];
  };
}
/**
 * What a call did to files was taken back.
 */
export interface ToolUndone {
  /**
   * ISO 8601, UTC, milliseconds
   */
  timestamp: string;
  kind: "tool.undone";
  tool_id: string;
  undo_id: string | null;
  files: number;
  undone_by: string;
  session_id: string;
}
/**
 * A client connected or left; this is who is here now.
 */
export interface MachinesChanged {
  /**
   * ISO 8601, UTC, milliseconds
   */
  timestamp: string;
  kind: "project.machines";
  machines: Machine[];
}
/**
 * A client that is connected now.
 */
export interface Machine {
  client_id: string;
  workspace: string | null;
  /**
   * What holds its commands: `bwrap`, `landlock`, …; `none`; null when it did not say.
   */
  isolation: string | null;
  /**
   * Whether the next call would run there.
   */
  next: boolean;
  /**
   * The editor it runs in; null for one without, or when it did not say.
   */
  editor: "vscode" | null;
}
/**
 * A grant was given, used up, or taken back.
 */
export interface GrantChanged {
  /**
   * ISO 8601, UTC, milliseconds
   */
  timestamp: string;
  kind: "grant.changed";
  grant: Grant;
}
/**
 * A saved answer.
 */
export interface Grant {
  id: string;
  user_id: string;
  project_id: string;
  session_id: string;
  scope: ApprovalScope;
  /**
   * None: everything in the session.
   */
  rule: GrantRule | null;
  text: string;
  status: GrantStatus;
  /**
   * The question it was given with.
   */
  approval_id: string | null;
  uses: number;
  max_uses: number | null;
  /**
   * ISO 8601, UTC, milliseconds
   */
  created_at: string;
  created_by: string;
  /**
   * ISO 8601, UTC, milliseconds
   */
  expires_at: string;
  revoked_at: string | null;
  revoked_by: string | null;
}
export interface ResultAcknowledged {
  /**
   * ISO 8601, UTC, milliseconds
   */
  timestamp: string;
  kind: "tool.result_ack";
  tool_id: string;
  status: ExecutionStatus;
  session_id: string;
}
export interface ToolStarted {
  /**
   * ISO 8601, UTC, milliseconds
   */
  timestamp: string;
  kind: "tool.started";
  tool_id: string;
  tool_name: string;
  tool_params: {
    [k: string]: unknown;
  };
  risk_level: RiskLevel;
  session_id: string;
  run_id: string | null;
  /**
   * What let it run without a question: `risk:LOW`, `mode:full`, `grant:…`, `rule:…`; null when it asks.
   */
  approved_by: string | null;
}
/**
 * A call waits on the machine for others to end, or has waited and begins now.
 */
export interface ToolQueued {
  /**
   * ISO 8601, UTC, milliseconds
   */
  timestamp: string;
  kind: "tool.queued";
  tool_id: string;
  waits: boolean;
  session_id: string;
}
export interface ToolFinished {
  /**
   * ISO 8601, UTC, milliseconds
   */
  timestamp: string;
  kind: "tool.finished";
  tool_id: string;
  tool_name: string;
  status: ExecutionStatus;
  result: {
    [k: string]: unknown;
  } | null;
  result_shortened: boolean;
  error: string | null;
  error_type: ErrorType | null;
  execution_time_ms: number | null;
  session_id: string;
  run_id: string | null;
  approved_by: string | null;
}
export interface ToolOutput {
  /**
   * ISO 8601, UTC, milliseconds
   */
  timestamp: string;
  kind: "tool.output";
  tool_id: string;
  stream: "stdout" | "stderr";
  text: string;
  sequence: number;
  session_id: string;
}
export interface RunChanged {
  /**
   * ISO 8601, UTC, milliseconds
   */
  timestamp: string;
  kind: "chat.run";
  session_id: string;
  run_id: string;
  state: RunState;
}
/**
 * What a run has used of its model so far.
 */
export interface RunUsage {
  /**
   * ISO 8601, UTC, milliseconds
   */
  timestamp: string;
  kind: "chat.usage";
  session_id: string;
  run_id: string;
  /**
   * Answers of the model.
   */
  requests: number;
  input_tokens: number;
  output_tokens: number;
}
/**
 * One event of a stream.
 */
export interface FeedFrame {
  feed: number;
  id: string | null;
  event: string;
  data: string;
}
/**
 * One stream by its number.
 */
export interface FeedRef {
  feed: number;
}
/**
 * A file as a call found it.
 */
export interface FileBefore {
  tool_id: string;
  path: string;
}
export interface GrantList {
  grants: Grant[];
  total_count: number;
}
/**
 * A rule, held against the calls that were made.
 */
export interface GrantPreview {
  rule: GrantRule;
  text: string;
  widest: string;
  /**
   * Why it may not be saved; null when it may.
   */
  problem: string | null;
  looked_at: number;
  covered: number;
  /**
   * Calls it would have covered that a person refused.
   */
  refused: PastCall[];
  examples: PastCall[];
  /**
   * For example: would have covered 37 of your last 200 calls, among them 2 you refused.
   */
  sentence: string;
}
/**
 * A call of the record, as a preview names it.
 */
export interface PastCall {
  tool_id: string;
  description: string;
  risk_level: RiskLevel;
  status: ExecutionStatus;
  /**
   * ISO 8601, UTC, milliseconds
   */
  created_at: string;
}
/**
 * What would this rule have covered?
 */
export interface GrantPreviewBody {
  rule: GrantRule;
}
/**
 * The first request: who starts the engine, and which protocol it speaks.
 */
export interface Initialize {
  protocol: number;
  editor?: string;
}
/**
 * The engine that answers.
 */
export interface Initialized {
  protocol: number;
  version: string;
  /**
   * Where it keeps its state; `byleave undo` in a terminal sees the same.
   */
  home: string;
}
export interface ListDirectoryParams {
  /**
   * Path inside the workspace, relative to it (or absolute below it).
   */
  path?: string;
  /**
   * Also list what lies below.
   */
  recursive?: boolean;
  /**
   * Glob on names; hidden files are listed only when it starts with a dot.
   */
  pattern?: string;
}
export interface ListDirectoryResult {
  success: boolean;
  error: string | null;
  /**
   * The first 1000.
   */
  files: DirectoryEntry[];
  /**
   * How many there are.
   */
  total_count: number;
  /**
   * Whether there are more than `files` holds.
   */
  truncated: boolean;
  /**
   * There may be more than `total_count`: counting them all would take too long, or they lie too deep.
   */
  at_least: boolean;
}
export interface MachineList {
  machines: Machine[];
  total_count: number;
}
/**
 * Who is asking, and what the server is.
 */
export interface Me {
  user_id: string;
  scopes: Scope[];
  /**
   * The server's.
   */
  version: string;
  /**
   * Whether an agent works on messages here.
   */
  chat: boolean;
}
export interface Message {
  message_id: string;
  session_id: string;
  run_id: string | null;
  role: "user" | "agent";
  content: string;
  /**
   * ISO 8601, UTC, milliseconds
   */
  created_at: string;
}
export interface MessageAccepted {
  message_id: string;
  session_id: string;
  run_id: string;
}
export interface MessageBody {
  content: string;
  /**
   * Leave it out to open a new session.
   */
  session_id?: string | null;
  /**
   * How much the agent must ask in this run; left out: the agent's own mode. Never wider than the agent's widest.
   */
  mode?: AgentMode2 | null;
  /**
   * Which of the project's agents works on it; left out: `chat`.
   */
  agent?: string | null;
  /**
   * The sender's own name for this message. Sent again under the same key, it is answered as it was the first time,
   * and neither kept nor worked on twice; another message under the same key is a conflict.
   */
  client_key?: string | null;
}
export interface MessageList {
  messages: Message[];
  /**
   * How many are here.
   */
  total_count: number;
  /**
   * Whether there are older ones; `before` with the first message's id gets them.
   */
  more: boolean;
}
/**
 * No parameters, or no answer but that it is done.
 */
export interface Nothing {}
/**
 * Open one stream of events; its frames follow as notifications under the number the editor chose.
 */
export interface OpenFeed {
  feed: number;
  path: string;
  last_event_id?: string | null;
}
/**
 * Output of a command while it runs.
 */
export interface OutputChunk {
  stream: "stdout" | "stderr";
  text: string;
  /**
   * Counts up from 0 for each execution; a repeated number is dropped.
   */
  sequence: number;
}
/**
 * What a client says of its machine's rules.
 */
export interface PolicyDeclaration {
  client_id: string;
  /**
   * @maxItems 8
   */
  layers:
    | []
    | [PolicyText]
    | [PolicyText, PolicyText]
    | [PolicyText, PolicyText, PolicyText]
    | [PolicyText, PolicyText, PolicyText, PolicyText]
    | [PolicyText, PolicyText, PolicyText, PolicyText, PolicyText]
    | [PolicyText, PolicyText, PolicyText, PolicyText, PolicyText, PolicyText]
    | [PolicyText, PolicyText, PolicyText, PolicyText, PolicyText, PolicyText, PolicyText]
    | [PolicyText, PolicyText, PolicyText, PolicyText, PolicyText, PolicyText, PolicyText, PolicyText];
  /**
   * Tools that cannot work on this machine, and why: their calls are refused before anybody is asked.
   */
  unable?: {
    /**
     * This interface was referenced by `undefined`'s JSON-Schema definition
     * via the `patternProperty` "^[A-Za-z0-9][A-Za-z0-9_.-]*$".
     */
    [k: string]: string;
  };
}
/**
 * One layer as it was written.
 */
export interface PolicyText {
  layer: Layer;
  /**
   * Where it was read, for people: a file's name.
   */
  source: string;
  text: string;
  /**
   * A project's file may loosen only after the owner trusts it; what tightens counts anyway.
   */
  trusted?: boolean;
}
/**
 * An error on the wire: RFC 9457 problem+json.
 */
export interface Problem {
  type?: string;
  /**
   * The kind of error, in a few words.
   */
  title: string;
  status: number;
  /**
   * What happened, as a sentence.
   */
  detail: string;
  /**
   * What to do about it.
   */
  hint?: string | null;
  /**
   * With a conflict: what already holds.
   */
  state?: string | null;
  /**
   * With a wrong form: what is wrong, field by field.
   */
  errors?:
    | {
        [k: string]: unknown;
      }[]
    | null;
}
export interface Project {
  project_id: string;
  name: string;
  /**
   * ISO 8601, UTC, milliseconds
   */
  created_at: string;
}
export interface ProjectBody {
  name: string;
  /**
   * Only where the user has no project yet; else the answer is their oldest. Two who ask at once get the same one.
   */
  if_none?: boolean;
}
export interface ProjectList {
  projects: Project[];
  total_count: number;
}
/**
 * Are you the server that signed this token? The token's signature stays with the one who asks.
 */
export interface ProofBody {
  /**
   * The token up to its second dot.
   */
  claims: string;
  /**
   * Random, and new each time.
   */
  challenge: string;
}
/**
 * Calls that a client was signalled and has not begun: others come first.
 */
export interface QueueReport {
  /**
   * @maxItems 1000
   */
  tool_ids: string[];
}
/**
 * Its result: always `success`, and `error` on failure.
 */
export interface RanTool {
  result: {
    [k: string]: unknown;
  };
}
export interface ReadFileParams {
  /**
   * Path inside the workspace, relative to it (or absolute below it).
   */
  path: string;
  /**
   * First line to read, counted from 1.
   */
  start_line?: number | null;
  /**
   * Last line to read, inclusive.
   */
  end_line?: number | null;
}
export interface ReadFileResult {
  success: boolean;
  error: string | null;
  /**
   * The text; base64 when `encoding` is `base64` (pdf and images).
   */
  content: string;
  encoding: string;
  /**
   * Bytes of the whole file.
   */
  size: number;
  start_line: number | null;
  end_line: number | null;
  total_lines: number | null;
}
export interface RejectBody {
  decision?: "rejected";
  /**
   * Told to the agent.
   */
  reason?: string | null;
}
/**
 * A path of the workspace, as somebody wrote it.
 */
export interface ResolvePath {
  path: string;
}
/**
 * Its real place, if it is one that a tool may read.
 */
export interface ResolvedPath {
  valid: boolean;
  error: string | null;
  real_path: string | null;
}
/**
 * The server's answer to a report.
 */
export interface ResultAck {
  success: boolean;
  tool_id: string;
  status: ExecutionStatus;
  message: string;
}
/**
 * One file of rules that judges a project's calls.
 */
export interface RuleLayer {
  layer: Layer;
  source: string;
  text: string;
  trusted: boolean;
  /**
   * The machine that declared it; null for the server's own.
   */
  client_id: string | null;
}
export interface RuleLayers {
  layers: RuleLayer[];
  widest_mode: AgentMode2;
}
export interface Run {
  run_id: string;
  project_id: string;
  session_id: string;
  agent: string;
  state: RunState;
  mode: AgentMode2;
  error: string | null;
  /**
   * ISO 8601, UTC, milliseconds
   */
  created_at: string;
  /**
   * ISO 8601, UTC, milliseconds
   */
  updated_at: string;
}
export interface RunList {
  /**
   * Newest first.
   */
  runs: Run[];
  /**
   * How many are here.
   */
  total_count: number;
}
/**
 * Run one tool here and now, as `byleave tool` does: no question, but the gate, the bounds and the sandbox hold.
 */
export interface RunTool {
  tool_name: string;
  tool_params: {
    [k: string]: unknown;
  };
}
export interface SearchFilesParams {
  /**
   * What to look for.
   */
  pattern: string;
  /**
   * Path inside the workspace, relative to it (or absolute below it).
   */
  path?: string;
  /**
   * Take the pattern as a regular expression, not as text.
   */
  regex?: boolean;
  /**
   * Only files whose name fits.
   */
  glob?: string | null;
  /**
   * Whether upper and lower case differ.
   */
  case_sensitive?: boolean;
  /**
   * Stop after so many matches.
   */
  max_results?: number;
}
export interface SearchFilesResult {
  success: boolean;
  error: string | null;
  matches: SearchMatch[];
  /**
   * How many are here.
   */
  total_count: number;
  /**
   * Whether there are more: the search ends with the last that is asked for.
   */
  truncated: boolean;
}
export interface SearchMatch {
  path: string;
  line_number: number;
  line: string;
}
export interface SearchWebParams {
  /**
   * What to search the web for.
   */
  query: string;
  /**
   * How many results to return.
   */
  max_results?: number;
}
export interface SearchWebResult {
  success: boolean;
  error: string | null;
  results: WebHit[];
}
export interface WebHit {
  title: string;
  url: string;
  snippet: string;
}
/**
 * What the server answered. Status 421: what answers did not prove that it is the server, so it got no token.
 */
export interface ServerAnswer {
  status: number;
  body: {
    [k: string]: unknown;
  } | null;
  /**
   * The server's clock in milliseconds since 1970.
   */
  server_time: number | null;
}
/**
 * What only the one who can sign that token can say.
 */
export interface ServerProof {
  /**
   * The address this server was reached at, as it sees it itself.
   */
  host: string;
  port: number;
  /**
   * HMAC-SHA256, in hex, over `byleave server proof 1`, the challenge, the host and the port, each on a line of its
   * own; the key is the token's signature.
   */
  proof: string;
}
/**
 * One request to the server with the token.
 */
export interface ServerRequest {
  method: "GET" | "POST";
  path: string;
  body?: {
    [k: string]: unknown;
  } | null;
}
export interface Session {
  session_id: string;
  project_id: string;
  title: string;
  /**
   * ISO 8601, UTC, milliseconds
   */
  created_at: string;
}
export interface SessionList {
  sessions: Session[];
  total_count: number;
}
/**
 * One path, before and after.
 */
export interface ShownChange {
  path: string;
  kind: ChangeKind;
  /**
   * The text as it is now; null where there is none to show.
   */
  before?: string | null;
  /**
   * The text as it would be; null where there is none to show.
   */
  after?: string | null;
  /**
   * Why a text is not shown (too large, no text, may hold secrets), or what else changes (a mode, a link).
   */
  note?: string | null;
}
/**
 * A link that signs a browser in, once.
 */
export interface SignInLink {
  /**
   * From the server's address: `/signin?code=…`.
   */
  path: string;
  expires_in_seconds: number;
}
/**
 * What it held: `text` is null where there was no file, or where `shown` is false and it cannot be shown.
 */
export interface TextBefore {
  text: string | null;
  shown: boolean;
}
export interface ToolCatalogue {
  tools: ToolInfo[];
  total_count: number;
}
/**
 * A tool as the catalogue shows it.
 */
export interface ToolInfo {
  name: string;
  description: string;
  /**
   * JSON Schema of the parameters.
   */
  parameters: {
    [k: string]: unknown;
  };
  requires_approval: boolean;
  risk_level: RiskLevel;
  timeout_seconds: number;
}
/**
 * What `execute_tool` returns and `POST /my/tools/execute` answers.
 */
export interface ToolResponse {
  tool_id: string;
  tool_name: string;
  status: ResponseStatus;
  result: {
    [k: string]: unknown;
  } | null;
  error: string | null;
  approval_id: string | null;
  error_type: ErrorType | null;
  /**
   * What the agent could do instead of what was refused.
   */
  hint: string | null;
}
/**
 * What every result carries.
 */
export interface ToolResult {
  success: boolean;
  error: string | null;
}
/**
 * How an undo ended, or that it goes on.
 */
export interface UndoAnswer {
  tool_id: string;
  /**
   * `undoing`: the machine has begun and is not done yet; `tool.undone` on the feed says when it is.
   */
  state: "done" | "undoing";
  undo_id: string | null;
  files: number;
  message: string;
}
/**
 * Carry an undo out.
 */
export interface UndoBody {
  /**
   * The plan that was shown.
   */
  plan: string;
  /**
   * Also when something is lost: undo the rest.
   */
  partial?: boolean;
}
/**
 * What agents changed in the workspace, newest first.
 */
export interface UndoList {
  changes: ChangedFile[];
  undone: UndoneCall[];
}
/**
 * A call that was undone and can be brought back.
 */
export interface UndoneCall {
  undo_id: string;
  paths: string[];
  /**
   * ISO 8601, UTC, milliseconds
   */
  at: string;
}
/**
 * What an undo would do, as the machine that ran the call sees it now.
 */
export interface UndoPlan {
  tool_id: string;
  /**
   * A digest of all of it; carrying it out needs the same one.
   */
  plan: string;
  /**
   * @maxItems 200
   */
  files: ShownChange[];
  /**
   * More than `files` has when there are too many to show.
   */
  total_files: number;
  /**
   * Changed since the call: nothing can be undone while there is one.
   *
   * @maxItems 200
   */
  conflicts?: string[];
  /**
   * What was not kept and cannot be brought back, with why; undoing the rest must be asked for.
   */
  lost?: {
    [k: string]: string;
  };
  /**
   * @maxItems 200
   */
  left?: string[];
  /**
   * @maxItems 50
   */
  notes?: string[];
  /**
   * Calls that ran at the same time; some of this may be their doing.
   *
   * @maxItems 50
   */
  together?: string[];
}
/**
 * What a client answers to `tool.undo_request`.
 */
export interface UndoReport {
  request_id: string;
  /**
   * What it would do, or did.
   */
  plan?: UndoPlan | null;
  /**
   * When it was carried out and changed something: under this name it can be taken back.
   */
  undo_id?: string | null;
  done?: boolean;
  /**
   * It was begun and takes long: another report follows.
   */
  begun?: boolean;
  /**
   * Why not.
   */
  problem?: string | null;
}
/**
 * How an undo ended.
 */
export interface Undone {
  message: string;
  /**
   * Under this id it can be brought back; null where nothing changed.
   */
  undo_id: string | null;
}
/**
 * A call was undone here because somebody asked for it on the page or in the chat.
 */
export interface UndoneElsewhere {
  tool_id: string;
  undo_id: string;
  paths: string[];
}
/**
 * The server, and the token for it, that requests and connections use from now on.
 */
export interface UseServer {
  server_url: string;
  token: string;
}
/**
 * The gate's answer for one call.
 */
export interface Verdict {
  level: VerdictLevel;
  /**
   * Strictest first; never empty.
   */
  findings: Finding[];
  /**
   * Whether what would run needs the network; an approval then grants it.
   */
  network: boolean;
  /**
   * With REFUSE: `invalid` for a malformed call, `refused` for a well-formed one that may not run.
   */
  error_type: ErrorType | null;
  /**
   * How the arguments were read, for `byleave check`.
   */
  understood: {
    [k: string]: unknown;
  } | null;
  /**
   * The rule that waives the question this level alone would ask; never set where something else asks.
   */
  waived_by: string | null;
  /**
   * Files of the workspace whose content would run: an approval shows them and is bound to them.
   */
  runs: string[];
}
/**
 * All of what waits for a decision, where the question shows a part.
 */
export interface WholeCall {
  approval_id: string;
  /**
   * The whole call, secrets masked, safe to print.
   */
  text: string;
}
/**
 * The client that executes now.
 */
export interface WorkspaceConnected {
  client_id: string;
  /**
   * Its real path.
   */
  workspace: string;
  /**
   * The owner's rules that hold here, in a sentence.
   */
  rules: string | null;
}
/**
 * What a person set in the editor; what is left out is as in the terminal.
 */
export interface WorkspaceSettings1 {
  command_timeout_seconds?: number | null;
  max_file_bytes?: number | null;
  concurrency?: number | null;
  approval_timeout_seconds?: number | null;
  cache_enabled?: boolean | null;
  cache_seconds?: number | null;
  sandbox?: string | null;
  search_provider?: string | null;
  searxng_url?: string | null;
  tavily_url?: string | null;
  tavily_api_key?: string | null;
  brave_url?: string | null;
  brave_api_key?: string | null;
  search_allow_private?: boolean | null;
}
/**
 * What the write that waits for a decision would do (`GET /my/approvals/{approval_id}/change`).
 */
export interface WriteChange {
  approval_id: string;
  /**
   * The approval's: the difference belongs to exactly this question.
   */
  digest: string;
  change: ShownChange;
  /**
   * What the machine read; another content when it runs is drift, and refused. Null: no machine has looked.
   */
  before_sha256: string | null;
  before_size: number | null;
  seen_at: string | null;
}
export interface WriteFileParams {
  /**
   * Path inside the workspace, relative to it (or absolute below it).
   */
  path: string;
  /**
   * The text to write.
   */
  content: string;
  /**
   * Replace the file, or add to its end.
   */
  mode?: "write" | "append";
}
export interface WriteFileResult {
  success: boolean;
  error: string | null;
  path: string;
  /**
   * The file's new size in bytes.
   */
  size: number;
  /**
   * What a person should know, such as that it cannot be undone.
   */
  warnings: string[];
}
/** Requests to an editor's engine: what each takes and answers. */
export interface EngineRequests {
  "initialize": [Initialize, Initialized];
  "shutdown": [Nothing, Nothing];
  "server/exchange": [ExchangeLink, ExchangedToken];
  "server/try": [UseServer, ServerAnswer];
  "server/use": [UseServer, Nothing];
  "server/forget": [Nothing, Nothing];
  "server/request": [ServerRequest, ServerAnswer];
  "server/openFeed": [OpenFeed, Nothing];
  "server/closeFeed": [FeedRef, Nothing];
  "workspace/connect": [ConnectWorkspace, WorkspaceConnected];
  "workspace/disconnect": [Nothing, Nothing];
  "tool/run": [RunTool, RanTool];
  "path/resolve": [ResolvePath, ResolvedPath];
  "undo/list": [Nothing, UndoList];
  "undo/before": [FileBefore, TextBefore];
  "undo/preview": [CallRef, UndoPlan];
  "undo/carryOut": [CarryOut, Undone];
  "undo/bringBack": [CallRef, Undone];
  "diagnostics": [Nothing, Diagnosis];
}
/** Notifications of an editor's engine. */
export interface EngineNotifications {
  "server/feedOpened": FeedRef;
  "server/feedFrame": FeedFrame;
  "server/feedClosed": FeedClosed;
  "connection/changed": ConnectionChanged;
  "isolation/found": IsolationFound;
  "execution/started": ExecutionStarted;
  "execution/output": ExecutionOutput;
  "execution/ended": ClientResult;
  "execution/acknowledged": ExecutionAcknowledged;
  "undo/done": UndoneElsewhere;
}
