// What the live state knows of calls the history has loaded or not yet loaded. It counts and compares; the list on screen
// changes only when the person asks, except for how a call that was running ended.

import type { Execution } from "@protocol";
import type { State, ToolCall } from "../state/model";
import { isEnded } from "./words";

export interface Filters {
  tool: string;
  status: string;
  risk: string;
  /** Only the open conversation. */
  here: boolean;
}

/** The calls of the open conversation by their id. */
export function liveCalls(state: State): Map<string, ToolCall> {
  const calls = new Map<string, ToolCall>();
  for (const entry of state.entries) if (entry.kind === "tool") calls.set(entry.id, entry);
  return calls;
}

/** A row as it stands now: the live state knows how a call that was loaded while it ran went on. */
export function asOfNow(row: Execution, call: ToolCall | undefined): Execution {
  if (call === undefined || isEnded(row.status) || call.status === row.status) return row;
  return {
    ...row,
    status: call.status,
    error: call.error,
    error_type: call.errorType,
    execution_time_ms: call.milliseconds,
    approved_by: call.approvedBy ?? row.approved_by,
  };
}

interface Seen {
  id: string;
  toolName: string;
  status: string;
  risk: string;
  sessionId: string | null;
  at: number;
}

/** How many calls that fit the filters began since the newest one that is loaded. */
export function newCalls(state: State, loaded: Execution[], filters: Filters): number {
  const known = new Set(loaded.map((row) => row.tool_id));
  const newest = Math.max(0, ...loaded.map((row) => Date.parse(row.created_at)));
  const fresh = new Set<string>();
  for (const seen of everSeen(state)) {
    if (!known.has(seen.id) && seen.at >= newest && fits(seen, filters, state.sessionId)) fresh.add(seen.id);
  }
  return fresh.size;
}

function* everSeen(state: State): Generator<Seen> {
  for (const call of liveCalls(state).values()) {
    const { id, toolName, status, sessionId, at } = call;
    yield { id, toolName, status, risk: call.riskLevel, sessionId, at };
  }
  // Of other conversations the state knows what waits.
  for (const question of state.questions) {
    const { tool_name: toolName, risk_level: risk, session_id: sessionId } = question;
    const at = Date.parse(question.created_at);
    for (const id of question.tool_ids) yield { id, toolName, status: "awaiting_approval", risk, sessionId, at };
  }
}

function fits(seen: Seen, filters: Filters, sessionId: string | null): boolean {
  return (
    (filters.tool === "" || filters.tool === seen.toolName) &&
    (filters.status === "" || filters.status === seen.status) &&
    (filters.risk === "" || filters.risk === seen.risk) &&
    (!filters.here || seen.sessionId === sessionId)
  );
}
