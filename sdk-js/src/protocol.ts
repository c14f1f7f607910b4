/* Generated from byleave.schema.json by `make schema`. Do not edit. */

/**
 * Approval mode of an agent: how often it must ask.
 */
export type AgentMode = "sandbox" | "full";
/**
 * Kind of client a person answered from.
 */
export type AnsweredFrom = "page" | "program";
/**
 * Reach of an answer (G8).
 */
export type ApprovalScope = "once" | "class" | "session" | "project";
/**
 * State of an approval.
 */
export type ApprovalStatus = "pending" | "approved" | "rejected" | "timeout" | "cancelled";
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
 * Possible harm of a call. Ordered: `max()` of several is the strictest.
 */
export type RiskLevel = "LOW" | "MEDIUM" | "HIGH";
/**
 * State of an execution. Lower case on the wire; the record's tables hold the names.
 */
export type ExecutionStatus =
  "pending" | "awaiting_approval" | "approved" | "executing" | "completed" | "rejected" | "timeout" | "failed";
/**
 * State of a call as the agent sees it.
 */
export type ResponseStatus = "pending" | "awaiting_approval" | "completed" | "rejected" | "timeout" | "failed";

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
 * Record of one call (D). Secrets in parameters and result are masked.
 */
export interface Execution {
  tool_id: string;
  user_id: string;
  project_id: string;
  session_id: string;
  run_id: string | null;
  agent_id: string | null;
  mode: AgentMode;
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
