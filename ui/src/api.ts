// The server's routes as functions, typed by the protocol. The one place that knows paths; it keeps nothing.

import type {
  AgentList,
  ApprovalList,
  ApproveBody,
  AuditCheck,
  AuditPage,
  Cancelled,
  CheckAnswer,
  CheckBody,
  DecisionAnswer,
  EditAnswer,
  EditableCall,
  EditBody,
  Execution,
  ExecutionPage,
  FileOffers,
  Grant,
  GrantList,
  GrantPreview,
  GrantRule,
  MachineList,
  Me,
  MessageAccepted,
  MessageBody,
  MessageList,
  NoticeTest,
  Notifications,
  PhoneLink,
  Project,
  ProjectBody,
  ProjectList,
  PushDevice,
  PushDeviceBody,
  RuleLayers,
  RunList,
  Session,
  SessionChanges,
  SessionDeleted,
  SessionExport,
  SessionList,
  SessionSearch,
  SessionText,
  SessionUndoAnswer,
  SessionUndoPlan,
  SignInLink,
  ToolCatalogue,
  UndoAnswer,
  UndoBody,
  UndoPlan,
  WholeCall,
  WriteChange,
} from "@protocol";
import type { Host } from "./host";

const LOOK_AFTER_IT = "See whether `byleave up` or `byleave serve` still runs.";
/** For who did not start the server, and need not know that there is one. */
const ASK_AROUND = "Try again in a moment. If it stays so, tell who runs this page.";

/** Why a request did not succeed, in the server's words. `status` 0: it could not be reached. */
export class Problem extends Error {
  readonly status: number;
  readonly hint: string | null;
  /** With 409: what holds instead. */
  readonly state: string | null;

  constructor(message: string, status: number, hint: string | null = null, state: string | null = null) {
    super(message);
    this.name = "Problem";
    this.status = status;
    this.hint = hint;
    this.state = state;
  }
}

/** Whether it may go by itself: the server was not reached, or could not at that moment. */
export function passing(error: unknown): boolean {
  return error instanceof Problem && (error.status === 0 || error.status >= 500);
}

/** Pauses before a request goes out again by itself; after these the person decides. */
export const RESEND_MS = [500, 1500] as const;
/** After so long without an answer it is not sent again: the person is told. */
export const PATIENCE_MS = 10_000;

/** Tries again what may be asked twice: a server that restarts loses what it was asked, and another one answers. */
export async function insist<T>(attempt: () => Promise<T>): Promise<T> {
  const began = Date.now();
  for (const pause of RESEND_MS) {
    try {
      return await attempt();
    } catch (error) {
      if (!passing(error) || Date.now() - began > PATIENCE_MS) throw error;
    }
    await new Promise((resolve) => setTimeout(resolve, pause));
  }
  return attempt();
}

/** Query values; those that are null or undefined are left out. */
type Query = Record<string, string | number | boolean | null | undefined>;

export interface HistoryQuery extends Query {
  project_id?: string | undefined;
  session_id?: string | undefined;
  tool_name?: string | undefined;
  status?: string | undefined;
  risk_level?: string | undefined;
  cursor?: string | undefined;
  limit?: number | undefined;
}

export class Api {
  readonly #host: Host;
  readonly #heardTime: ((serverTime: number) => void) | undefined;

  readonly #signedOut: (() => void) | undefined;

  /** `signedOut` is called when the server no longer knows who is asking. */
  constructor(host: Host, heardTime?: (serverTime: number) => void, signedOut?: () => void) {
    this.#host = host;
    this.#heardTime = heardTime;
    this.#signedOut = signedOut;
  }

