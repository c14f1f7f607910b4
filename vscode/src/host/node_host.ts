// Requests and event streams to one server with one token, from the editor's Node. The token goes to the origin it was
// given for and to no other: redirects are never followed, and what answers on this machine proves first that it is that
// server. It opens nothing again by itself and keeps nothing.

import { FrameReader } from "../../../ui/src/fetching.js";
import type { Answer, FeedListener, Host } from "../../../ui/src/host.js";
import { Proof } from "../connection/proof.js";
import { ConfigurationError } from "../tools/errors.js";

/** No bytes for so long: the connection is dead. The server says something every 15 s. */
export const SILENCE_MS = 50_000;
export const ANSWER_MS = 60_000;

/** Who asks, and where. */
export interface Access {
  readonly origin: string;
  readonly token: string;
}

export class NodeHost implements Host {
  readonly kind = "vscode";
  readonly access: Access;
  readonly #proof: Proof;
  #proven: string;

  constructor(access: Access) {
    this.access = access;
    this.#proof = new Proof(access.origin, access.token);
    this.#proven = access.origin;
  }

  /** A server that did not prove itself is told as an answer of its own, 421: it is there, and it is not the one. */
  async request(method: "GET" | "POST", path: string, body?: unknown): Promise<Answer> {
    try {
      const answer = await this.#ask(method, path, body);
      this.#proof.seen();
      return answer;
    } catch (error) {
      this.#proof.lost();
      if (!(error instanceof ConfigurationError)) throw error;
      const told = { detail: error.message, hint: error.hint, state: "unproven" };
      return { status: 421, body: told, serverTime: null };
    }
  }

  async #ask(method: "GET" | "POST", path: string, body?: unknown): Promise<Answer> {
    const options: RequestInit = {
      method,
      redirect: "error",
      headers: { ...(await this.#headers(false)), Accept: "application/json" },
      signal: AbortSignal.timeout(ANSWER_MS),
    };
    if (method === "POST") {
      options.headers = { ...options.headers, "Content-Type": "application/json" };
      options.body = JSON.stringify(body ?? {});
    }
    const answer = await fetch(this.#address(path), options);
    const text = await answer.text();
    const time = Date.parse(answer.headers.get("Date") ?? "");
    return { status: answer.status, body: parsed(text), serverTime: Number.isNaN(time) ? null : time };
  }

  feed(path: string, lastEventId: string | null, listener: FeedListener): () => void {
    const ending = new AbortController();
    let over = false;
    let silence: ReturnType<typeof setTimeout> | undefined;
    const end = (status: number) => {
      if (over) return;
      over = true;
      clearTimeout(silence);
      ending.abort();
      listener.closed(status);
    };
    const alive = () => {
      clearTimeout(silence);
      silence = setTimeout(() => end(0), SILENCE_MS);
    };
    const read = async () => {
      alive();
      // Proven each time: a stream ends when its server does, and what answers then may be another.
      const headers: Record<string, string> = { ...(await this.#headers(true)), Accept: "text/event-stream" };
      if (lastEventId !== null) headers["Last-Event-ID"] = lastEventId;
      const answer = await fetch(this.#address(path), { redirect: "error", headers, signal: ending.signal });
      if (over) return;
      if (!answer.ok || !answer.body) return end(answer.ok ? 0 : answer.status);
      listener.open();
      const decoder = new TextDecoder();
      const frames = new FrameReader(listener);
      for await (const piece of answer.body) {
        if (over) return;
        alive();
        frames.take(decoder.decode(piece, { stream: true }));
      }
      end(0);
    };
    read().catch(() => end(0));
    return () => {
      over = true;
      clearTimeout(silence);
      ending.abort();
    };
  }

  waiting(): void {}

  /** Nothing is remembered here: a chat remembers in its own view. */
  recall(): string | null {
    return null;
  }

  remember(): void {}

  /** There is no token in them before the server is proven. */
  async #headers(anew: boolean): Promise<Record<string, string>> {
    this.#proven = await this.#proof.ensure(anew);
    return { Authorization: `Bearer ${this.access.token}` };
  }

  #address(path: string): string {
    const url = new URL(path, this.#proven);
    if (url.origin !== this.#proven) throw new Error("The path leads to another server.");
    return url.href;
  }
}

function parsed(text: string): unknown {
  try {
    return text === "" ? null : JSON.parse(text);
  } catch {
    return null; // A proxy's page in between: the status says enough.
  }
}
