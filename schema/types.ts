/* Generated from byleave.schema.json by `make schema`. Do not edit. */

/**
 * Default approval mode of a message.
 */
export type AgentMode = "sandbox" | "full";
/**
 * Widest mode a message may choose.
 */
export type AgentMode1 = "sandbox" | "full";
/**
 * Approval mode of an agent: how often it must ask.
 */
export type AgentMode2 = "sandbox" | "full";
/**
 * Kind of client a person answered from.
 */
export type AnsweredFrom = "page" | "program";
/**
 * State of an approval.
 */
export type ApprovalStatus = "pending" | "approved" | "rejected" | "timeout" | "cancelled";
/**
 * Reach of an answer (G8).
 */
export type ApprovalScope = "once" | "class" | "session" | "project";
/**
 * Possible harm of a call. Ordered: `max()` of several is the strictest.
 */
export type RiskLevel = "LOW" | "MEDIUM" | "HIGH";
/**
 * LOW runs at once, MEDIUM and HIGH ask, REFUSE never runs.
 */
export type VerdictLevel = "LOW" | "MEDIUM" | "HIGH" | "REFUSE";
/**
 * Use of a file by the call.
 */
export type SeenRole = "runs" | "replaces";
/**
 * Reach of an answer (G8).
 */
export type ApprovalScope1 = "once" | "class" | "session" | "project";
/**
 * Effect on a path.
 */
export type ChangeKind = "create" | "change" | "delete";
export type CheckDecision = "runs" | "asks" | "refused";
/**
 * Approval mode of an agent: how often it must ask.
 */
export type AgentMode3 = "sandbox" | "full";
/**
 * Outcome of an execution on the user's machine (C7).
 */
export type ClientResultStatus = "success" | "error" | "timeout" | "cancelled";
/**
 * Reason an execution did not complete. Outcomes that share a state differ here.
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
 * Reach of an answer (G8).
 */
export type ApprovalScope2 = "once" | "class" | "session" | "project";
/**
 * Permission carried by a token. An `agent` token never approves, whatever other scopes it has.
 */
export type Scope = "chat" | "approve" | "execute" | "agent";
/**
 * State of an execution. Lower case on the wire; the record's tables hold the names.
 */
export type ExecutionStatus =
  "pending" | "awaiting_approval" | "approved" | "executing" | "completed" | "rejected" | "timeout" | "failed";
export type FeedEvent =
  | ApprovalRequested
  | ApprovalDecided
  | InspectionRequested
  | UndoRequested
  | SessionUndoRequested
  | ToolUndone
  | MachinesChanged
  | FeedGap
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
  | SessionChanged
  | ChatError;
export type GrantStatus = "active" | "revoked" | "expired" | "used_up";
/**
 * State of an agent's run. Lower case on the wire; the record's tables hold the names.
 */
export type RunState = "ready" | "running" | "waiting" | "done" | "failed";
/**
 * Source of a rule.
 */
export type Layer = "built-in" | "organisation" | "user" | "device" | "project";
/**
 * State of a call as the agent sees it.
 */
export type ResponseStatus = "pending" | "awaiting_approval" | "completed" | "rejected" | "timeout" | "failed";
export type ResultReport = CompletedReport | FailedReport;
/**
 * Use of a file by the call.
 */
export type SeenRole1 = "runs" | "replaces";

/**
 * An agent that works on messages.
 */
export interface AgentInfo {
  name: string;
  description: string;
  model: string;
  /**
   * Models a message may choose, the usual one first.
   */
  models: string[];
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
   * Kind of client the person answered from; null if no person did.
   */
  decided_from: AnsweredFrom | null;
}
export interface ApprovalList {
  approvals: ApprovalRequest[];
  total_count: number;
}
/**
 * The question. `digest` covers the tool, its true parameters and project: what is shown is what runs.
 */
export interface ApprovalRequest {
  id: string;
  user_id: string;
  project_id: string;
  session_id: string | null;
  agent_id: string | null;
  /**
   * Executions that wait for the answer; identical calls share one question.
   */
  tool_ids: string[];
  tool_name: string;
  /**
   * Parameters as shown: secrets masked, long text shortened and marked so.
   */
  tool_params: {
    [k: string]: unknown;
  };
  digest: string;
  risk_level: RiskLevel;
  findings: Finding[];
  /**
   * True if approving grants the network.
   */
  network: boolean;
  /**
   * The call on the first line; each further line is a note to be shown before an answer. The second tells of the
   * `edit`, if there was one. Made from the stored parameters, safe to print. Reasons are in `findings`, files in
   * `inspection`.
   */
  description: string;
  /**
   * Files that would run, as the machine sees them; the digest covers them.
   */
  inspection: Inspection | null;
  /**
   * Rules that could be saved with a yes; none for a call that no rule may cover.
   */
  suggestions: Suggestion[];
  /**
   * Set if a person changed the call: everything else here is about the changed one.
   */
  edit: Edit | null;
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
   * Grant saved with the answer, or grant that answered.
   */
  grant_id: string | null;
  /**
   * Kind of client the person answered from; null if no person did.
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
   * Name of the rule: `commands.find.-delete`, `paths.outside`, …
   */
  rule: string;
  /**
   * A safer alternative for the agent.
   */
  instead: string | null;
  /**
   * Asks in `full` mode too: secrets, files that run or are trusted later, catastrophic commands.
   */
  always_asks: boolean;
}
/**
 * A client's report on the files a call would run or replace.
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
   * Reason the inspection failed; then nothing is known, and the approval says so.
   */
  problem?: string | null;
}
/**
 * A file that a call would use, as it is now.
 */