  me = () => this.#get<Me>("/my/me");
  projects = () => this.#get<ProjectList>("/my/projects");
  /** Asked twice it makes two. */
  createProject = (name: string) => this.#ask<Project>("POST", "/my/projects", { name } satisfies ProjectBody);
  /** For who has no project yet; another tab may have asked at the same moment, and both get the same one. */
  firstProject = (name: string) => this.#send<Project>("/my/projects", { name, if_none: true } satisfies ProjectBody);
  sessions = (project: string) => this.#get<SessionList>(inProject(project, "chat/sessions"));
  search = (project: string, query: string) => this.#get<SessionSearch>(inProject(project, "chat/search"), { query });
  renameSession = (project: string, session: string, title: string) =>
    this.#send<Session>(inSession(project, session, "rename"), { title });
  /** Asked twice it would not find what it has deleted. */
  deleteSession = (project: string, session: string) =>
    this.#ask<SessionDeleted>("POST", inSession(project, session, "delete"), {});
  exportSession = (project: string, session: string) => this.#get<SessionExport>(inSession(project, session, "export"));
  sessionText = (project: string, session: string) => this.#get<SessionText>(inSession(project, session, "markdown"));
  sessionChanges = (project: string, session: string) =>
    this.#get<SessionChanges>(inSession(project, session, "changes"));
  sessionUndoPlan = (project: string, session: string) =>
    this.#get<SessionUndoPlan>(inSession(project, session, "undo"));
  undoSession = (project: string, session: string, body: UndoBody) =>
    this.#ask<SessionUndoAnswer>("POST", inSession(project, session, "undo"), body);
  files = (project: string, query: string) => this.#get<FileOffers>(inProject(project, "files"), { query });
  messages = (project: string, session_id: string, limit: number, before?: string) =>
    this.#get<MessageList>(inProject(project, "chat/messages"), { session_id, limit, before });
  /** Goes out again under its own name only, which the outbox keeps. */
  post = (project: string, body: MessageBody) =>
    this.#ask<MessageAccepted>("POST", inProject(project, "chat/messages"), body);
  agents = (project: string) => this.#get<AgentList>(inProject(project, "agents"));
  machines = (project: string) => this.#get<MachineList>(inProject(project, "machines"));
  runs = (project: string, session_id: string, limit: number) =>
    this.#get<RunList>(inProject(project, "chat/runs"), { session_id, limit });
  stopRun = (project: string, run: string) =>
    this.#send<Cancelled>(inProject(project, `chat/runs/${encodeURIComponent(run)}/cancel`), {});

