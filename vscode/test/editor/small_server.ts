// A server of a few lines over real HTTP: answers what the test says, remembers what was asked, and streams events.

import { createHash } from "node:crypto";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

export interface Got {
  method: string;
  path: string;
  token: string;
  body: unknown;
  lastEventId: string | undefined;
}

export class SmallServer {
  readonly got: Got[] = [];
  /** By method and path (without the query): a status and a body, or a function of the request; null: no answer at all. */
  readonly routes = new Map<string, [number, unknown] | null | ((got: Got) => [number, unknown])>();
  /** Open feeds that only watch. */
  readonly streams: ServerResponse[] = [];
  /** Open feeds of clients that execute. */
  readonly clients: ServerResponse[] = [];
  streamStatus = 200;
  clientStatus = 200;
  #server: Server;
  #news: (() => void)[] = [];
  #next = 1000;
  origin = "";

  private constructor() {
    this.#server = createServer((request, response) => void this.#answer(request, response));
  }

  static async open(): Promise<SmallServer> {
    const made = new SmallServer();
    await new Promise<void>((resolve) => made.#server.listen(0, "127.0.0.1", resolve));
    made.origin = `http://127.0.0.1:${(made.#server.address() as AddressInfo).port}`;
    made.routes.set("GET /my/me", [
      200,
      { user_id: "alice", scopes: ["chat", "approve", "execute"], version: "1", chat: true },
    ]);
    made.routes.set("GET /my/projects", [200, { projects: [], total_count: 0 }]);
    made.routes.set("POST /my/projects", [200, { project_id: "proj_new", name: "ws", created_at: "" }]);
    made.routes.set("GET /my/approvals", [200, { approvals: [], total_count: 0 }]);
    return made;
  }

  /** Requests whose path ends so. */
  asked(end: string): Got[] {
    return this.got.filter(({ path }) => path.endsWith(end));
  }

  /** Sends an event on every open feed. */
  send(id: number, event: { kind: string } & Record<string, unknown>): void {
    for (const stream of [...this.streams, ...this.clients]) {
      stream.write(`id: ${id}\nevent: ${event.kind}\ndata: ${JSON.stringify(event)}\n\n`);
    }
  }

  drop(): void {
    for (const stream of [...this.streams.splice(0), ...this.clients.splice(0)]) stream.destroy();
  }

  /** The last client that opened a feed to execute: its id, and the directory it works in. */
  get client(): { id: string; workspace: string } {
    const found = this.got.findLast(({ path }) => path.includes("/chat/stream") && !path.includes("execute=false"));
    const query = new URL(found?.path ?? "", "http://x").searchParams;
    return { id: query.get("client") ?? "", workspace: query.get("workspace") ?? "" };
  }

  /** Has the client execute a call that alice approved. Resolves with what it reports. */
  async execute(id: string, tool: string, params: Record<string, unknown>): Promise<Record<string, unknown>> {
    await this.until(() => this.clients.length > 0);
    this.send(this.#next++, signal(id, tool, params, this.client.id));
    const reported = () => this.got.find(({ path }) => path.endsWith(`/tools/${id}/result`));
    await this.until(() => reported() !== undefined);
    return reported()?.body as Record<string, unknown>;
  }

  /** Resolves once something is so; looked at after each request. */
  async until(so: () => boolean): Promise<void> {
    while (!so()) await new Promise<void>((resolve) => this.#news.push(resolve));
  }

  async close(): Promise<void> {
    this.drop();
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    let text = "";
    for await (const piece of request) text += String(piece);
    const url = new URL(request.url ?? "/", "http://x");
    const got: Got = {
      method: request.method ?? "",
      path: request.url ?? "",
      token: request.headers.authorization ?? "",
      body: text === "" ? null : JSON.parse(text),
      lastEventId: request.headers["last-event-id"] as string | undefined,
    };
    this.got.push(got);
    const feeds = url.searchParams.get("execute") === "false" ? this.streams : this.clients;
    const opens = feeds === this.streams ? this.streamStatus : this.clientStatus;
    if (url.pathname.endsWith("/chat/stream") && opens === 200) {
      response.writeHead(200, { "Content-Type": "text/event-stream" });
      response.write(": hello\n\n");
      feeds.push(response);
      response.once("close", () => {
        if (feeds.includes(response)) feeds.splice(feeds.indexOf(response), 1);
      });
    } else {
      const named = this.routes.get(`${got.method} ${url.pathname}`);
      const found = named === undefined ? usual(got.method, url.pathname, opens) : named;
      for (const tell of this.#news.splice(0)) tell();
      if (found === null) return;
      const [status, body] = typeof found === "function" ? found(got) : found;
      response.writeHead(status, status >= 300 && status < 400 ? { Location: "http://elsewhere.invalid/" } : {});
      response.end(typeof body === "string" ? body : JSON.stringify(body));
    }
    for (const tell of this.#news.splice(0)) tell();
  }
}

/** What a server answers where the test says nothing. */
function usual(method: string, path: string, feedStatus: number): [number, unknown] {
  const report = /^\/my\/projects\/[^/]+\/tools\/([^/]+)\/(result|output|undo-report)$/.exec(path);
  const ack = { success: true, tool_id: report?.[1], status: "completed", message: "" };
  if (method === "POST" && report) return report[2] === "result" ? [200, ack] : [204, ""];
  if (method === "PUT" && path.endsWith("/policy")) return [204, ""];
  const status = path.endsWith("/chat/stream") ? feedStatus : 404;
  return [status, { type: "about:blank", title: "Problem", status, detail: "No such thing." }];
}

/** A signal to execute a call of project `proj_new`, as the server would send it. */
export function signal(
  id: string,
  tool: string,
  params: Record<string, unknown>,
  client_id: string,
): { kind: string } & Record<string, unknown> {
  const call = { bound: {}, params: sorted(params), project: "proj_new", tool };
  return {
    kind: "tool.execution_signal",
    timestamp: new Date().toISOString(),
    tool_id: id,
    tool_name: tool,
    tool_params: params,
    digest: createHash("sha256").update(JSON.stringify(call)).digest("hex"),
    risk_level: "MEDIUM",
    approval_id: `approval_of_${id}`,
    approved_by: "person:alice",
    bound: {},
    mode: "sandbox",
    network: false,
    deadline: new Date(Date.now() + 600_000).toISOString(),
    client_id,
    session_id: "s",
    traceparent: null,
  };
}

function sorted(params: Record<string, unknown>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(params).sort(([one], [other]) => (one < other ? -1 : 1)));
}

export function question(id: string, more: Record<string, unknown> = {}): { kind: string } & Record<string, unknown> {
  return {
    kind: "tool.approval_request",
    timestamp: "2026-01-01T00:00:00.000Z",
    approval_id: id,
    tool_id: `exec_${id}`,
    tool_name: "execute_command",
    tool_params: { command: "npm", args: ["test"] },
    risk_level: "MEDIUM",
    timeout_seconds: 300,
    description: "Run npm test",
    findings: [{ level: "MEDIUM", reason: "npm test runs scripts.", rule: "x", instead: null, always_asks: false }],
    network: false,
    digest: `digest of ${id}`,
    deadline: "2026-01-01T00:05:00.000Z",
    session_id: "s",
    agent_id: null,
    inspection: null,
    suggestions: [],
    calls: 1,
    ...more,
  };
}

export function decided(id: string, status = "approved"): { kind: string } & Record<string, unknown> {
  return {
    kind: "tool.approval_decided",
    timestamp: "2026-01-01T00:00:00.000Z",
    approval_id: id,
    tool_ids: [`exec_${id}`],
    status,
    decided_by: "person:bob",
    reason: null,
    session_id: "s",
    scope: null,
    grant_id: null,
  };
}
