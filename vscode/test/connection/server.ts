// A server for tests: real HTTP on this machine, answering what it is told to. Streams stay open until they are ended.

import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

export interface Asked {
  readonly method: string;
  readonly path: string;
  readonly headers: IncomingMessage["headers"];
  readonly body: string;
}

type Answer = (asked: Asked, response: ServerResponse) => void;

export function json(status: number, value: unknown): Answer {
  return (_, response) => {
    response.writeHead(status, { "Content-Type": "application/json" }).end(JSON.stringify(value));
  };
}

export class TestServer {
  readonly asked: Asked[] = [];
  readonly streams: ServerResponse[] = [];
  /** By the end of a path, the next answers; the last one stays. */
  readonly answers = new Map<string, Answer[]>();
  readonly #server: Server;

  private constructor() {
    this.#server = createServer((request, response) => this.#take(request, response));
    this.answer("/chat/stream", (_, response) => {
      response.writeHead(200, { "Content-Type": "text/event-stream" });
      response.write(": hello\n\n");
      this.streams.push(response);
    });
    this.answer("/policy", json(200, {}));
    this.answer("/my/approvals", json(200, { approvals: [], total_count: 0 }));
  }

  static async start(): Promise<TestServer> {
    const server = new TestServer();
    await new Promise<void>((resolve) => server.#server.listen(0, "127.0.0.1", resolve));
    return server;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  answer(end: string, ...answers: Answer[]): void {
    this.answers.set(end, answers);
  }

  /** Say something on the newest stream. */
  send<Event extends { readonly kind: string }>(id: number, event: Event): void {
    this.raw(`id: ${id}\nevent: ${event.kind}\ndata: ${JSON.stringify(event)}\n\n`);
  }

  raw(text: string): void {
    this.streams.at(-1)?.write(text);
  }

  calls(end: string): Asked[] {
    return this.asked.filter(({ path }) => path.split("?")[0]?.endsWith(end));
  }

  async stop(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  #take(request: IncomingMessage, response: ServerResponse): void {
    const pieces: Buffer[] = [];
    request.on("data", (piece: Buffer) => pieces.push(piece));
    request.on("end", () => {
      const { headers, method = "", url: path = "" } = request;
      const asked = { method, path, headers, body: Buffer.concat(pieces).toString("utf8") };
      this.asked.push(asked);
      const plain = path.split("?")[0] ?? "";
      const found = [...this.answers].find(([end]) => plain.endsWith(end))?.[1];
      const answer = found !== undefined && found.length > 1 ? found.shift() : found?.[0];
      (answer ?? json(200, {}))(asked, response);
    });
  }
}
