// Machine: the machine of one project's user, as an agent calls it.
//
// Every call has a key, given or generated: a request that is repeated after a broken connection finds the same
// execution and never begins another. Whoever aborts a call calls it off, and its question is taken back. Nothing here
// approves anything: an agent's token cannot.

import { Connection, type ConnectionOptions, environment, sleep } from "./connection.js";
import { ByleaveError, CallerError, ConflictError, errorOf, NotFound } from "./errors.js";
import type {
  AgentMode,
  ExecuteCommandResult,
  Execution,
  ListDirectoryResult,
  ReadFileResult,
  SearchFilesResult,
  SearchWebResult,
  ToolCatalogue,
  ToolResponse,
  WriteFileResult,
} from "./protocol.js";

const WAIT_SECONDS = 60;
const SHORTEST_WAIT_SECONDS = 1;
const EARLY_MS = 500;
/** Time an aborted caller waits for the cancellation to arrive; after that it goes on in the background. */
const CALL_OFF_MS = 5_000;
/** No tool has such a parameter, so the gate refuses the call, and it is on the record. */
const UNREADABLE = { unreadable_arguments: "what cannot be written as JSON" };

export interface MachineOptions extends ConnectionOptions {
  /** The project. Default: BYLEAVE_PROJECT. */
  projectId?: string;
  sessionId?: string;
  /** How much its calls ask, never wider than the token allows. */
  mode?: AgentMode;
}

export interface CallOptions {
  /** The same key again is the same call. */
  key?: string | undefined;
  /** Aborting calls the call off. `AbortSignal.timeout(60_000)` is a time limit. */
  signal?: AbortSignal | undefined;
}

export class Machine {
  readonly projectId: string;
  private readonly connection: Connection;
  private readonly place: { session_id?: string; mode?: AgentMode };
  private longest = WAIT_SECONDS;

  constructor({ projectId, sessionId, mode, ...options }: MachineOptions = {}) {
    const project = projectId ?? environment("BYLEAVE_PROJECT");
    if (!project) throw new CallerError("A machine is that of a project.", "pass projectId, or set BYLEAVE_PROJECT");
    this.projectId = project;
    this.connection = new Connection(options);
    this.place = { ...(sessionId && { session_id: sessionId }), ...(mode && { mode }) };
  }

  /** The available tools, with JSON Schema of their parameters. */
  tools(): Promise<ToolCatalogue> {
    return this.connection.send("GET", `/my/projects/${encodeURIComponent(this.projectId)}/tools/available`);
  }

  /** Begin a call. Resolves at its end, or as soon as a person has to be asked. */
  start(toolName: string, toolParams: object, { key }: { key?: string | undefined } = {}): Promise<ToolResponse> {
    return this.connection.send("POST", "/my/tools/execute", {
      body: {
        project_id: this.projectId,
        tool_name: toolName.slice(0, 100),
        tool_params: isJson(toolParams) ? toolParams : UNREADABLE,
        idempotency_key: key ?? crypto.randomUUID(),
        ...this.place,
      },
    });
  }

  /** Wait for the end of a call, or at most `timeoutMs`; resolves to its current state. */
  async wait(toolId: string, options: { timeoutMs?: number; signal?: AbortSignal } = {}): Promise<ToolResponse> {
    const giveUp = Date.now() + (options.timeoutMs ?? Number.POSITIVE_INFINITY);
    for (;;) {
      const asked = Date.now();
      const seconds = Math.max(Math.min(this.longest, (giveUp - asked) / 1000), 0);
      let execution: Execution;
      try {
        execution = await this.connection.send("GET", `/my/tools/${encodeURIComponent(toolId)}?wait=${seconds}`, {
          signal: options.signal,
          extraMs: seconds * 1000,
        });
      } catch (error) {
        const tooLong = error instanceof CallerError && !(error instanceof NotFound) && seconds > SHORTEST_WAIT_SECONDS;
        if (!tooLong) throw error;
        this.longest = Math.max(seconds / 2, SHORTEST_WAIT_SECONDS); // this server allows less
        continue;
      }
      const response = responseOf(execution);
      if (hasEnded(response) || Date.now() >= giveUp) return response;
      // A closing server answers early: do not ask again at once.
      await sleep(Math.max(Math.min(asked + seconds * 1000 - Date.now(), EARLY_MS), 0), options.signal);
    }
  }

