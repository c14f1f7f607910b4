// The conversation as a list in order of time, each entry once. Pure: every function gives a new list, or the same one
// when nothing changed, so that what is shown again is only what is new.

import type { ApprovalRequested, Execution, ExecutionStatus, Message, ToolFinished, ToolStarted } from "@protocol";
import type { ChatEntry, Entry, OutputPiece, ToolCall } from "./model";

/** Of a running command this much output is kept; the whole is in the result. */
export const MOST_OUTPUT = 256 * 1024;
const PIECE = 16 * 1024;

const PROGRESS: Record<ExecutionStatus, number> = {
  pending: 0,
  awaiting_approval: 1,
  approved: 2,
  executing: 3,
  completed: 4,
  rejected: 4,
  timeout: 4,
  failed: 4,
};

export function ended(status: ExecutionStatus): boolean {
  return PROGRESS[status] === 4;
}

/** What streams is always last: calls that are made meanwhile stand above it, as the record will have them. */
function order(entry: Entry): number {
  return entry.kind === "message" && entry.role === "agent" && entry.pending ? Number.POSITIVE_INFINITY : entry.at;
}

/** At the same moment: the question, what was done about it, the answer. */
function rank(entry: Entry): number {
  if (entry.kind === "message") return entry.role === "user" ? 0 : 2;
  return entry.kind === "tool" ? 1 : 3;
}

function isAfter(one: Entry, other: Entry): boolean {
  const [first, second] = [order(one), order(other)];
  return first === second ? rank(one) > rank(other) : first > second;
}

export function indexOf(entries: readonly Entry[], kind: Entry["kind"], id: string): number {
  // From the end: what changes is almost always new.
  for (let at = entries.length - 1; at >= 0; at -= 1) {
    const entry = entries[at];
    if (entry && entry.id === id && entry.kind === kind) return at;
  }
  return -1;
}

export function insert(entries: Entry[], entry: Entry): Entry[] {
  let at = entries.length;
  for (let before = entries[at - 1]; before && isAfter(before, entry); before = entries[at - 1]) at -= 1;
  return at === entries.length ? [...entries, entry] : [...entries.slice(0, at), entry, ...entries.slice(at)];
}

export function without(entries: Entry[], kind: Entry["kind"], id: string): Entry[] {
  const at = indexOf(entries, kind, id);
  return at < 0 ? entries : [...entries.slice(0, at), ...entries.slice(at + 1)];
}

export function changeTool(entries: Entry[], id: string, change: (call: ToolCall) => ToolCall): Entry[] {
  const at = indexOf(entries, "tool", id);
  const found = entries[at];
  if (found?.kind !== "tool") return entries;
  const changed = change(found);
  return changed === found ? entries : entries.with(at, changed);
}

/** A call never goes back: what is known of it only grows. */
export function advance(entries: Entry[], id: string, status: ExecutionStatus): Entry[] {
  return changeTool(entries, id, (call) => (PROGRESS[call.status] < PROGRESS[status] ? { ...call, status } : call));
}

/** A call that a person changed is what they made of it. */
export function edited(entries: Entry[], { tool_id, tool_params, risk_level, edit }: ApprovalRequested): Entry[] {
  if (!edit) return entries;
  return changeTool(entries, tool_id, (call) => ({ ...call, params: tool_params, riskLevel: risk_level, edit }));
}

/** Entries of the record beside those that are here already; each once, the further one of two. */
export function merge(entries: Entry[], others: readonly Entry[]): Entry[] {
  const known = new Map(entries.map((entry) => [`${entry.kind} ${entry.id}`, entry]));
  let changed = false;
  for (const entry of others) {
    const key = `${entry.kind} ${entry.id}`;
    const here = known.get(key);
    if (here && !replaces(entry, here)) continue;
    known.set(key, entry);
    changed = true;
  }
  if (!changed) return entries;
  return [...known.values()].sort((one, other) => (isAfter(one, other) ? 1 : isAfter(other, one) ? -1 : 0));
}