export interface SeenFile {
  /**
   * Workspace-relative.
   */
  path: string;
  role?: SeenRole;
  sha256: string;
  size?: number | null;
  modified_at?: string | null;
  /**
   * Time at which an agent last wrote it; set by the server, whatever a client sends.
   */
  written_at?: string | null;
  /**
   * Content that will run, or its beginning; or all content that will be replaced. A question masks its secrets.
   */
  text?: string | null;
  /**
   * The text is incomplete. A long file that would be replaced has none: see `GET /my/approvals/{id}/change`.
   */
  shortened?: boolean;
  /**
   * Reason there is no text: binary, too long, or may hold secrets.
   */
  note?: string | null;
}
/**
 * A rule that a person may save with an answer, with its description.
 */
export interface Suggestion {
  rule: GrantRule;
  /**
   * The covered calls, in one sentence.
   */
  text: string;
  /**
   * The widest effect without a question.
   */
  widest: string;
}
/**
 * Calls that a grant covers. Empty fields do not narrow it; the tool always does.
 */
export interface GrantRule {
  tool: string;
  /**
   * First words of the command line, for execute_command.
   *
   * @maxItems 64
   */
  command?: string[];
  /**
   * True if nothing may follow those words.
   */
  exact?: boolean;
  /**
   * Path patterns from the workspace (`src/**`), for a file tool.
   *
   * @maxItems 32
   */
  paths?: string[];
  /**
   * For a command that runs files: covered only while they have this content (SHA-256).
   */
  files?: {
    [k: string]: string;
  };
}
/**
 * A person's change of a call before they allowed it.
 */
export interface Edit {
  /**
   * `person:alice`.
   */
  edited_by: string;
  /**
   * Parameters as the agent asked for them, masked and shortened like those beside which they stand.
   */
  asked: {
    [k: string]: unknown;
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
  /**
   * Set if a person changed the call: everything else here is about the changed one.
   */
  edit: Edit | null;
  /**
   * Calls that wait for the answer. Sent again, with the new call's `tool_id`, when an identical call joins.
   */
  calls: number;
}
export interface ApproveBody {
  /**
   * Required: an empty body approves nothing.
   */
  decision: "approved";
  scope?: ApprovalScope1;
  /**
   * Rule, expiry and number of uses, for a scope wider than this call.
   */
  terms?: GrantTerms | null;
  /**
   * Digest that was shown; if given, it must match the pending one.
   */
  digest?: string | null;
  /**
   * Number of waiting calls that was shown: if more wait now, nothing is approved.
   */
  calls?: number;
}
/**
 * Terms of an answer that covers more than one call.
 */
export interface GrantTerms {
  /**
   * The rule as shown or edited, for scopes `class` and `project`.
   */
  rule?: GrantRule | null;
  /**
   * At most a day; with the scope `project`, 30 days.
   */
  expires_in_seconds?: number | null;
  max_uses?: number | null;
  /**
   * True if the warning was shown and accepted, for scope `session`.
   */
  warned?: boolean;
}
/**
 * Result of verifying a project's audit chain.
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
 * An entry of a project's audit chain.
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
   * Pass as `before` for the next page; null on the last page.
   */
  next_before: number | null;
}
/**
 * Server's answer to a batch of reports.
 */
export interface BatchAck {
  /**
   * Calls whose result is stored. Report on each of the others alone: the answer says why.
   */
  accepted: string[];
}
/**
 * Start of a call that was queued by the client, and the deadline of its result.
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
/**
 * A call that was undone together with others.
 */
export interface CallUndo {
  tool_id: string;
  undo_id: string;
  files: number;
}
export interface Cancelled {
  success: boolean;
  message: string;
}
/**
 * Undo a call as previewed.
 */
export interface CarryOut {
  tool_id: string;
  plan: string;
  partial?: boolean;
}
/**
 * A file that a call changed and that was not restored.
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
/**
 * A file that calls of a conversation changed, as the record tells.
 */
