// What the chat knows after an event of the feed. Pure, as all of `reduce.ts`. What the feed tells of another session
// changes what waits and what is granted, never the conversation on the screen.

import type {
  ApprovalDecided,
  ApprovalRequested,
  ChatMessage,
  ChatText,
  FeedEvent,
  Grant,
  RunChanged,
  Session,
} from "@protocol";
import * as list from "./entries";
import type { AppState, ChatEntry, Entry, Question, Settled } from "./model";

/** Cards that say how a question ended; more than this nobody reads. */
const MOST_SETTLED = 20;

export function heard(state: AppState, event: FeedEvent): AppState {
  switch (event.kind) {
    case "tool.approval_request":
      return inSession(ask(state, event), event.session_id, (entries) =>
        list.advance(list.edited(entries, event), event.tool_id, "awaiting_approval"),
      );
    case "tool.approval_decided":
      return decided(state, event);
    case "grant.changed":
      return granted(state, event.grant, event.timestamp);
    case "project.machines":
      return { ...state, machines: event.machines, machinesKnown: true };
    case "chat.message":
      return inSession(state, event.session_id, (entries) => said(entries, event));
    case "chat.text":
      return streamed(state, event);
    case "chat.run":
      return ran(state, event);
    case "chat.usage":
      if (event.session_id !== state.sessionId) return state;
      return {
        ...state,
        usage: {
          requests: event.requests,
          inputTokens: event.input_tokens,
          outputTokens: event.output_tokens,
          cost: event.cost_usd ?? null,
        },
      };
    case "chat.session":
      return sessionChanged(state, { sessionId: event.session_id, title: event.title, deleted: event.deleted });
    case "chat.error":
      return inSession(state, event.session_id, (entries) =>
        list.insert(streamsNoMore(unsaid(entries, event.run_id), event.run_id, Date.parse(event.timestamp)), {
          kind: "remark",
          id: `error ${event.run_id ?? ""} ${event.timestamp}`,
          tone: "error",
          text: event.message,
          hint: event.hint,
          at: Date.parse(event.timestamp),
        }),
      );
    case "tool.started":
      return atWork(
        inSession(state, event.session_id, (entries) => list.merge(entries, [list.fromStarted(event)])),
        event.session_id,
        event.run_id,
      );
    case "tool.queued":
      return inSession(state, event.session_id, (entries) =>
        list.changeTool(entries, event.tool_id, (call) =>
          list.ended(call.status) ? call : { ...call, began: event.waits ? null : Date.parse(event.timestamp) },
        ),
      );
    case "tool.output":
      return inSession(state, event.session_id, (entries) =>
        list.changeTool(entries, event.tool_id, (call) =>
          list.ended(call.status)
            ? call
            : {
                ...call,
                status: "executing",
                output: list.withOutput(call.output, { stream: event.stream, text: event.text }),
              },
        ),
      );
    case "tool.finished":
      return inSession(state, event.session_id, (entries) =>
        list.changeTool(entries, event.tool_id, (call) => list.finished(call, event)),
      );
    case "tool.undone":
      return inSession(state, event.session_id, (entries) =>
        list.changeTool(entries, event.tool_id, (call) => ({
          ...call,
          undone: { by: event.undone_by, files: event.files },
        })),
      );
    default:
      return state; // for the machines that execute
  }
}

/** A conversation has another title, or is gone: then nothing of it stays on the screen. */
export function sessionChanged(
  state: AppState,
  { sessionId, title, deleted }: { sessionId: string; title: string; deleted: boolean },
): AppState {
  if (!deleted) {
    const renamed = (each: Session) => (each.session_id === sessionId ? { ...each, title } : each);
    return { ...state, sessions: state.sessions.map(renamed) };
  }
  const sessions = state.sessions.filter((each) => each.session_id !== sessionId);
  const next = { ...state, sessions, gone: sessionId };
  if (state.sessionId !== sessionId) return next;
  return { ...next, sessionId: null, entries: [], older: false, loading: false, runId: null, usage: null, model: null };
}

function inSession(state: AppState, sessionId: string | null, change: (entries: Entry[]) => Entry[]): AppState {
  if (sessionId === null || sessionId !== state.sessionId) return state;
  const entries = change(state.entries);
  return entries === state.entries ? state : { ...state, entries };
}

function ask(state: AppState, event: ApprovalRequested): AppState {
  const known = state.questions.find((each) => each.id === event.approval_id);
  if (known) {
    if (known.tool_ids.includes(event.tool_id)) return state;
    // An identical call joined the question.
    const joined = { ...known, tool_ids: [...known.tool_ids, event.tool_id] };
    return { ...state, questions: state.questions.map((each) => (each === known ? joined : each)) };
  }
  if (state.settled.some((each) => each.question.id === event.approval_id)) return state;
  const { approval_id, tool_id, timestamp, kind: _, calls: __, ...told } = event;
  const question: Question = {
    ...told,
    id: approval_id,
    user_id: state.me?.user_id ?? "",
    project_id: state.projectId ?? "",
    tool_ids: [tool_id],
    status: "pending",
    created_at: timestamp,
    decided_at: null,
    decided_by: null,
    decided_from: null,
    reason: null,
    scope: null,
    grant_id: null,
  };
  return { ...state, questions: [...state.questions, question] };
}

function decided(state: AppState, event: ApprovalDecided): AppState {
  const next = inSession(state, event.session_id, (entries) =>
    event.tool_ids.reduce((changed, id) => answered(changed, id, event), entries),
  );
  const question = next.questions.find((each) => each.id === event.approval_id);
  const here = next.settled.find((each) => each.question.id === event.approval_id);
  if (event.status === "pending" || !(question || here)) return next;
  return settle(next, {
    question: (question ?? here?.question) as Question,
    status: event.status,
    by: event.decided_by,
    from: event.decided_from,
    reason: event.reason,
    here: here?.here ?? false,
  });
}

