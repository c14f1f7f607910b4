// One request to a search provider: to the host that was configured, bounded in time and size, and nowhere else. A name
// must lead to public addresses only, judged on the very addresses that are connected to, so that no second lookup can
// answer otherwise. Redirects are not followed, no proxy is used (nor the editor's: it replaces the functions that make
// requests, not the request itself), no cookie is kept, and a key never appears in an error.

import { type LookupAddress, lookup } from "node:dns";
import { ClientRequest, type IncomingMessage, Agent as PlainAgent, type RequestOptions } from "node:http";
import { Agent as SecureAgent } from "node:https";
import type { LookupFunction } from "node:net";
import type { Readable } from "node:stream";
import { createGunzip, createInflate } from "node:zlib";
import { addressOf, isNeverAsked, isPublic } from "./addresses.js";
import { codeOf, ExecutionCancelled, osError, RefusedError, ToolFailure } from "./errors.js";
import { checkedAddress, isLocalhost, type WebAddress } from "./web_address.js";
import { repr } from "./words.js";

const SECONDS = 15;
const MAX_BYTES = 2 * 1024 * 1024;
const MAX_HEADER_BYTES = 32 * 1024;
const PRIVATE_HINT =
  "If it is your own SearXNG on a private network, set byleave.search.allowPrivate, or write its address in place of its name.";
const LOOPBACK: readonly LookupAddress[] = [
  { address: "127.0.0.1", family: 4 },
  { address: "::1", family: 6 },
];

export type JsonObject = Readonly<Record<string, unknown>>;

/** What to ask of a provider. */
export interface WebRequest {
  readonly name: string;
  readonly method: "GET" | "POST";
  readonly url: string;
  /** Where the provider's address is written. */
  readonly setting: string;
  /** Headers that nobody else may see. */
  readonly keys?: Readonly<Record<string, string>>;
  readonly query?: Readonly<Record<string, string>>;
  readonly body?: JsonObject;
}

export interface WebOptions {
  /** Names may lead to private addresses. */
  readonly allowPrivate?: boolean;
  /** Who looks names up; left out: the system. */
  readonly resolve?: (host: string) => Promise<readonly LookupAddress[]>;
  readonly seconds?: number;
}

/** Asks a provider's API for JSON within bounds of place, time and size. */
export class BoundedWeb {
  constructor(private readonly options: WebOptions = {}) {}

  async ask(request: WebRequest, signal?: AbortSignal): Promise<JsonObject> {
    const { keys = {}, name, setting, url } = request;
    const where = checkedAddress(name, setting, url, Object.keys(keys).length > 0);
    const seconds = this.options.seconds ?? SECONDS;
    const time = AbortSignal.timeout(seconds * 1000);
    const stop = signal === undefined ? time : AbortSignal.any([signal, time]);
    try {
      return read(name, await this.#exchange(request, where, stop));
    } catch (error) {
      if (signal?.aborted) {
        throw new ExecutionCancelled("The search was called off.");
      }
      if (time.aborted) {
        throw new ToolFailure(`${name} did not answer within ${seconds} s.`, "Try again later.");
      }
      if (error instanceof RefusedError || error instanceof ToolFailure) {
        throw error;
      }
      // Not the error's own text: it may quote the address or headers, and so a key.
      const kind = codeOf(error) ?? (error as Error).name;
      throw new ToolFailure(`${name} at ${where.host} could not be reached (${kind}).`);
    }
  }

  async #exchange({ body, keys, method, name, query }: WebRequest, where: WebAddress, stop: AbortSignal) {
    const data = body === undefined ? undefined : Buffer.from(JSON.stringify(body));
    const agent = where.encrypted ? new SecureAgent({ keepAlive: false }) : new PlainAgent({ keepAlive: false });
    const options: RequestOptions = {
      protocol: where.encrypted ? "https:" : "http:",
      host: where.host,
      port: where.port,
      path: query === undefined ? where.path : `${where.path}?${new URLSearchParams(query)}`,
      method,
      headers: {
        Accept: "application/json",
        "Accept-Encoding": "gzip, deflate",
        "User-Agent": "byleave",
        ...(data === undefined ? {} : { "Content-Type": "application/json", "Content-Length": data.length }),
        ...keys,
      },
      agent,
      lookup: this.#lookup,
      maxHeaderSize: MAX_HEADER_BYTES,
      signal: stop,
    };
    try {
      const response = await new Promise<IncomingMessage>((resolve, reject) => {
        const sent = new ClientRequest(options as unknown as URL, resolve);
        // What is no answer (101) ends the connection without a word; after an answer this changes nothing.
        sent.on("error", reject).on("close", () => reject(osError("ECONNRESET")));
        sent.end(data);
      });
      return await this.#body(name, response);
    } finally {
      agent.destroy();
    }
  }