export interface ChangedPath {
  path: string;
  change: "created" | "changed" | "deleted";
  /**
   * Calls that changed it, oldest first.
   */
  tool_ids: string[];
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
 * Decision of the gate on a call, with reasons. Nothing ran, and nothing was recorded.
 */
export interface CheckAnswer {
  verdict: VerdictLevel;
  decision: CheckDecision;
  /**
   * The deciding reason in one sentence: the level, a rule of a layer, a grant, the mode.
   */
  because: string;
  findings: Finding[];
  /**
   * Rule of the strictest finding, or what waives the question (`grant:…`, `rule:…`, `mode:full`).
   */
  decided_by: string;
  /**
   * Layer and file of that rule; null if no rule decided.
   */
  layer: string | null;
  always_asks: boolean;
  network: boolean;
  /**
   * Files whose content would run.
   */
  runs: string[];
  /**
   * Question for a person; null for a refused call.
   */
  description: string | null;
  /**
   * Parsed arguments of a command.
   */
  understood: {
    [k: string]: unknown;
  } | null;
  /**
   * Time to answer; null if it does not ask.
   */
  timeout_seconds: number | null;
}
/**
 * A hypothetical call of an agent, to be checked.
 */
export interface CheckBody {
  tool_name: string;
  tool_params: {
    [k: string]: unknown;
  };
  /**
   * Also apply the grants of this session.
   */
  session_id?: string | null;
  mode?: AgentMode3;
}
/**
 * Outcome of an execution on the user's machine (C7), kept in the client's history.
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
 * Result reported by a client.
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
  /**
   * Number of waiting calls that was shown: if more wait now, nothing is approved.
   */
  calls?: number;
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
 * Settings of the editor; missing ones default as in the terminal.
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
 * State of the connection to the server.
 */
export interface ConnectionChanged {
  /**
   * `lost` is retried automatically; `ended` is not.
   */
  state: "connected" | "lost" | "ended";
  message: string | null;
  hint: string | null;
  /**
   * True if it ended because the token is no longer accepted.
   */
  signed_out: boolean;
}
/**
 * Outcome of a question: answered, expired (`timeout`) or withdrawn (`cancelled`).
 */
export interface Decision {
  approval_id: string;
  status: ApprovalStatus;
  /**
   * `person:alice`, `grant:…`; null if nobody answered.
   */
  decided_by: string | null;
  decided_from: AnsweredFrom | null;
  /**
   * ISO 8601, UTC, milliseconds
   */
  decided_at: string;
  /**
   * Reason the person gave for a no.
   */
  reason: string | null;
  /**
   * Reach of a yes.
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
   * Other waiting executions that the same answer released.
   */
  released: string[];
}
/**
 * State of the engine for a log or a bug report, without secrets.
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
   * Results that the server has not received.
   */
  unsent: number;
  history: ClientResult[];
}
/**
 * Isolation of the commands that run here.
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
 * The changed call was judged and is asked about anew; nothing has run.
 */
export interface EditAnswer {
  /**
   * The new question; null while the machine still looks, or if nobody can be asked.
   */
  approval_id: string | null;
  tool_ids: string[];
  message: string;
}
/**
 * A person's change of a waiting call. The tool and whatever is left out stay as they are.
 */
export interface EditBody {
  /**
   * Digest of the question that was shown.
   */
  digest: string;
  /**
   * Number of waiting calls that was shown: if more wait now, nothing is changed.
   */
  calls?: number;
  /**
   * For write_file: all of the new content.
   */
  content?: string | null;
  /**
   * For execute_command: the command line, as typed. It is split into words; there is no shell.
   */
  line?: string | null;
  /**
   * For execute_command, in seconds.
   */
  timeout?: number | null;
  /**
   * For search_web.
   */
  query?: string | null;
}
/**
 * The parts of a waiting call that a person may change, as they are. Null: not a part of this call, or masked.
 */
export interface EditableCall {
  approval_id: string;
  digest: string;
  tool_name: string;
  content: string | null;
  /**
   * Command line; one that cannot be misread is parsed into the same words again.
   */
  line: string | null;
  timeout: number | null;
  query: string | null;
  /**
   * True if something in it is masked for people: then it is only given with `reveal`.
   */
  masked: boolean;
}
/**
 * Code of a one-time link, to be exchanged for a token.
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
 * Token of a program.
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
 * Output of a command. A command that ran to its end is a success, whatever its exit code.
 */
