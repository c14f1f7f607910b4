// Connection: requests to one server with one token.
//
// A request is repeated while a server that was there is away, so that it outlasts its restart. Before anything has
// answered at an address, it is more likely wrong: that is told at once. The token goes to this server only: redirects
// are not followed.

import {
  type ByleaveError,
  CallerError,
  ConfigurationError,
  ConflictError,
  NotFound,
  RefusedError,
  SignedOut,
  UnreachableError,
} from "./errors.js";

const DEFAULT_URL = "http://127.0.0.1:8477";
const PATIENCE_MS = 60_000;
const ANSWER_MS = 60_000;
const FIRST_PAUSE_MS = 200;
const LONGEST_PAUSE_MS = 5_000;
const TOKEN_HINT = "`byleave token --scope agent` makes one; it may have expired";

export interface ConnectionOptions {
  /** Where the server is. Default: BYLEAVE_SERVER_URL, or this machine's. */
  serverUrl?: string;
  /** A token with the scope `agent`. Default: BYLEAVE_TOKEN. */
  token?: string;
  /** How long to wait for a server that is away for a moment. */
  patienceMs?: number;
  /** Returns the W3C traceparent of the span that calls; the server makes it the parent of the call's spans. */
  traceparent?: () => string | undefined;
  fetch?: typeof fetch;
}

export interface RequestOptions {
  body?: unknown;
  signal?: AbortSignal | undefined;
  /** Time the server may take beyond an ordinary answer. */
  extraMs?: number;
}

export class Connection {
  readonly serverUrl: string;
  /** True once anything has answered at this address. */
  private reached = false;
  /** True once a Byleave server has. */
  private met = false;
  private readonly token: string;
  private readonly patienceMs: number;

  constructor(private readonly options: ConnectionOptions = {}) {
    this.serverUrl = (options.serverUrl ?? environment("BYLEAVE_SERVER_URL") ?? DEFAULT_URL).replace(/\/+$/, "");
    this.token = options.token ?? environment("BYLEAVE_TOKEN") ?? "";
    this.patienceMs = options.patienceMs ?? PATIENCE_MS;
    const url = URL.canParse(this.serverUrl) ? new URL(this.serverUrl) : undefined;
    if (!url || !/^https?:$/.test(url.protocol) || url.username || url.search || url.hash) {
      throw new ConfigurationError(
        `'${this.serverUrl}' is not the address of a server.`,
        "write it as http://HOST:PORT",
      );
    }
    if (!/^[!-~]+$/.test(this.token)) {
      throw new ConfigurationError("There is no token, or it holds characters that no token has.", TOKEN_HINT);
    }
  }

  /** Send a request that may be repeated, and return its answer. */
  async send<T>(method: "GET" | "POST", path: string, options: RequestOptions = {}): Promise<T> {
    const giveUp = Date.now() + this.patienceMs;
    for (let pause = FIRST_PAUSE_MS; ; pause = Math.min(2 * pause, LONGEST_PAUSE_MS)) {
      const known = this.reached;
      try {
        return await this.once<T>(method, path, options);
      } catch (error) {
        const away = error instanceof UnreachableError && (known || this.met);
        if (!away || Date.now() + pause > giveUp) throw error;
      }
      await sleep(pause, options.signal);
    }
  }

  private async once<T>(method: string, path: string, { body, signal, extraMs = 0 }: RequestOptions): Promise<T> {
    const headers: Record<string, string> = { Authorization: `Bearer ${this.token}`, Accept: "application/json" };
    if (body !== undefined) headers["Content-Type"] = "application/json";
    const parent = this.options.traceparent?.();
    if (parent) headers.traceparent = parent;
    const limit = AbortSignal.timeout(ANSWER_MS + extraMs);
    let response: Response;
    let text: string;
    try {
      response = await (this.options.fetch ?? fetch)(this.serverUrl + path, {
        method,
        headers,
        redirect: "manual",
        signal: signal ? AbortSignal.any([signal, limit]) : limit,
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      });
      this.reached = true;
      text = await response.text();
    } catch (error) {
      signal?.throwIfAborted();
      throw new UnreachableError(
        `Cannot reach the server at ${this.serverUrl}.`,
        "is it running, and is serverUrl (BYLEAVE_SERVER_URL) right?",
        { cause: error },
      );
    }
    const answer = parsed(text);
    if (response.ok && answer) {
      this.met = true;
      return answer as T;
    }
    throw this.problem(response, answer);
  }

  private problem(response: Response, answer: Record<string, unknown> | undefined): ByleaveError {
    const status = response.status;
    if (response.type === "opaqueredirect" || (status >= 300 && status < 400)) {
      return new ConfigurationError(
        `The server at ${this.serverUrl} answered with a redirect, which is not followed.`,
        "give its final address as serverUrl",
      );
    }
    if (typeof answer?.detail !== "string" || response.ok) {
      const said = `The program at ${this.serverUrl} answered ${status}, and not as a Byleave server.`;
      return this.met
        ? new UnreachableError(said, "is the server running behind its proxy?")
        : new ConfigurationError(said, "is serverUrl (BYLEAVE_SERVER_URL) right?");
    }
    this.met = true;
    const hint = typeof answer.hint === "string" ? answer.hint : undefined;
    if (status === 401) return new SignedOut(answer.detail, hint ?? TOKEN_HINT);
    if (status === 403) return new RefusedError(answer.detail, hint ?? `${TOKEN_HINT}, or lack the scope this needs`);
    if (status === 404) return new NotFound(answer.detail, hint);
    if (status === 409) return new ConflictError(answer.detail, hint);
    if (status >= 500 || [408, 425, 429].includes(status)) {
      return new UnreachableError(`The server could not answer (${status}): ${answer.detail}`, hint);
    }
    return new CallerError(answer.detail, hint);
  }
}

/** An environment variable, where there is an environment. */
export function environment(name: string): string | undefined {
  const { process } = globalThis as { process?: { env?: Record<string, string | undefined> } };
  return process?.env?.[name] || undefined;
}

export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const over = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", over);
      resolve();
    }, ms);
    if (signal?.aborted) over();
    else signal?.addEventListener("abort", over, { once: true });
  });
}

function parsed(text: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return value !== null && typeof value === "object" ? (value as Record<string, unknown>) : undefined;
  } catch {
    return undefined;
  }
}