function replaces(entry: Entry, here: Entry): boolean {
  if (entry.kind === "tool" && here.kind === "tool") return PROGRESS[entry.status] > PROGRESS[here.status];
  return here.kind === "message" && here.pending;
}

/** What an agent said, whole. */
export function isAnswer(entry: Entry): entry is ChatEntry {
  return entry.kind === "message" && entry.role === "agent" && !entry.pending;
}

/** What an agent says at this moment. */
export function isStreamed(entry: Entry): entry is ChatEntry {
  return entry.kind === "message" && entry.role === "agent" && entry.pending;
}

export function fromMessage(message: Message): ChatEntry {
  return {
    kind: "message",
    id: message.message_id,
    role: message.role,
    content: message.content,
    runId: message.run_id,
    at: Date.parse(message.created_at),
    pending: false,
  };
}

export function fromExecution(execution: Execution): ToolCall {
  const { result } = execution;
  return {
    kind: "tool",
    id: execution.tool_id,
    toolName: execution.tool_name,
    params: execution.tool_params,
    riskLevel: execution.risk_level,
    status: execution.status,
    sessionId: execution.session_id,
    runId: execution.run_id,
    output: [],
    result,
    resultShortened: result !== null && Boolean(result.shortened),
    error: execution.error,
    errorType: execution.error_type,
    milliseconds: execution.execution_time_ms,
    approvedBy: execution.approved_by,
    ...deniedIn(execution),
    at: Date.parse(execution.created_at),
    ...begunIn(execution),
    undone: null,
    edit: execution.edit ?? null,
  };
}

function begunIn({ status, started_at }: Execution): Pick<ToolCall, "began"> {
  if (started_at !== null) return { began: Date.parse(started_at) };
  return status === "executing" ? { began: null } : {};
}

/** Who said no, as the record has it. */
function deniedIn({ decision }: Execution): Pick<ToolCall, "deniedBy" | "deniedFrom" | "deniedFor"> {
  const denied = decision?.status === "rejected" ? decision : null;
  return {
    deniedBy: denied?.decided_by ?? null,
    deniedFrom: denied?.decided_from ?? null,
    deniedFor: denied?.reason ?? null,
  };
}

export function fromStarted(event: ToolStarted): ToolCall {
  return {
    kind: "tool",
    id: event.tool_id,
    toolName: event.tool_name,
    params: event.tool_params,
    riskLevel: event.risk_level,
    // Nobody is asked: it is on its way to the machine.
    status: event.approved_by === null ? "pending" : "executing",
    sessionId: event.session_id,
    runId: event.run_id,
    output: [],
    result: null,
    resultShortened: false,
    error: null,
    errorType: null,
    milliseconds: null,
    approvedBy: event.approved_by,
    deniedBy: null,
    at: Date.parse(event.timestamp),
    undone: null,
  };
}

export function finished(call: ToolCall, event: ToolFinished): ToolCall {
  return {
    ...call,
    status: event.status,
    output: [],
    result: event.result,
    resultShortened: event.result_shortened,
    error: event.error,
    errorType: event.error_type,
    milliseconds: event.execution_time_ms,
    approvedBy: event.approved_by,
  };
}

/** Output with one piece more: small ones are joined, and of very much the newest is kept. */
export function withOutput(pieces: readonly OutputPiece[], piece: OutputPiece): OutputPiece[] {
  const last = pieces.at(-1);
  const joined =
    last && last.stream === piece.stream && last.text.length + piece.text.length <= PIECE
      ? [...pieces.slice(0, -1), { stream: piece.stream, text: last.text + piece.text }]
      : [...pieces, piece];
  let size = joined.reduce((sum, each) => sum + each.text.length, 0);
  let from = 0;
  while (size > MOST_OUTPUT && from < joined.length - 1) {
    size -= joined[from]?.text.length ?? 0;
    from += 1;
  }
  return from === 0 ? joined : joined.slice(from);
}