export interface ExecuteCommandResult {
  success: boolean;
  error: string | null;
  stdout: string;
  stderr: string;
  /**
   * None if we ended it.
   */
  exit_code: number | null;
  /**
   * Seconds.
   */
  execution_time: number;
  /**
   * True if output was left out of the middle.
   */
  truncated: boolean;
  /**
   * Isolation that was in fact applied.
   */
  isolation: {
    [k: string]: unknown;
  };
  /**
   * The first 200 files that differ afterwards.
   *
   * @maxItems 200
   */
  changed: FileChange[];
  /**
   * Number of files that differ afterwards.
   */
  changed_count: number;
  /**
   * Notes for a person: a changed file runs later, or changes could not be detected.
   */
  warnings: string[];
}
/**
 * A file changed by a command.
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
   * Optional if `session_id` is given.
   */
  project_id?: string | null;
  tool_name: string;
  tool_params: {
    [k: string]: unknown;
  };
  /**
   * Defaults to the agent's own session in the project.
   */
  session_id?: string | null;
  /**
   * Approval mode, never wider than the token allows; defaults to the token's mode.
   */
  mode?: AgentMode2 | null;
  /**
   * Ignored: the token names the agent.
   */
  agent_id?: string | null;
  /**
   * Same key in the same session means same call: a repeated request never runs twice. Without a session_id the key
   * is unique in the whole project, for all tokens of the agent. Agents of other names have keys of their own.
   */
  idempotency_key?: string | null;
}
/**
 * Record of one call (D). Secrets in parameters and result are masked.
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
   * Person or rule that let it run: `risk:LOW`, `person:alice`, `mode:full`, `grant:…`, `rule:…`.
   */
  approved_by: string | null;
  /**
   * Outcome of its question: who answered, where and when, or that nobody did in time; null if nobody was asked or
   * the question is open.
   */
  decision: Decision | null;
  /**
   * Set if a person changed the call before allowing it.
   */
  edit: Edit | null;
  status: ExecutionStatus;
  error: string | null;
  error_type: ErrorType | null;
  /**
   * Time of the work alone, without waiting.
   */
  execution_time_ms: number | null;
  /**
   * ISO 8601, UTC, milliseconds
   */
  created_at: string;
  approved_at: string | null;
  /**
   * Time the client began; null before that, also while the call is in the client's queue.
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
 * Output of a running command, with secrets masked.
 */
export interface ExecutionOutput {
  tool_id: string;
  stream: "stdout" | "stderr";
  text: string;
}
export interface ExecutionPage {
  executions: Execution[];
  /**
   * Calls that fit the filter, among the newest 10,000.
   */
  total_count: number;
  /**
   * False if there are more than these 10,000 to look through.
   */
  total_is_exact: boolean;
  /**
   * Pass as `cursor` for the next page; null on the last page.
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
   * Digest of the approved call; the client computes it again and refuses a difference.
   */
  digest: string;
  risk_level: RiskLevel;
  approval_id: string | null;
  /**
   * `risk:LOW`, `person:alice`, `mode:full`, `grant:…`, `rule:…`.
   */
  approved_by: string;
  /**
   * Files the approval is bound to, with the digests that were shown.
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
   * Parent of the client's spans if the server traces; decides nothing.
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
   * Secrets are masked.
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
 * Failure reported by a client.
 */
export interface FailedReport {
  status: "failed";
  error: string;
  error_type?: ErrorType | null;
  /**
   * Partial result, such as the output of a command that timed out.
   */
  result?: {
    [k: string]: unknown;
  } | null;
  duration_ms?: number | null;
  timestamp?: string | null;
}
/**
 * End of a stream. `status` is the server's refusal, or 0 if it was unreachable or the connection broke.
 */
export interface FeedClosed {
  feed: number;
  status: number;
}
/**
 * Asks the executing client to inspect the files that the call would run.
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
 * Asks the client that executed a call to preview or carry out its undo.
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
   * Plan to carry out; null for a preview.
   */
  plan: string | null;
  partial: boolean;
  /**
   * ISO 8601, UTC, milliseconds
   */
  deadline: string;
  /**
   * Paths denied by the server's rules, by tool; the machine adds its owner's.
   */
  keep_off: {
    [k: string]: string[];
  };
}
/**
 * Asks a client to preview or carry out the undo of all its calls of a conversation.
 */
export interface SessionUndoRequested {
  /**
   * ISO 8601, UTC, milliseconds
   */
  timestamp: string;
  kind: "session.undo_request";
  request_id: string;
  /**
   * The oldest of the calls.
   */
  tool_id: string;
  /**
   * Newest first.
   */
  tool_ids: string[];
  client_id: string;
  session_id: string;
  /**
   * Plan to carry out; null for a preview.
   */
  plan: string | null;
  partial: boolean;
  /**
   * ISO 8601, UTC, milliseconds
   */
  deadline: string;
  /**
   * Paths denied by the server's rules, by tool; the machine adds its owner's.
   */
  keep_off: {
    [k: string]: string[];
  };
}
/**
 * The file changes of a call were undone.
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
 * A client connected or left; lists all that are connected.
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
 * A connected client.
 */
export interface Machine {
  client_id: string;
  workspace: string | null;
  /**
   * Isolation of its commands: `bwrap`, `landlock`, …; `none`; null if it did not say.
   */
  isolation: string | null;
  /**
   * True if the next call would run there.
   */
  next: boolean;
  /**
   * Editor it runs in; null if none, or if it did not say.
   */
  editor: "vscode" | null;
}
/**
 * Events after the last one the reader got were removed by age: read the record again.
 *
 * Sent in their place, under the reader's last number; it is not part of the feed itself.
 */