/** A call that was allowed is on its way; one that was denied knows by whom. */
function answered(entries: Entry[], id: string, event: ApprovalDecided): Entry[] {
  const { status, decided_by, decided_from, reason } = event;
  if (status === "approved") return list.advance(entries, id, "executing");
  if (status !== "rejected") return entries;
  return list.changeTool(entries, id, (call) => ({
    ...call,
    deniedBy: decided_by,
    deniedFrom: decided_from,
    deniedFor: reason,
  }));
}

/** A question that was answered leaves those that wait; its card stays, and says how. */
export function settle(state: AppState, settled: Settled): AppState {
  const { id } = settled.question;
  const others = state.settled.filter((each) => each.question.id !== id);
  return {
    ...state,
    questions: state.questions.filter((each) => each.id !== id),
    settled: [...others, settled].slice(-MOST_SETTLED),
  };
}

function granted(state: AppState, grant: Grant, timestamp: string): AppState {
  const at = state.grants.findIndex((each) => each.id === grant.id);
  if (at >= 0) return { ...state, grants: state.grants.with(at, grant) };
  // Newest first, as the server lists them.
  const next = { ...state, grants: [grant, ...state.grants] };
  if (grant.status !== "active") return next;
  return inSession(next, grant.session_id, (entries) =>
    list.insert(entries, {
      kind: "remark",
      id: `grant ${grant.id}`,
      tone: "plain",
      text: `From now on without asking${grant.scope === "project" ? ", in this project" : ""}: ${grant.text}`,
      hint: "Manage in Grants.",
      at: Date.parse(timestamp),
    }),
  );
}

function said(entries: Entry[], event: ChatMessage): Entry[] {
  const message: ChatEntry = {
    kind: "message",
    id: event.message_id,
    role: event.role,
    content: event.content,
    runId: event.run_id,
    at: Date.parse(event.timestamp),
    pending: false,
  };
  // What streamed is now whole, and what we sent has arrived: the record's entry takes its place.
  const standIn = entries.findLast((entry) =>
    event.role === "agent"
      ? list.isStreamed(entry) && entry.runId === event.run_id
      : entry.kind === "message" && entry.role === "user" && entry.pending && entry.content === event.content,
  );
  const rest = standIn ? list.without(entries, "message", standIn.id) : entries;
  return list.indexOf(rest, "message", message.id) >= 0 ? rest : list.insert(rest, message);
}

function streamed(state: AppState, event: ChatText): AppState {
  // Its answer is here already: a piece that was late.
  if (state.entries.some((entry) => list.isAnswer(entry) && entry.runId === event.run_id)) return state;
  return inSession(atWork(state, event.session_id, event.run_id), event.session_id, (entries) => {
    const id = `text ${event.run_id}`;
    const at = list.indexOf(entries, "message", id);
    const found = entries[at];
    if (found?.kind === "message") return entries.with(at, { ...found, content: found.content + event.text });
    return list.insert(entries, {
      kind: "message",
      id,
      role: "agent",
      content: event.text,
      runId: event.run_id,
      at: Date.parse(event.timestamp),
      pending: true,
    });
  });
}

/** Whoever speaks or acts is at work, also where the page was opened in the middle of it. */
function atWork(state: AppState, sessionId: string, runId: string | null): AppState {
  return state.runId === null && runId !== null && sessionId === state.sessionId ? { ...state, runId } : state;
}

function ran(state: AppState, event: RunChanged): AppState {
  if (event.session_id !== state.sessionId) return state;
  if (event.state === "done") return runOver(state, event.run_id);
  if (event.state === "failed") {
    const over = runOver(state, event.run_id);
    // An error is told before the end; where none was, a person stopped it.
    return { ...over, entries: endedBadly(over.entries, event.run_id, null, Date.parse(event.timestamp)) };
  }
  // Several may wait in line: the one that works is the one to stop.
  if (state.runId !== null && event.state === "ready") return state;
  return state.runId === event.run_id ? state : { ...state, runId: event.run_id };
}

export function runOver(state: AppState, runId: string): AppState {
  const last = state.entries.at(-1);
  const entries = streamsNoMore(state.entries, runId, last?.at ?? 0);
  const next = entries === state.entries ? state : { ...state, entries };
  return next.runId === runId ? { ...next, runId: null } : next;
}

const recordedError = (runId: string) => `error ${runId} on record`;

/** Why a run ended, from its record; what the feed told of it says more. Without an error a person stopped it. */
export function endedBadly(entries: Entry[], runId: string, error: string | null, at: number): Entry[] {
  if (entries.some((entry) => entry.kind === "remark" && entry.id.startsWith(`error ${runId} `))) return entries;
  const tone = error === null ? "plain" : "error";
  return list.insert(entries, {
    kind: "remark",
    id: recordedError(runId),
    tone,
    text: error ?? "Stopped by you.",
    hint: null,
    at,
  });
}

/** Without what the record said of this run's end. */
function unsaid(entries: Entry[], runId: string | null): Entry[] {
  return runId === null ? entries : list.without(entries, "remark", recordedError(runId));
}

/** What a run said before it ended without an answer stays to be read, but streams no more: from now on it has a time. */
function streamsNoMore(entries: Entry[], runId: string | null, at: number): Entry[] {
  const found = entries.findLast((entry) => list.isStreamed(entry) && entry.runId === runId);
  if (!found) return entries;
  return list.insert(list.without(entries, "message", found.id), { ...found, pending: false, at } as ChatEntry);
}
