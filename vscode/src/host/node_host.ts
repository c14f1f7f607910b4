// Requests and event streams to one server with one token, from the editor's Node. The token goes to the origin it was
// given for and to no other: redirects are never followed, and what answers on this machine proves first that it is that
// server. It opens nothing again by itself and keeps nothing.

import { ask, readFeed, type Way } from "../../../ui/src/fetching.js";
import type { Answer, FeedListener, Host } from "../../../ui/src/host.js";
import { ProvenLines } from "../connection/lines.js";
import { ConfigurationError } from "../tools/errors.js";

export { SILENCE_MS } from "../../../ui/src/fetching.js";

/** Who asks, and where. */
export interface Access {
  readonly origin: string;
  readonly token: string;
}

export class NodeHost implements Host {
  readonly kind = "vscode";
  readonly access: Access;
  readonly #lines: ProvenLines;
  readonly #way: Way;

  constructor(access: Access) {
    this.access = access;
    this.#lines = new ProvenLines(access.origin, access.token);
    this.#way = {
      address: (path) => addressAt(access.origin, path),
      headers: async () => ({ Authorization: `Bearer ${access.token}` }),
      options: { redirect: "error" },
      send: (address, options) => this.#lines.fetch(address, options),
    };
  }

  /** A server that did not prove itself is told as an answer of its own, 421: it is there, and it is not the one. */
  async request(method: "GET" | "POST", path: string, body?: unknown): Promise<Answer> {
    try {
      return await ask(this.#way, method, path, body);
    } catch (error) {
      if (!(error instanceof ConfigurationError)) throw error;
      return { status: 421, body: { detail: error.message, hint: error.hint, state: "unproven" }, serverTime: null };
    }
  }

  feed(path: string, lastEventId: string | null, listener: FeedListener): () => void {
    return readFeed(this.#way, path, lastEventId, listener);
  }

  waiting(): void {}

  /** Nothing is remembered here: a chat remembers in its own view. */
  recall(): string | null {
    return null;
  }

  remember(): void {}
}

function addressAt(origin: string, path: string): string {
  const url = new URL(path, origin);
  if (url.origin !== origin) throw new Error("The path leads to another server.");
  return url.href;
}
