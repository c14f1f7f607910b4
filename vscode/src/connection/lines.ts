// Connections to one server on this machine that may carry its token: each has proven itself first, by an answer on that
// very connection. One that ended is never opened again in its place, so a program that takes the port meanwhile is asked
// like any other. This costs one short request for each new connection; those nobody uses are kept as long as the server
// keeps them. Where no proof is needed (https, another machine) requests go their usual way.

import { Agent, ClientRequest, type ClientRequestArgs, type IncomingMessage } from "node:http";
import { connect, type Socket, type TcpNetConnectOpts } from "node:net";
import { Readable } from "node:stream";
import type { ReadableStream as NodeStream } from "node:stream/web";
import { ConfigurationError, UnreachableError } from "../tools/errors.js";
import { boundedText } from "./bounded.js";
import { type Lookup, type Places, placesOf, SYSTEM_LOOKUP } from "./leading.js";
import { Proof } from "./proof.js";

const PROOF_MS = 10_000;
const MAX_PROOF_BYTES = 4096;
/** A server closes what was idle for five seconds; what is so near its end is not used any more. */
const IDLE_MS = 4000;
const MISDIRECTED = 421;
const EMPTY = [204, 205, 304];

/** It ended before anything of this request was sent. */
class LineEnded extends Error {}

/** One connection, and never another. */
class Line extends Agent {
  #opened = false;
  #idle = performance.now();

  constructor(
    readonly host: string,
    /** As what the server is spoken to; undefined: by its number. */
    private readonly name: string | undefined,
  ) {
    super({ keepAlive: true, maxSockets: 1 });
    this.on("free", () => {
      this.#idle = performance.now();
    });
  }

  // As the agent calls it: for the first request, and for each that finds the connection gone.
  override createConnection(
    options: ClientRequestArgs,
    done?: (error: Error | null, socket: Socket) => void,
  ): Socket | undefined {
    if (this.#opened) {
      done?.(new LineEnded("the connection ended"), undefined as never);
      return undefined;
    }
    this.#opened = true;
    return connect(options as TcpNetConnectOpts);
  }

  get isFree(): boolean {
    const fresh = performance.now() - this.#idle < IDLE_MS;
    return fresh && Object.values(this.freeSockets).some((sockets) => sockets?.some((socket) => !socket.destroyed));
  }

  get isOver(): boolean {
    return Object.keys(this.sockets).length === 0 && !this.isFree;
  }

  /** Send one request; its answer is read before the next one. */
  ask(options: ClientRequestArgs, body?: string): Promise<IncomingMessage> {
    return new Promise((resolve, reject) => {
      const headers = { ...options.headers, ...(this.name === undefined ? {} : { Host: this.name }) };
      const all = { ...options, headers, protocol: "http:", host: this.host, agent: this };
      const sent = new ClientRequest(all as unknown as URL, resolve);
      // An answer that is none (101) closes it without a word.
      sent.on("error", reject).on("close", () => reject(new UnreachableError("The server closed the connection.")));
      sent.end(body);
    });
  }
}

/** Requests to one server with one token. */
export class ProvenLines {
  readonly #proof: Proof;
  #lines: Line[] = [];

  constructor(
    origin: string,
    token: string,
    private readonly lookup: Lookup = SYSTEM_LOOKUP,
  ) {
    this.#proof = new Proof(origin, token);
  }

  /**
   * As `fetch`, for addresses of this server. Rejects with a ConfigurationError when it did not prove itself. Redirects
   * are not followed: they are an answer where `redirect` is "manual", and an error otherwise.
   */
  async fetch(address: string, init: RequestInit): Promise<Response> {
    if (!this.#proof.possible) return fetch(address, init);
    const { pathname, search } = new URL(address);
    const options: ClientRequestArgs = {
      port: this.#proof.port,
      path: `${pathname}${search}`,
      method: init.method ?? "GET",
      headers: Object.fromEntries(new Headers(init.headers)),
      ...(init.signal ? { signal: init.signal } : {}),
    };
    const answer = (await this.#askFree(options, init)) ?? (await this.#askNew(options, init));
    return answer === undefined ? fetch(address, init) : answered(answer, init.redirect === "manual");
  }

  /** On a connection that is open and that nobody uses; undefined where there is none. */
  async #askFree(options: ClientRequestArgs, init: RequestInit): Promise<IncomingMessage | undefined> {
    for (const line of this.#lines) {
      if (!line.isFree) continue;
      try {
        return await line.ask(options, bodyOf(init));
      } catch (error) {
        // It ended while nobody used it. What only reads may be asked again, also when that was seen a moment too late.
        const again = error instanceof LineEnded || (options.method === "GET" && !init.signal?.aborted);
        if (!again) throw error;
      }
    }
    return undefined;
  }

  /** On a new connection; undefined where the server is not on this machine. */
  async #askNew(options: ClientRequestArgs, init: RequestInit): Promise<IncomingMessage | undefined> {
    const signal = init.signal ?? undefined;
    const places = await placesOf(this.#proof.origin, this.lookup, signal);
    if (places === undefined) return undefined;
    const line = await this.#open(places, signal);
    const answer = line.ask(options, bodyOf(init)); // before others can see it: a line carries one request
    for (const one of this.#lines) if (one.isOver) one.destroy();
    this.#lines = [...this.#lines.filter((one) => !one.isOver), line];
    return answer;
  }

  async #open({ hosts, name }: Places, signal: AbortSignal | undefined): Promise<Line> {
    const [first = "", ...others] = hosts;
    let last = await this.#prove(new Line(first, name), signal).catch(asError);
    for (const host of others) {
      if (last instanceof Line || last instanceof ConfigurationError) break;
      signal?.throwIfAborted();
      last = await this.#prove(new Line(host, name), signal).catch(asError);
    }
    if (last instanceof Line) return last;
    throw last;
  }

  async #prove(line: Line, signal: AbortSignal | undefined): Promise<Line> {
    try {
      const question = this.#proof.question(line.host);
      const time = AbortSignal.timeout(PROOF_MS);
      const options: ClientRequestArgs = {
        port: this.#proof.port,
        path: "/proof",
        method: "POST",
        headers: { "Content-Type": "application/json", Accept: "application/json" },
        signal: signal === undefined ? time : AbortSignal.any([signal, time]),
      };
      const answer = await line.ask(options, question.body);
      const status = answer.statusCode ?? 0;
      if (status >= 500) {
        throw new UnreachableError(`The server at ${this.#proof.origin} could not answer (${status}).`);
      }
      if (status === MISDIRECTED) throw this.#proof.misdirected();
      const text = await boundedText(answer, MAX_PROOF_BYTES);
      if (text === null || !question.isAnsweredBy(text)) throw this.#proof.unproven();
      return line;
    } catch (error) {
      line.destroy();
      throw error;
    }
  }
}

function bodyOf({ body }: RequestInit): string | undefined {
  return typeof body === "string" ? body : undefined;
}

function asError(error: unknown): Error {
  return error as Error;
}

/** An answer as `fetch` gives it. */
function answered(message: IncomingMessage, redirects: boolean): Response {
  const status = message.statusCode ?? 0;
  try {
    if (status >= 300 && status < 400 && !redirects) throw new TypeError("The server answered with a redirect.");
    const headers = Object.entries(message.headersDistinct).flatMap(([name, values = []]) =>
      values.map((value): [string, string] => [name, value]),
    );
    const body = EMPTY.includes(status) ? null : (Readable.toWeb(message) as NodeStream as ReadableStream);
    if (body === null) message.resume();
    return new Response(body, { status, headers });
  } catch (error) {
    message.destroy();
    throw error;
  }
}
