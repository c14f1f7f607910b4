// A server of a few lines over real HTTP: answers what the test says, remembers what was asked, and streams events.

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
  /** By method and path (without the query): a status and a body, or a function of the request. */
  readonly routes = new Map<string, [number, unknown] | ((got: Got) => [number, unknown])>();
  readonly streams: ServerResponse[] = [];
  streamStatus = 200;
  #server: Server;
  #news: (() => void)[] = [];
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

  /** Sends an event on every open stream. */
  send(id: number, event: { kind: string } & Record<string, unknown>): void {
    for (const stream of this.streams) {
      stream.write(`id: ${id}\nevent: ${event.kind}\ndata: ${JSON.stringify(event)}\n\n`);
    }
  }

  drop(): void {
    for (const stream of this.streams.splice(0)) stream.destroy();
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
    if (url.pathname.endsWith("/chat/stream") && this.streamStatus === 200) {
      response.writeHead(200, { "Content-Type": "text/event-stream" });
      response.write(": hello\n\n");
      this.streams.push(response);
    } else {
      const found = this.routes.get(`${got.method} ${url.pathname}`) ?? [
        url.pathname.endsWith("/chat/stream") ? this.streamStatus : 404,
        { detail: "No such thing." },
      ];
      const [status, body] = typeof found === "function" ? found(got) : found;
      response.writeHead(status, status >= 300 && status < 400 ? { Location: "http://elsewhere.invalid/" } : {});
      response.end(typeof body === "string" ? body : JSON.stringify(body));
    }
    for (const tell of this.#news.splice(0)) tell();
  }
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
