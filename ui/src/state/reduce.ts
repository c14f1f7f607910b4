// What the chat knows after something happened, from what it knew before: what was loaded, what the person did, what the
// feed told (`hear.ts`). Pure: no clock, no server, no randomness.

import type {
  AgentInfo,
  AgentMode,
  ApprovalRequest,
  FeedEvent,
  Grant,
  Machine,
  Me,
  MessageAccepted,
  Project,
  Run,
  Session,
} from "@protocol";
import * as list from "./entries";
import { endedBadly, heard, runOver, sessionChanged, settle } from "./hear";
import {
  type AppState,
  type ChatEntry,
  EMPTY,
  type Entry,
  type Link,
  type Notice,
  type Question,
  type Returned,
  type Settled,
} from "./model";

export type Action =
  | { type: "link"; link: Link }
  | { type: "signed-out" }
  | { type: "clock"; ahead: number }
  | { type: "me"; me: Me; projects: Project[] }
  | { type: "project"; projectId: string }
  | { type: "sessions"; sessions: Session[] }
  | { type: "grants"; grants: Grant[] }
  | { type: "machines"; machines: Machine[] }
  | { type: "agents"; agents: AgentInfo[] }
  | { type: "agent"; agent: string }
  | { type: "mode"; agent: string; mode: AgentMode }
  | { type: "model"; model: string }
  | { type: "session-changed"; sessionId: string; title: string; deleted: boolean }
  | { type: "opening"; sessionId: string | null }
  /** `fresh`: the newest page, after which nothing that was here before counts; else more of the same record. */
  | { type: "record"; sessionId: string; entries: Entry[]; older: boolean; fresh: boolean }
  | { type: "record-failed"; sessionId: string | null }
  /** The newest runs, newest first. `asked`: the run that worked when they were asked for, as far as was known. */
  | { type: "runs"; sessionId: string; runs: Run[]; asked: string | null }
  | { type: "loading-older"; on: boolean }
  | { type: "older-failed"; trouble: string }
  | { type: "trouble"; trouble: string | null }
  | { type: "approvals"; approvals: ApprovalRequest[] }
  | { type: "event"; event: FeedEvent }
  | { type: "settled"; settled: Settled }
  | { type: "dismissed"; approvalId: string }
  | { type: "posting"; entry: ChatEntry }
  | { type: "posted"; localId: string; accepted: MessageAccepted }
  | { type: "post-failed"; localId: string }
  | { type: "returned"; returned: Returned }
  | { type: "run-over"; runId: string }
  | { type: "notice"; notice: Notice }
  | { type: "notice-gone"; id: number };

export function reduce(state: AppState, action: Action): AppState {
  switch (action.type) {
    case "link":
      return state.link === action.link ? state : { ...state, link: action.link };
    case "signed-out":
      // Nothing of the person stays on the screen.
      return { ...EMPTY, link: "signed-out", loading: false };
    case "clock":
      return state.serverAhead === action.ahead ? state : { ...state, serverAhead: action.ahead };
    case "me":
      return { ...state, me: action.me, projects: action.projects };
    case "project":
      return {
        ...EMPTY,
        link: state.link,
        me: state.me,
        projects: state.projects,
        serverAhead: state.serverAhead,
        notices: state.notices,
        projectId: action.projectId,
      };
    case "sessions":
      return { ...state, sessions: action.sessions };
    case "grants":
      return { ...state, grants: action.grants };
    case "machines":
      return { ...state, machines: action.machines, machinesKnown: true };
    case "agents":
      return withAgents(state, action.agents);
    case "agent":
      return state.agents.some((each) => each.name === action.agent)
        ? { ...state, agent: action.agent, model: null }
        : state;
    case "mode":
      return withMode(state, action.agent, action.mode);
    case "model":
      return { ...state, model: action.model };
    case "session-changed":
      return sessionChanged(state, action);
    case "opening":
      return opening(state, action.sessionId);
    case "record":
      return withRecord(state, action);
    case "record-failed":
      return state.sessionId === action.sessionId ? { ...state, loading: false, loadingOlder: false } : state;
    case "runs":
      return withRuns(state, action);
    case "loading-older":
      return { ...state, loadingOlder: action.on };
    case "older-failed":
      return { ...state, loadingOlder: false, olderTrouble: action.trouble };
    case "trouble":
      return state.trouble === action.trouble ? state : { ...state, trouble: action.trouble };
    case "approvals":
      return { ...state, questions: asked(action.approvals) };
    case "event":
      return heard(state, action.event);
    case "settled":
      return answered(state, action.settled);
    case "dismissed":
      return { ...state, settled: state.settled.filter((each) => each.question.id !== action.approvalId) };
    case "posting":
      // The person went on: what was answered before is read.
      return { ...state, settled: [], entries: list.insert(state.entries, action.entry) };
    case "posted":
      return posted(state, action.localId, action.accepted);
    case "post-failed":
      return { ...state, entries: list.without(state.entries, "message", action.localId) };
    case "returned":
      return { ...state, returned: action.returned };
    case "run-over":
      return runOver(state, action.runId);
    case "notice":
      return {
        ...state,
        notices: [...state.notices.filter((each) => each.text !== action.notice.text), action.notice],
      };
    case "notice-gone":
      return { ...state, notices: state.notices.filter((each) => each.id !== action.id) };
  }
}