  /** Without a project: of all. */
  approvals = (project_id?: string) => this.#get<ApprovalList>("/my/approvals", { project_id });
  approve = (project: string, approval: string, body: ApproveBody) =>
    this.#send<DecisionAnswer>(inProject(project, `approvals/${encodeURIComponent(approval)}/approve`), body);
  reject = (project: string, approval: string, reason: string | null) =>
    this.#send<DecisionAnswer>(inProject(project, `approvals/${encodeURIComponent(approval)}/reject`), { reason });
  /** `reveal`: also what is masked in the question. */
  whole = (approval: string, reveal = false) =>
    insist(() => this.#get<WholeCall>(`/my/approvals/${encodeURIComponent(approval)}/whole`, reveal ? { reveal } : {}));
  editable = (approval: string, reveal: boolean) =>
    insist(() =>
      this.#get<EditableCall>(`/my/approvals/${encodeURIComponent(approval)}/editable`, reveal ? { reveal } : {}),
    );
  /** Asked twice it would meet the question it has withdrawn itself. */
  edit = (project: string, approval: string, body: EditBody) =>
    this.#ask<EditAnswer>("POST", inProject(project, `approvals/${encodeURIComponent(approval)}/edit`), body);
  change = (approval: string) => this.#get<WriteChange>(`/my/approvals/${encodeURIComponent(approval)}/change`);

  history = (query: HistoryQuery) => this.#get<ExecutionPage>("/my/tools/history", query);
  execution = (tool: string) => this.#get<Execution>(`/my/tools/${encodeURIComponent(tool)}`);
  stopTool = (tool: string) => this.#send<Cancelled>(`/my/tools/${encodeURIComponent(tool)}/cancel`, {});
  undoPlan = (tool: string) => this.#get<UndoPlan>(`/my/tools/${encodeURIComponent(tool)}/undo`);
  /** Asked twice it would meet files that it has changed itself. */
  undo = (tool: string, body: UndoBody) =>
    this.#ask<UndoAnswer>("POST", `/my/tools/${encodeURIComponent(tool)}/undo`, body);

  grants = (project_id: string) => this.#get<GrantList>("/my/grants", { project_id, all: true });
  revoke = (grant: string) => this.#send<Grant>(`/my/grants/${encodeURIComponent(grant)}/revoke`, {});
  previewGrant = (project: string, rule: GrantRule) =>
    this.#send<GrantPreview>(inProject(project, "grants/preview"), { rule });

  tools = (project: string) => this.#get<ToolCatalogue>(inProject(project, "tools/available"));
  check = (project: string, body: CheckBody) => this.#send<CheckAnswer>(inProject(project, "check"), body);
  policy = (project: string) => this.#get<RuleLayers>(inProject(project, "policy"));
  audit = (project: string, limit: number, before?: number) =>
    this.#get<AuditPage>(inProject(project, "audit"), { limit, before });
  verifyAudit = (project: string) => insist(() => this.#get<AuditCheck>(inProject(project, "audit/verify")));
  notices = () => insist(() => this.#get<Notifications>("/my/notices"));
  addDevice = (body: PushDeviceBody) => this.#send<PushDevice>("/my/notices/devices", body);
  removeDevice = (device: string) => this.#ask<PushDevice>("POST", `/my/notices/devices/${device}/remove`);
  testNotices = () => this.#ask<NoticeTest>("POST", "/my/notices/test");
  phoneLink = () => this.#send<PhoneLink>("/my/signin/phone", {});
  signInLink = () => this.#send<SignInLink>("/my/signin", {});

  #get<T>(path: string, query: Query = {}): Promise<T> {
    return this.#ask<T>("GET", withQuery(path, query));
  }

  /** What may be asked twice: the second time it holds already, or changes nothing. */
  #send<T>(path: string, body: unknown): Promise<T> {
    return insist(() => this.#ask<T>("POST", path, body));
  }

  async #ask<T>(method: "GET" | "POST", path: string, body?: unknown): Promise<T> {
    const todo = this.#host.kind === "embedded" ? ASK_AROUND : LOOK_AFTER_IT;
    const away = new Problem("The server cannot be reached.", 0, todo);
    const answer = await this.#host.request(method, path, body).catch((error: unknown) => {
      throw error instanceof Problem ? error : away;
    });
    const { status, body: told } = answer;
    // The server answers with an object. A web page in its place must not pass for a decision that was taken.
    if (status >= 200 && status < 300 && status !== 204 && (typeof told !== "object" || told === null)) throw away;
    if (answer.serverTime !== null) this.#heardTime?.(answer.serverTime);
    if (status >= 200 && status < 300) return told as T;
    if (status === 401) this.#signedOut?.();
    throw problemOf(status, told);
  }
}

function inProject(project: string, rest: string): string {
  return `/my/projects/${encodeURIComponent(project)}/${rest}`;
}

function inSession(project: string, session: string, rest: string): string {
  return inProject(project, `chat/sessions/${encodeURIComponent(session)}/${rest}`);
}

export function withQuery(path: string, query: Query): string {
  const pairs = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== null && value !== undefined && value !== "") pairs.set(name, String(value));
  }
  const text = pairs.toString();
  return text ? `${path}?${text}` : path;
}

function problemOf(status: number, body: unknown): Problem {
  const told = typeof body === "object" && body !== null ? (body as Record<string, unknown>) : {};
  const text = (value: unknown) => (typeof value === "string" ? value : null);
  return new Problem(text(told.detail) ?? `The server answered ${status}.`, status, text(told.hint), text(told.state));
}