export interface FeedGap {
  /**
   * ISO 8601, UTC, milliseconds
   */
  timestamp: string;
  kind: "feed.gap";
  /**
   * The number after which nothing is missing.
   */
  oldest: number;
}
/**
 * A grant was given, used or revoked.
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
  /**
   * The session in which it was given. With the scope `project` it holds in all of them.
   */
  session_id: string;
  /**
   * The agent it was given to, and holds for; null for the chat's own.
   */
  agent_id: string | null;
  scope: ApprovalScope;
  /**
   * None covers everything in the session.
   */
  rule: GrantRule | null;
  text: string;
  status: GrantStatus;
  /**
   * Question that was answered with it.
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
   * Reason it ran without a question: `risk:LOW`, `mode:full`, `grant:…`, `rule:…`; null if it asks.
   */
  approved_by: string | null;
}
/**
 * A call waits in the machine's queue, or leaves it and begins.
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
 * Model usage of a run so far.
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
   * Number of model responses.
   */
  requests: number;
  input_tokens: number;
  output_tokens: number;
  /**
   * US dollars at the providers' list prices, as a decimal number; null if the price is not known.
   */
  cost_usd: string | null;
}
/**
 * A person renamed or deleted a conversation.
 */
export interface SessionChanged {
  /**
   * ISO 8601, UTC, milliseconds
   */
  timestamp: string;
  kind: "chat.session";
  session_id: string;
  /**
   * Empty if it was deleted.
   */
  title: string;
  deleted: boolean;
}
/**
 * An event of a stream.
 */
export interface FeedFrame {
  feed: number;
  id: string | null;
  event: string;
  data: string;
}
/**
 * Number of a stream.
 */
export interface FeedRef {
  feed: number;
}
/**
 * A file as it was before a call.
 */
export interface FileBefore {
  tool_id: string;
  path: string;
}
export interface FileOffers {
  /**
   * The most fitting first.
   */
  files: OfferedFile[];
  /**
   * False if there are more than were looked through, or than are listed.
   */
  complete: boolean;
}
/**
 * A file or directory that a message could name.
 */
export interface OfferedFile {
  path: string;
  type: "file" | "directory";
}
/**
 * A conversation that a search found.
 */
export interface FoundSession {
  session: Session;
  /**
   * Number of its messages that hold the text; 0 if only the title does.
   */
  messages: number;
  /**
   * Part of the newest of them.
   */
  excerpt: string | null;
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
export interface GrantList {
  grants: Grant[];
  total_count: number;
}
/**
 * A rule applied to past calls.
 */
export interface GrantPreview {
  rule: GrantRule;
  text: string;
  widest: string;
  /**
   * Reason the rule may not be saved; null if it may.
   */
  problem: string | null;
  looked_at: number;
  covered: number;
  /**
   * Covered calls that a person had refused.
   */
  refused: PastCall[];
  examples: PastCall[];
  /**
   * For example: would have covered 37 of your last 200 calls, among them 2 you refused.
   */
  sentence: string;
}
/**
 * A recorded call, as listed in a preview.
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
 * Request to preview a rule on past calls.
 */
export interface GrantPreviewBody {
  rule: GrantRule;
}
/**
 * First request: the editor, and its protocol version.
 */
export interface Initialize {
  protocol: number;
  editor?: string;
}
/**
 * Answer of the engine.
 */
export interface Initialized {
  protocol: number;
  version: string;
  /**
   * Directory of its state; `byleave undo` in a terminal uses the same.
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
   * The first 1000 entries.
   */
  files: DirectoryEntry[];
  /**
   * Number of entries.
   */
  total_count: number;
  /**
   * True if there are more entries than `files` holds.
   */
  truncated: boolean;
  /**
   * There may be more than `total_count`: counting them takes too long, or they are too deep.
   */
  at_least: boolean;
}
export interface MachineList {
  machines: Machine[];
  total_count: number;
}
/**
 * The requesting user, and the server.
 */
export interface Me {
  user_id: string;
  scopes: Scope[];
  /**
   * Version of the server.
   */
  version: string;
  /**
   * True if an agent works on messages here.
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
   * Omit to open a new session.
   */
  session_id?: string | null;
  /**
   * Approval mode of this run; defaults to the agent's mode, never wider than its widest.
   */
  mode?: AgentMode2 | null;
  /**
   * Agent of the project that works on the message; defaults to `chat`.
   */
  agent?: string | null;
  /**
   * One of the agent's `models`; defaults to that of its run before in the conversation, else to the first.
   */
  model?: string | null;
  /**
   * Idempotency key of the sender. A repeated message gets the first answer and is neither stored nor worked on
   * twice; another message with the same key is a conflict.
   */
  client_key?: string | null;
}
export interface MessageList {
  messages: Message[];
  /**
   * Number of messages returned.
   */
  total_count: number;
  /**
   * True if there are older messages; pass the first message's id as `before` to get them.
   */
  more: boolean;
}
/**
 * Empty parameters, or an empty result.
 */
export interface Nothing {}
/**
 * Whether one way took a notice.
 */
export interface NoticeOutcome {
  /**
   * The device's name, or `webhook`.
   */
  to: string;
  delivered: boolean;
  /**
   * Why it did not; null if it did.
   */
  detail: string | null;
}
/**
 * What became of a test.
 */
export interface NoticeTest {
  outcomes: NoticeOutcome[];
}
/**
 * How a user is notified of questions that wait.
 */
export interface Notifications {
  /**
   * A question waits so long for an answer first.
   */
  after_seconds: number;
  /**
   * True if the operator set BYLEAVE_NOTIFY_URL.
   */
  webhook: boolean;
  /**
   * The key that a browser subscribes with (`applicationServerKey`).
   */
  push_key: string;
  devices: PushDevice[];
}
/**
 * A browser that is notified. Its address at the push service is told to nobody.
 */
export interface PushDevice {
  id: string;
  /**
   * Browser and system, such as `Chrome on Android`.
   */
  name: string;
  /**
   * Host of its push service.
   */
  service: string;
  /**
   * ISO 8601, UTC, milliseconds
   */
  created_at: string;
  /**
   * Last message that the push service took.
   */
  sent_at: string | null;
}
/**
 * Open an event stream. Its frames follow as notifications, under a number the editor chose.
 */
export interface OpenFeed {
  feed: number;
  path: string;
  last_event_id?: string | null;
}
/**
 * Output of a running command.
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
 * A one-time link that signs another device in, as an address it can open and as a QR code of that.
 */
export interface PhoneLink {
  url: string;
  /**
   * Rows of the QR code from the top, `1` for dark and `0` for light, without the light border.
   */
  qr: string[];
  expires_in_seconds: number;
}
/**
 * A client's declaration of its machine's rules.
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
   * Tools that cannot work on this machine, with the reason: their calls are refused before anybody is asked.
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
 * Text of one layer.
 */
export interface PolicyText {
  layer: Layer;
  /**
   * Name of the file, for people.
   */
  source: string;
  text: string;
  /**
   * A project's file may loosen rules only after the owner trusts it; it may always tighten them.
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
   * A sentence about what happened.
   */
  detail: string;
  /**
   * The next step for the reader.
   */
  hint?: string | null;
  /**
   * Current state, for a conflict.
   */
  state?: string | null;
  /**
   * Errors by field, for an invalid body.
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
   * Create only if the user has no project; otherwise return the oldest. Concurrent requests get the same one.
   */
  if_none?: boolean;
}
export interface ProjectList {
  projects: Project[];
  total_count: number;
}
/**
 * Challenge to a server: did you sign this token? The token's signature stays with the sender.
 */
export interface ProofBody {
  /**
   * The token up to its second dot.
   */
  claims: string;
  /**
   * Random, new for each request.
   */
  challenge: string;
}
/**
 * A browser's push subscription, as the browser gave it.
 */
export interface PushDeviceBody {
  endpoint: string;
  p256dh: string;
  auth: string;
}
/**
 * Calls in a client's queue: signalled, but not begun.
 */
export interface QueueReport {
  /**
   * @maxItems 1000
   */
  tool_ids: string[];
}
/**
 * A command of a conversation that could have changed something.
 */
export interface RanCommand {
  tool_id: string;
  line: string;
  status: ExecutionStatus;
  /**
   * None if it did not end by itself.
   */
  exit_code: number | null;
  /**
   * ISO 8601, UTC, milliseconds
   */
  created_at: string;
}
/**
 * Result of the tool: always with `success`, and with `error` on failure.
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
   * Passed on to the agent.
   */
  reason?: string | null;
}
/**
 * A report with the call it is about.
 */
