// Compiled, never run: proves that the generated types are usable. An event added to the protocol and missing here,
// or a tag that became optional, fails `make check`.

import type { ExecuteRequest, ExecutionStatus, FeedEvent, ReadFileParams, ResultReport } from "./types";

function never(value: never): never {
  throw new Error(`unexpected: ${JSON.stringify(value)}`);
}

export function headline(event: FeedEvent): string {
  switch (event.kind) {
    case "tool.approval_request":
      return `${event.risk_level} ${event.description} (${event.timeout_seconds} s)`;
    case "tool.approval_decided":
      return `${event.approval_id} ${event.status} ${event.reason ?? ""}`;
    case "tool.execution_signal":
      return `${event.tool_name} for ${event.client_id} ${event.digest}`;
    case "tool.cancel_signal":
      return `cancel ${event.tool_id}`;
    case "tool.result_ack":
      return `${event.tool_id} ${event.status}`;
    case "tool.started":
      return `${event.tool_name} started`;
    case "tool.queued":
      return `${event.tool_id} ${event.waits ? "waits" : "begins"}`;
    case "tool.finished":
      return `${event.tool_name} ${event.status} ${event.error ?? ""}`;
    case "tool.output":
      return `${event.stream} ${event.sequence} ${event.text}`;
    case "chat.message":
      return `${event.role}: ${event.content}`;
    case "tool.inspection_request":
      return `${event.client_id} looks at ${event.tool_id}`;
    case "tool.undo_request":
      return `${event.client_id} undoes ${event.tool_id}: ${event.plan ?? "plan"}`;
    case "session.undo_request":
      return `${event.client_id} undoes ${event.tool_ids.length} calls: ${event.plan ?? "plan"}`;
    case "tool.undone":
      return `${event.tool_id} undone by ${event.undone_by}, ${event.files} files`;
    case "project.machines":
      return event.machines.map((machine) => `${machine.workspace} (${machine.isolation})`).join(", ");
    case "feed.gap":
      return `nothing is missing after ${event.oldest}`;
    case "grant.changed":
      return `${event.grant.text} ${event.grant.status}`;
    case "chat.text":
      return event.text;
    case "chat.run":
      return `${event.run_id} ${event.state}`;
    case "chat.usage":
      return `${event.requests} requests, ${event.input_tokens} + ${event.output_tokens} tokens`;
    case "chat.session":
      return event.deleted ? `${event.session_id} deleted` : event.title;
    case "chat.error":
      return `${event.message} ${event.hint ?? ""}`;
    default:
      return never(event);
  }
}

export function reported(report: ResultReport): string {
  switch (report.status) {
    case "completed":
      return JSON.stringify(report.result);
    case "failed":
      return report.error;
    default:
      return never(report);
  }
}

export function ended(status: ExecutionStatus): boolean {
  switch (status) {
    case "pending":
    case "awaiting_approval":
    case "approved":
    case "executing":
      return false;
    case "completed":
    case "rejected":
    case "timeout":
    case "failed":
      return true;
    default:
      return never(status);
  }
}

// What a client sends may leave out what has a default; what it leaves out wrongly does not compile.
export const read: ReadFileParams = { path: "package.json" };
export const call: ExecuteRequest = { project_id: "p", tool_name: "read_file", tool_params: { ...read } };
// @ts-expect-error a call without a tool is no call
export const broken: ExecuteRequest = { project_id: "p", tool_params: {} };