  /** Begin a call and wait for its end, however long a person takes. Rejects only if aborted or without a server. */
  async execute(toolName: string, toolParams: object, { key, signal }: CallOptions = {}): Promise<ToolResponse> {
    signal?.throwIfAborted();
    const starting = this.start(toolName, toolParams, { key });
    try {
      const begun = await unlessAborted(starting, signal);
      return hasEnded(begun) ? begun : await this.wait(begun.tool_id, signal ? { signal } : {});
    } catch (error) {
      if (!signal?.aborted) throw error;
      await Promise.race([this.callOff(starting), sleep(CALL_OFF_MS)]);
      throw signal.reason;
    }
  }

  /** Cancel a call; resolves to false if it had ended already. */
  async cancel(toolId: string): Promise<boolean> {
    try {
      await this.connection.send("POST", `/my/tools/${encodeURIComponent(toolId)}/cancel`);
      return true;
    } catch (error) {
      if (error instanceof ConflictError) return false;
      throw error;
    }
  }

  private async callOff(starting: Promise<ToolResponse>): Promise<void> {
    try {
      const begun = await starting;
      if (!hasEnded(begun)) await this.cancel(begun.tool_id);
    } catch (error) {
      if (!(error instanceof ByleaveError)) throw error;
    }
  }

  // The six tools. Each waits for its end, and throws unless it completed.

  readFile(path: string, options: CallOptions & { startLine?: number; endLine?: number } = {}) {
    const { startLine: start_line, endLine: end_line } = options;
    return this.done<ReadFileResult>("read_file", { path, start_line, end_line }, options);
  }

  writeFile(path: string, content: string, options: CallOptions & { mode?: "write" | "append" } = {}) {
    return this.done<WriteFileResult>("write_file", { path, content, mode: options.mode }, options);
  }

  /** A command that ran to its end is a success, whatever its exit code. `timeout` in seconds. */
  runCommand(command: string, args: string[] = [], options: CallOptions & { timeout?: number } = {}) {
    const { timeout } = options;
    return this.done<ExecuteCommandResult>("execute_command", { command, args, timeout }, options);
  }

  listDir(path = ".", options: CallOptions & { recursive?: boolean; pattern?: string } = {}) {
    const { recursive, pattern } = options;
    return this.done<ListDirectoryResult>("list_directory", { path, recursive, pattern }, options);
  }

  searchFiles(
    pattern: string,
    options: CallOptions & {
      path?: string;
      regex?: boolean;
      glob?: string;
      caseSensitive?: boolean;
      maxResults?: number;
    } = {},
  ) {
    const { path, regex, glob, caseSensitive: case_sensitive, maxResults: max_results } = options;
    const params = { pattern, path, regex, glob, case_sensitive, max_results };
    return this.done<SearchFilesResult>("search_files", params, options);
  }

  searchWeb(query: string, options: CallOptions & { maxResults?: number } = {}) {
    return this.done<SearchWebResult>("search_web", { query, max_results: options.maxResults }, options);
  }

  private async done<Result>(toolName: string, toolParams: object, options: CallOptions): Promise<Result> {
    const response = await this.execute(toolName, toolParams, options);
    if (response.status !== "completed") throw errorOf(response);
    return response.result as Result;
  }
}

/** True if there is nothing more to wait for. */
export function hasEnded(response: ToolResponse): boolean {
  return response.status !== "pending" && response.status !== "awaiting_approval";
}

function responseOf(execution: Execution): ToolResponse {
  const { tool_id, tool_name, result, error, approval_id, error_type } = execution;
  const status = execution.status === "approved" || execution.status === "executing" ? "pending" : execution.status;
  return { tool_id, tool_name, status, result, error, approval_id, error_type, hint: null, edited: editOf(execution) };
}

/** What the user changed in a call, for the agent. */
function editOf({ tool_name, tool_params, edit }: Execution): string | null {
  if (!edit) return null;
  const begins = "The user changed this call before deciding on it.";
  if (tool_name === "write_file") return `${begins} Their content differs from yours. Read the file to see it.`;
  return `${begins} Instead of: ${JSON.stringify(edit.asked)}. As changed: ${JSON.stringify(tool_params)}.`;
}

function isJson(value: object): boolean {
  try {
    return typeof JSON.stringify(value) === "string";
  } catch {
    return false; // a cycle, a BigInt
  }
}

function unlessAborted<T>(work: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (!signal) return work;
  return new Promise((resolve, reject) => {
    const over = () => reject(signal.reason);
    signal.addEventListener("abort", over, { once: true });
    work.then(resolve, reject).finally(() => signal.removeEventListener("abort", over));
  });
}