export interface ReportOf {
  tool_id: string;
  report: CompletedReport | FailedReport;
}
/**
 * A path of the workspace, as written by a person or agent.
 */
export interface ResolvePath {
  path: string;
}
/**
 * Real path, if a tool may read it.
 */
export interface ResolvedPath {
  valid: boolean;
  error: string | null;
  real_path: string | null;
}
/**
 * Server's answer to a report.
 */
export interface ResultAck {
  success: boolean;
  tool_id: string;
  status: ExecutionStatus;
  message: string;
}
/**
 * Reports that a client had ready at the same time.
 */
export interface ResultBatch {
  /**
   * @maxItems 64
   */
  results: ReportOf[];
}
/**
 * A file of rules that applies to a project's calls.
 */
export interface RuleLayer {
  layer: Layer;
  source: string;
  text: string;
  trusted: boolean;
  /**
   * Machine that declared it; null for the server's own.
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
  /**
   * Model that was chosen for it; null for the agent's usual one.
   */
  model: string | null;
  /**
   * Why it failed; null if it did not, or a person stopped it.
   */
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
   * Number of runs returned.
   */
  total_count: number;
}
/**
 * Run one tool now, as `byleave tool` does: without a question, but with the gate, the limits and the sandbox.
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
   * Number of matches returned.
   */
  total_count: number;
  /**
   * True if there are more: the search stops at `max_results`.
   */
  truncated: boolean;
  /**
   * Notes, for example which files were left out because of their names.
   */
  warnings: string[];
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
 * Answer of the server. Status 421: the other side did not prove that it is the server, so it got no token.
 */
export interface ServerAnswer {
  status: number;
  body: {
    [k: string]: unknown;
  } | null;
  /**
   * Server time in milliseconds since 1970.
   */
  server_time: number | null;
}
/**
 * Proof that only the signer of that token can give.
 */
