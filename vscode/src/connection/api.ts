// The server's routes as typed methods. Every answer that is not a success becomes one of the named errors, so that callers
// decide by class: a caller's mistake, a refusal, somebody was faster, or `UnreachableError` for what another try may mend.
// The token is sent to the server it was given for and to no other: redirects are never followed, and what answers on this
// machine proves first that it is that server, on the connection itself. Bodies and headers are never logged.

import type {
  AgentList,
  ApprovalList,
  ApproveBody,
  Cancelled,
  ConfirmBody,
  DecisionAnswer,
  Execution,
  GrantPreview,
  GrantRule,
  Inspection,
  Me,
  MessageAccepted,
  MessageBody,
  OutputChunk,
  PolicyDeclaration,
  Project,
  ProjectList,
  RejectBody,
  ResultAck,
  SignInLink,
  UndoReport,
  WholeCall,
  WriteChange,
} from "@protocol";
import {
  type ByleaveError,
  CallerError,
  ConfigurationError,
  ConflictError,
  NotFound,
  RefusedError,
  UnreachableError,
} from "../tools/errors.js";
import type { Link } from "../tools/link.js";
import { repr } from "../tools/words.js";
import { boundedText } from "./bounded.js";
import { ProvenLines } from "./lines.js";

const ANSWER = 60_000;
const MAX_PROBLEM = 64 * 1024;
const TOKEN_HINT = "make a token with `byleave token --user NAME`";

/** The token is not accepted: trying again does not help, signing in again does. */
export class SignedOut extends ConfigurationError {}

/** One user's view of one server. */
export class ServerApi implements Link {
  readonly serverUrl: string;
  readonly #headers: Readonly<Record<string, string>>;
  readonly #lines: ProvenLines;

  constructor(
    serverUrl: string,
    token: string,
    readonly clientId?: string,
  ) {
    this.serverUrl = serverUrl.replace(/\/+$/, "");
    const url = URL.canParse(this.serverUrl) ? new URL(this.serverUrl) : undefined;
    if (!url || !/^https?:$/.test(url.protocol) || url.username || url.password || url.search || url.hash) {
      throw new ConfigurationError(
        `${repr(serverUrl)} is not the address of a server.`,
        "write it as http://HOST:PORT",
      );
    }
    if (!/^[!-~]+$/.test(token)) {
      throw new ConfigurationError("The token is empty or holds characters no token has.", TOKEN_HINT);
    }
    this.#lines = new ProvenLines(url.origin, token);
    this.#headers = {
      Authorization: `Bearer ${token}`,
      Accept: "application/json",
      ...(clientId === undefined ? {} : { "Byleave-Client": clientId }),
    };
  }

  // People, projects and chat

  me(): Promise<Me> {
    return this.#get("/my/me");
  }

  signInLink(): Promise<SignInLink> {
    return this.#post("/my/signin", undefined);
  }

  listProjects(): Promise<ProjectList> {
    return this.#get("/my/projects");
  }

  createProject(name: string): Promise<Project> {
    return this.#post("/my/projects", { name });
  }

  listAgents(projectId: string): Promise<AgentList> {
    return this.#get(`${project(projectId)}/agents`);
  }

  postMessage(projectId: string, body: MessageBody): Promise<MessageAccepted> {
    return this.#post(`${project(projectId)}/chat/messages`, body);
  }

  // Approvals

  approvals(): Promise<ApprovalList> {
    return this.#get("/my/approvals");
  }

  approve(projectId: string, approvalId: string, body: ApproveBody): Promise<DecisionAnswer> {
    return this.#post(`${project(projectId)}/approvals/${part(approvalId)}/approve`, body);
  }

  reject(projectId: string, approvalId: string, body: RejectBody): Promise<DecisionAnswer> {
    return this.#post(`${project(projectId)}/approvals/${part(approvalId)}/reject`, body);
  }

  confirm(approvalId: string, body: ConfirmBody): Promise<DecisionAnswer> {
    return this.#post(`/my/approvals/${part(approvalId)}/confirm`, body);
  }

  wholeCall(approvalId: string): Promise<WholeCall> {
    return this.#get(`/my/approvals/${part(approvalId)}/whole`);
  }

  change(approvalId: string): Promise<WriteChange> {
    return this.#get(`/my/approvals/${part(approvalId)}/change`);
  }

  previewGrant(projectId: string, rule: GrantRule): Promise<GrantPreview> {
    return this.#post(`${project(projectId)}/grants/preview`, { rule });
  }

  // Tools

  getTool(toolId: string): Promise<Execution> {
    return this.#get(`/my/tools/${part(toolId)}`);
  }

  cancel(projectId: string, toolId: string): Promise<Cancelled> {
    return this.#post(`${project(projectId)}/tools/${part(toolId)}/cancel`, undefined);
  }

  postResult(projectId: string, toolId: string, report: string): Promise<ResultAck> {
    return this.#post(`${project(projectId)}/tools/${part(toolId)}/result`, report);
  }

  async postOutput(projectId: string, toolId: string, chunk: OutputChunk): Promise<void> {
    await this.#send("POST", `${project(projectId)}/tools/${part(toolId)}/output`, chunk);
  }

  async postInspection(projectId: string, toolId: string, inspection: Inspection): Promise<void> {
    await this.#send("POST", `${project(projectId)}/tools/${part(toolId)}/inspection`, inspection);
  }

  async postUndoReport(projectId: string, toolId: string, report: UndoReport): Promise<void> {
    await this.#send("POST", `${project(projectId)}/tools/${part(toolId)}/undo-report`, report);
  }

  /** Tell the server this machine's rules, in place of those it told before. */
  async declarePolicy(projectId: string, declaration: PolicyDeclaration): Promise<void> {
    await this.#send("PUT", `${project(projectId)}/policy`, declaration);
  }

  // How a request is made

  /** The feed of a project; the one who opened it reads and ends it. */
  async openStream(
    projectId: string,
    query: URLSearchParams,
    headers: HeadersInit,
    signal: AbortSignal,
  ): Promise<Response> {
    const path = `${project(projectId)}/chat/stream?${query}`;
    const response = await this.#fetch(path, { headers: { ...this.#headers, ...headers }, signal });
    const kind = response.headers.get("content-type") ?? "";
    if (!kind.startsWith("text/event-stream")) {
      await response.body?.cancel();
      throw new ConfigurationError(
        `What answers at ${this.serverUrl} has no feed.`,
        "is this the address of a Byleave server?",
      );
    }
    return response;
  }

  async #get<T>(path: string): Promise<T> {
    return this.#read(await this.#send("GET", path));
  }

  async #post<T>(path: string, body: object | string | undefined): Promise<T> {
    return this.#read(await this.#send("POST", path, body));
  }

  async #send(method: string, path: string, body?: object | string): Promise<string> {
    const data = body === undefined || typeof body === "string" ? body : JSON.stringify(body);
    // A result may hold a whole file: large bodies get the time a slow line needs.
    const signal = AbortSignal.timeout(ANSWER + Math.ceil((data?.length ?? 0) / 100));
    const headers = { ...this.#headers, ...(data === undefined ? {} : { "Content-Type": "application/json" }) };
    const given = data === undefined ? {} : { body: data };
    const response = await this.#fetch(path, { method, headers, signal, ...given });
    try {
      return await response.text();
    } catch (error) {
      throw this.unreachable(error);
    }
  }

  async #fetch(path: string, init: RequestInit): Promise<Response> {
    let response: Response;
    try {
      response = await this.#lines.fetch(`${this.serverUrl}${path}`, { ...init, redirect: "manual" });
    } catch (error) {
      throw error instanceof ConfigurationError ? error : this.unreachable(error);
    }
    if (response.status < 200 || response.status >= 300) {
      throw await problem(response);
    }
    return response;
  }

  #read<T>(body: string): T {
    try {
      return JSON.parse(body) as T;
    } catch {
      throw new UnreachableError(
        `The server at ${this.serverUrl} answered something that is not JSON.`,
        "is it a Byleave server of the same version?",
      );
    }
  }

  /** A failure below HTTP, in words a person can act on. */
  unreachable(error: unknown): UnreachableError {
    const cause = error instanceof Error && error.cause instanceof Error ? error.cause : undefined;
    if (/CERT|SSL|TLS|SELF_SIGNED/.test((cause as NodeJS.ErrnoException | undefined)?.code ?? "")) {
      return new UnreachableError(`The server at ${this.serverUrl} has no certificate this machine trusts.`);
    }
    return new UnreachableError(
      `Cannot reach the server at ${this.serverUrl}.`,
      "is it running? start it with `byleave serve`, or correct its address",
    );
  }
}