  async #body(name: string, response: IncomingMessage): Promise<Buffer> {
    try {
      if (response.statusCode !== 200) {
        throw refused(name, response.statusCode ?? 0);
      }
      return await bounded(name, response);
    } finally {
      response.destroy();
    }
  }

  readonly #lookup: LookupFunction = (host, options, done) => {
    this.#addresses(host).then(
      (found) => {
        const [first] = found;
        if (options.all) {
          done(null, [...found]);
        } else {
          done(null, first?.address ?? "", first?.family ?? 4);
        }
      },
      (error: Error) => done(error, ""),
    );
  };

  /** The addresses of a name that may be connected to: all of them, or none. */
  async #addresses(host: string): Promise<readonly LookupAddress[]> {
    if (isLocalhost(host)) {
      return LOOPBACK; // this machine, and nobody is asked about it
    }
    const found = await (this.options.resolve ?? bySystem)(host);
    for (const { address } of found) {
      this.#refuse(host, address);
    }
    return found;
  }

  #refuse(host: string, found: string): void {
    const address = addressOf(found.replace(/%.*$/, ""));
    if (address === undefined || isNeverAsked(address)) {
      throw new RefusedError(`${repr(host)} leads to ${found}, which is never asked.`, "Check who answers for it.");
    }
    if (!this.options.allowPrivate && !isPublic(address)) {
      throw new RefusedError(`${repr(host)} leads to ${found}, which is not a public address.`, PRIVATE_HINT);
    }
  }
}

function bySystem(host: string): Promise<LookupAddress[]> {
  return new Promise((resolve, reject) =>
    lookup(host, { all: true }, (error, found) => (error === null ? resolve(found) : reject(error))),
  );
}

/** The body, counted after decompression. */
async function bounded(name: string, response: IncomingMessage): Promise<Buffer> {
  const pieces: Buffer[] = [];
  let size = 0;
  for await (const piece of decoded(response)) {
    pieces.push(piece as Buffer);
    size += (piece as Buffer).length;
    if (size > MAX_BYTES) {
      throw new ToolFailure(`${name} answered with more than ${MAX_BYTES} bytes.`);
    }
  }
  return Buffer.concat(pieces);
}

function decoded(response: IncomingMessage): Readable {
  const encoding = response.headers["content-encoding"];
  if (encoding !== "gzip" && encoding !== "deflate") {
    return response;
  }
  const decoder = encoding === "gzip" ? createGunzip() : createInflate();
  response.on("error", (error) => decoder.destroy(error));
  return response.pipe(decoder);
}

function read(name: string, data: Buffer): JsonObject {
  let answer: unknown;
  try {
    answer = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(data));
  } catch {
    answer = null;
  }
  if (typeof answer !== "object" || answer === null || Array.isArray(answer)) {
    throw new ToolFailure(`${name} answered with something that is no JSON object.`);
  }
  return answer as JsonObject;
}

function refused(name: string, status: number): ToolFailure {
  if (status === 401 || status === 403) {
    return new ToolFailure(`${name} refused the request (${status}).`, "Check its API key or its settings.");
  }
  if (status === 429) {
    return new ToolFailure(`${name} says there were too many requests (${status}).`, "Try again later.");
  }
  if (status >= 300 && status < 400) {
    return new ToolFailure(`${name} redirects elsewhere (${status}), which is not followed.`, "Check its URL.");
  }
  return new ToolFailure(`${name} answered with status ${status}.`);
}