export interface ServerProof {
  /**
   * Address this server was reached at, as it sees it.
   */
  host: string;
  port: number;
  /**
   * HMAC-SHA256, in hex, over `byleave server proof 1`, the challenge, the host and the port, each on its own line;
   * the key is the token's signature.
   */
  proof: string;
}
/**
 * A request to the server, with the token.
 */
export interface ServerRequest {
  method: "GET" | "POST";
  path: string;
  body?: {
    [k: string]: unknown;
  } | null;
}
/**
 * What the calls of a conversation changed.
 */
export interface SessionChanges {
  session_id: string;
  /**
   * By path. A file that a call made and a later one deleted is left out.
   */
  files: ChangedPath[];
  /**
   * Larger than `files` if there are too many to list, or a command changed more than its record names.
   */
  total_files: number;
  /**
   * Oldest first, without those that only read.
   */
  commands: RanCommand[];
  /**
   * False if there were more calls than are looked at: these are the newest.
   */
  complete: boolean;
}
export interface SessionDeleted {
  success: boolean;
  message: string;
}
/**
 * A conversation with its messages and calls, oldest first.
 */
export interface SessionExport {
  session: Session;
  project_name: string;
  /**
   * ISO 8601, UTC, milliseconds
   */
  exported_at: string;
  messages: Message[];
  /**
   * Results that are too long for a list are left out and say `shortened`; `GET /my/tools/{tool_id}` has them.
   */
  calls: Execution[];
  /**
   * False if older messages or calls were left out.
   */
  complete: boolean;
}
export interface SessionList {
  sessions: Session[];
  total_count: number;
}
/**
 * Newest conversations first.
 */
export interface SessionSearch {
  found: FoundSession[];
  /**
   * False if there is more than was looked through, or than is listed.
   */
  complete: boolean;
}
/**
 * A conversation as a Markdown document.
 */
export interface SessionText {
  file_name: string;
  text: string;
}
/**
 * Request to rename a conversation.
 */
export interface SessionTitle {
  title: string;
}
/**
 * Outcome of undoing a conversation, or that it is still in progress.
 */
export interface SessionUndoAnswer {
  session_id: string;
  /**
   * `undoing`: the machine is not done yet; each call's `tool.undone` on the feed reports it.
   */
  state: "done" | "undoing";
  undone: CallUndo[];
  files: number;
  message: string;
}
/**
 * Preview of undoing all calls of a conversation, newest first; each file from now to what it was before them.
 *
 * `tool_id` is the oldest of `calls`.
 */
export interface SessionUndoPlan {
  tool_id: string;
  /**
   * Digest of the plan; required to carry it out.
   */
  plan: string;
  /**
   * @maxItems 200
   */
  files: ShownChange[];
  /**
   * Larger than `files` if there are too many to show.
   */
  total_files: number;
  /**
   * Files changed since the call; nothing can be undone while there are any.
   *
   * @maxItems 200
   */
  conflicts?: string[];
  /**
   * Files that were not kept and cannot be restored, with the reason; undoing the rest must be requested.
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
   * Calls that ran at the same time; some changes may be theirs.
   *
   * @maxItems 50
   */
  together?: string[];
  /**
   * Calls that would be undone, newest first: not those undone already, nor those that changed nothing.
   *
   * @maxItems 500
   */
  calls: string[];
  /**
   * Calls of which the machine keeps nothing: they changed no file, or it is too long ago.
   *
   * @maxItems 500
   */
  unknown?: string[];
}
/**
 * A path before and after.
 */
export interface ShownChange {
  path: string;
  kind: ChangeKind;
  /**
   * Current text; null if there is none to show.
   */
  before?: string | null;
  /**
   * Resulting text; null if there is none to show.
   */
  after?: string | null;
  /**
   * What to know beside the texts: a further change (a mode, a link), or what a write does not show and why.
   */
  note?: string | null;
  /**
   * Reason an undo shows no text (too large, binary, may hold secrets), or no difference in it.
   */
  unshown?: string | null;
}
/**
 * A client's answer to `session.undo_request`.
 */
export interface SessionUndoReport {
  request_id: string;
  /**
   * The oldest call that was named.
   */
  tool_id: string;
  plan?: SessionUndoPlan | null;
  /**
   * Calls that were undone, also if it then stopped.
   *
   * @maxItems 500
   */
  undone?: CallUndo[];
  done?: boolean;
  /**
   * It has begun and takes long: another report follows.
   */
  begun?: boolean;
  /**
   * Reason it was not done, or stopped.
   */
  problem?: string | null;
}
/**
 * What an identity provider led back with, and the ticket of the attempt.
 */
export interface SignInFinishBody {
  ticket: string;
  code: string;
  state: string;
  /**
   * The provider's own name, if it says one (RFC 9207).
   */
  iss: string | null;
}
/**
 * A browser that an identity provider signed in; its cookie came with this.
 */
export interface SignInFinished {
  /**
   * The page's key, without which the cookie opens nothing.
   */
  key: string;
  user_id: string;
}
/**
 * A one-time link that signs a browser in.
 */