interface Told {
  readonly detail?: unknown;
  readonly hint?: unknown;
  readonly state?: unknown;
}

/** What an answer that is no success means. */
async function problem(response: Response): Promise<ByleaveError> {
  const { status } = response;
  const body = await boundedText(response.body, MAX_PROBLEM).catch(() => null);
  let told: Told = {};
  try {
    told = (JSON.parse(body ?? "") as Told | null) ?? {};
  } catch {
    // not one of ours
  }
  const detail = typeof told.detail === "string" ? told.detail : `The server answered ${status}.`;
  const hint = typeof told.hint === "string" ? told.hint : null;
  if (status < 400) {
    return new ConfigurationError(
      `The server answered with a redirect to ${repr(response.headers.get("location") ?? "")}, which is not followed.`,
      "give the server's final address",
    );
  }
  switch (status) {
    case 401:
      return new SignedOut(detail, hint ?? TOKEN_HINT);
    case 403:
      return new RefusedError(detail, hint ?? `${TOKEN_HINT}, with the scopes this needs`);
    case 404:
      return new NotFound(detail, hint);
    case 409:
      return new ConflictError(detail, typeof told.state === "string" ? told.state : "", hint);
    default:
      return status >= 500 || [408, 425, 429].includes(status)
        ? new UnreachableError(`The server could not answer (${status}): ${detail}`, hint)
        : new CallerError(detail, hint);
  }
}

function project(projectId: string): string {
  return `/my/projects/${part(projectId)}`;
}

/** One segment of a path, whatever the text: it can neither climb nor add a query. */
function part(text: string): string {
  if (["", ".", ".."].includes(text)) {
    throw new CallerError(`${repr(text)} is not an id.`);
  }
  return encodeURIComponent(text);
}