function withAgents(state: AppState, agents: AgentInfo[]): AppState {
  const agent = agents.some((each) => each.name === state.agent) ? state.agent : (agents[0]?.name ?? "");
  const modes: Record<string, AgentMode> = {};
  for (const each of agents) modes[each.name] = state.modes[each.name] ?? each.mode;
  return { ...state, agents, agent, modes };
}

function withMode(state: AppState, name: string, mode: AgentMode): AppState {
  const agent = state.agents.find((each) => each.name === name);
  if (!agent || (mode === "full" && agent.widest_mode === "sandbox")) return state;
  return { ...state, modes: { ...state.modes, [name]: mode } };
}

function opening(state: AppState, sessionId: string | null): AppState {
  const same = sessionId !== null && sessionId === state.sessionId;
  return {
    ...state,
    sessionId,
    // The same one is read again after a gap: what is on the screen stays until more is known.
    entries: same ? state.entries : [],
    older: same ? state.older : false,
    loading: sessionId !== null,
    loadingOlder: false,
    olderTrouble: null,
    runId: same ? state.runId : null,
    usage: same ? state.usage : null,
    model: same ? state.model : null,
    settled: same ? state.settled : [],
  };
}

function withRecord(state: AppState, record: Extract<Action, { type: "record" }>): AppState {
  // The person opened another one meanwhile.
  if (record.sessionId !== state.sessionId) return state;
  const answered = new Set(record.entries.map((entry) => (list.isAnswer(entry) ? entry.runId : null)));
  const stays = (entry: Entry) =>
    list.isStreamed(entry) ? !answered.has(entry.runId) : !record.fresh || !isRecorded(entry);
  const entries = list.merge(state.entries.filter(stays), record.entries);
  return {
    ...state,
    entries,
    older: record.older,
    loading: false,
    loadingOlder: false,
    olderTrouble: null,
    runId: state.runId !== null && !answered.has(state.runId) ? state.runId : openRun(entries),
  };
}

/** Whether somebody works here and how the last one ended, as the server has it. */
function withRuns(state: AppState, { sessionId, runs, asked }: Extract<Action, { type: "runs" }>): AppState {
  if (sessionId !== state.sessionId) return state;
  const over = (run: Run) => run.state === "done" || run.state === "failed";
  let next = runs.filter(over).reduce((known, run) => runOver(known, run.run_id), state);
  // A message sent since then has a run that this answer may not know; what is over is over in any case.
  const newer = next.runId !== null && next.runId !== asked;
  // They go in order: of several that are open the oldest is at work.
  const open = runs.findLast((run) => !over(run))?.run_id ?? null;
  if (!newer && next.runId !== open) next = { ...next, runId: open };
  const last = runs[0];
  // Chosen here since, or of another agent: that stays.
  if (last && next.model === null && (last.agent === next.agent || next.agent === "")) {
    next = { ...next, model: last.model };
  }
  if (last?.state !== "failed") return next;
  const at = Date.parse(last.updated_at);
  const later = next.entries.some((entry) => entry.kind === "message" && !entry.pending && entry.at > at);
  return later ? next : { ...next, entries: endedBadly(next.entries, last.run_id, last.error, at) };
}

/** Whether the record has it as it is: what happens at this moment, and what was said beside it, it has not. */
function isRecorded(entry: Entry): boolean {
  return entry.kind === "tool" ? list.ended(entry.status) : entry.kind === "message" && !entry.pending;
}

/** The run that works as far as the record tells: its last call has not ended. */
function openRun(entries: readonly Entry[]): string | null {
  const last = entries.findLast((entry) => entry.kind !== "remark");
  if (last?.kind === "tool") return list.ended(last.status) ? null : last.runId;
  return null;
}

/** Oldest first, and only those that still wait. */
function asked(approvals: readonly Question[]): Question[] {
  return approvals
    .filter((each) => each.status === "pending")
    .sort((one, other) => one.created_at.localeCompare(other.created_at) || one.id.localeCompare(other.id));
}

/** What a card reports of its own answer. The feed may have told of it before; who was first, the card knows. */
function answered(state: AppState, settled: Settled): AppState {
  const known = state.settled.find((each) => each.question.id === settled.question.id);
  // It came second, and what the feed told says more.
  return known && !settled.here ? state : settle(state, settled);
}

function posted(state: AppState, localId: string, accepted: MessageAccepted): AppState {
  const local = state.entries.find((entry) => entry.kind === "message" && entry.id === localId);
  const rest = list.without(state.entries, "message", localId);
  const arrived = list.indexOf(rest, "message", accepted.message_id) >= 0;
  const entries =
    arrived || local?.kind !== "message"
      ? rest
      : list.insert(rest, { ...local, id: accepted.message_id, runId: accepted.run_id, pending: false });
  // It may be over before we hear that it began.
  const over = entries.some(
    (entry) =>
      (list.isAnswer(entry) && entry.runId === accepted.run_id) ||
      (entry.kind === "remark" && entry.id.startsWith(`error ${accepted.run_id} `)),
  );
  return {
    ...state,
    sessionId: accepted.session_id,
    begun: state.sessionId === null ? accepted.session_id : state.begun,
    entries,
    runId: state.runId ?? (over ? null : accepted.run_id),
  };
}
