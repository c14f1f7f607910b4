// What the chat knows, as plain values. `reduce.ts` is the only place that makes a new one from an old one; components
// read it and never change it.

import type {
  AgentInfo,
  AgentMode,
  AnsweredFrom,
  ApprovalRequest,
  Edit,
  ErrorType,
  Execution,
  ExecutionStatus,
  Grant,
  Machine,
  Me,
  Project,
  RiskLevel,
  Session,
} from "@protocol";

/** Whether a conversation holds the calls of an agent or a program outside the chat. The server names it so. */
export const isElsewhere = (sessionId: string): boolean => sessionId.startsWith("sess_agent_");

/** A question that waits, whichever session it belongs to. */
export type Question = ApprovalRequest;

/** One tool call as the conversation shows it. */
export interface ToolCall {
  kind: "tool";
  id: string;
  toolName: string;
  params: Record<string, unknown>;
  riskLevel: RiskLevel;
  status: ExecutionStatus;
  sessionId: string;
  runId: string | null;
  /** Output while it runs, in order; dropped when the result is there. */
  output: OutputPiece[];
  result: Record<string, unknown> | null;
  resultShortened: boolean;
  error: string | null;
  errorType: ErrorType | null;
  milliseconds: number | null;
  approvedBy: string | null;
  /** Who said no, and where. */
  deniedBy: string | null;
  deniedFrom?: AnsweredFrom | null;
  /** Why, in their words. */
  deniedFor?: string | null;
  /** When it was called, in milliseconds of the server's clock. */
  at: number;
  /** When the machine began with it, where that is known; null while it waits there for others to end. */
  began?: number | null;
  undone: { by: string; files: number } | null;
  /** What a person changed in it, with what the agent asked for. */
  edit?: Edit | null;
}

export interface OutputPiece {
  stream: "stdout" | "stderr";
  text: string;
}

export interface ChatEntry {
  kind: "message";
  id: string;
  role: "user" | "agent";
  content: string;
  runId: string | null;
  at: number;
  /** While it streams, and while a message of ours is on its way. */
  pending: boolean;
}

/** What happened beside the conversation: decided elsewhere, an error of a run. */
export interface Remark {
  kind: "remark";
  id: string;
  tone: "plain" | "error";
  text: string;
  hint: string | null;
  at: number;
}

export type Entry = ChatEntry | ToolCall | Remark;

/** How a question that was shown ended, for the card that stays where it was for a moment. */
export interface Settled {
  question: Question;
  status: "approved" | "rejected" | "timeout" | "cancelled";
  /** `person:alice`, `grant:…`, or null when nobody did. */
  by: string | null;
  /** Where a person answered, as far as it is known. */
  from?: AnsweredFrom | null;
  reason: string | null;
  /** Whether this very page decided it. */
  here: boolean;
  /** What the server said when our answer came second. */
  second?: string;
}

export interface Usage {
  requests: number;
  inputTokens: number;
  outputTokens: number;
  /** US dollars as a decimal number; null where the price is not known. */
  cost: string | null;
}

export type Link = "connecting" | "up" | "down" | "signed-out";

export interface State {
  link: Link;
  me: Me | null;
  projects: Project[];
  projectId: string | null;
  sessions: Session[];
  sessionId: string | null;
  /** Entries of the open session, oldest first. */
  entries: Entry[];
  /** Whether the record holds older entries than these. */
  older: boolean;
  /** Every question of the project that waits, oldest first. */
  questions: Question[];
  settled: Settled[];
  /** The run that works in the open session, if any. */
  runId: string | null;
  usage: Usage | null;
  grants: Grant[];
  machines: Machine[];
  agents: AgentInfo[];
  agent: string;
  /** The mode the next message is sent with, for each agent by name. */
  modes: Record<string, AgentMode>;
  /** The model the next message of this conversation is sent with; null for the agent's usual one. */
  model: string | null;
  /** What the server's clock is ahead of ours, in milliseconds. */
  serverAhead: number;
}

export type { AgentInfo, AgentMode, ApprovalRequest, Execution, Grant, Machine, Session };

/** Something that went wrong beside the conversation, until the person puts it away. */
export interface Notice {
  id: number;
  text: string;
  hint: string | null;
}

/** A message that was sent by itself and did not arrive: it belongs into the field it was written in. */
export interface Returned {
  projectId: string;
  sessionId: string | null;
  text: string;
}

/** What the app itself also knows; pages and cards need only `State`. */
export interface AppState extends State {
  /** The session that the last message sent without one has begun. */
  begun: string | null;
  /** The conversation that was deleted last, here or elsewhere. */
  gone: string | null;
  /** What came back last, for the field of its conversation. */
  returned: Returned | null;
  /** Whether the record of the open session is on its way, or which session that is. */
  loading: boolean;
  loadingOlder: boolean;
  /** Why older entries could not be loaded; null while nothing is in the way. */
  olderTrouble: string | null;
  /** Why not all of what is shown could be read; it is tried again meanwhile. */
  trouble: string | null;
  /** Whether the server said which machines are connected: none yet is not none. */
  machinesKnown: boolean;
  notices: Notice[];
}

export const EMPTY: AppState = {
  link: "connecting",
  me: null,
  projects: [],
  projectId: null,
  sessions: [],
  sessionId: null,
  entries: [],
  older: false,
  questions: [],
  settled: [],
  runId: null,
  usage: null,
  grants: [],
  machines: [],
  agents: [],
  agent: "",
  modes: {},
  model: null,
  serverAhead: 0,
  begun: null,
  gone: null,
  returned: null,
  loading: true,
  loadingOlder: false,
  olderTrouble: null,
  trouble: null,
  machinesKnown: false,
  notices: [],
};