export interface SignInLink {
  /**
   * Relative to the server's address: `/signin?code=…`.
   */
  path: string;
  expires_in_seconds: number;
}
/**
 * Ways to sign in to the page, beside one-time links.
 */
export interface SignInWays {
  /**
   * Name of the identity provider; null if there is none.
   */
  provider: string | null;
}
/**
 * Its content. `text` is null if there was no file, or if `shown` is false and it cannot be shown.
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
 * Catalogue entry of a tool, as the API shows it.
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
 * Response of `execute_tool` and of `POST /my/tools/execute`.
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
   * An alternative to a refused call, for the agent.
   */
  hint: string | null;
  /**
   * Set if the user changed the call before allowing it: what was changed, for the agent.
   */
  edited: string | null;
}
/**
 * Fields common to all results.
 */
export interface ToolResult {
  success: boolean;
  error: string | null;
}
/**
 * Outcome of an undo, or that it is still in progress.
 */
export interface UndoAnswer {
  tool_id: string;
  /**
   * `undoing`: the machine is not done yet; `tool.undone` on the feed reports the end.
   */
  state: "done" | "undoing";
  undo_id: string | null;
  files: number;
  message: string;
}
/**
 * Request to carry an undo out.
 */
export interface UndoBody {
  /**
   * The plan that was shown.
   */
  plan: string;
  /**
   * Undo the rest even if some files are lost.
   */
  partial?: boolean;
}
/**
 * Changes by agents in the workspace, newest first.
 */
export interface UndoList {
  changes: ChangedFile[];
  undone: UndoneCall[];
}
/**
 * An undone call that can be redone.
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
 * Preview of an undo, from the machine that ran the call.
 */
export interface UndoPlan {
  tool_id: string;
  /**
   * Digest of the plan; required to carry it out.
   */
  plan: string;
  /**
   * @maxItems 200
   */
  files: ShownChange[];
  /**
   * Larger than `files` if there are too many to show.
   */
  total_files: number;
  /**
   * Files changed since the call; nothing can be undone while there are any.
   *
   * @maxItems 200
   */
  conflicts?: string[];
  /**
   * Files that were not kept and cannot be restored, with the reason; undoing the rest must be requested.
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
   * Calls that ran at the same time; some changes may be theirs.
   *
   * @maxItems 50
   */
  together?: string[];
}
/**
 * A client's answer to `tool.undo_request`.
 */
export interface UndoReport {
  request_id: string;
  /**
   * The plan, or the result.
   */
  plan?: UndoPlan | null;
  /**
   * Id to redo it by; set if it was carried out and changed something.
   */
  undo_id?: string | null;
  done?: boolean;
  /**
   * The undo has begun and takes long: another report follows.
   */
  begun?: boolean;
  /**
   * Reason it was not done.
   */
  problem?: string | null;
}
/**
 * Outcome of an undo.
 */
export interface Undone {
  message: string;
  /**
   * Id to redo it by; null if nothing changed.
   */
  undo_id: string | null;
}
/**
 * A call was undone here by a request from the page or the chat.
 */
export interface UndoneElsewhere {
  tool_id: string;
  undo_id: string;
  paths: string[];
}
/**
 * Server and token of all further requests and connections.
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
   * True if the call needs the network; an approval then grants it.
   */
  network: boolean;
  /**
   * For REFUSE: `invalid` for a malformed call, `refused` for a well-formed one that may not run.
   */
  error_type: ErrorType | null;
  /**
   * Parsed arguments, for `byleave check`.
   */
  understood: {
    [k: string]: unknown;
  } | null;
  /**
   * Rule that waives the question of this level; never set if something else asks.
   */
  waived_by: string | null;
  /**
   * Workspace files whose content would run. An approval shows them and is bound to them.
   */
  runs: string[];
}
/**
 * The complete call of a question that shows only a part.
 */
export interface WholeCall {
  approval_id: string;
  /**
   * The complete call and the files it would run, secrets masked unless revealed, safe to print.
   */
  text: string;
}
/**
 * The client that now executes.
 */
export interface WorkspaceConnected {
  client_id: string;
  /**
   * Its real path.
   */
  workspace: string;
  /**
   * The owner's rules in effect, in a sentence.
   */
  rules: string | null;
}
/**
 * Settings of the editor; missing ones default as in the terminal.
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
 * Effect of the write that waits for a decision (`GET /my/approvals/{approval_id}/change`).
 */
export interface WriteChange {
  approval_id: string;
  /**
   * The approval's digest: the diff belongs to exactly this question.
   */
  digest: string;
  change: ShownChange;
  /**
   * Content read by the machine; other content at run time is drift, and refused. Null if no machine has looked.
   */
  before_sha256: string | null;
  before_size: number | null;
  seen_at: string | null;
  /**
   * If a person changed the content: `after`, as it would have been by what the agent asked.
   */
  asked: string | null;
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
   * Notes for a person, for example that the write cannot be undone.
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
