// The chat inside another page: it talks to a server at an address with a bearer token. The token is never stored, and
// the surrounding page's title, icon and address are left alone.

import { Problem } from "./api";
import { ask, readFeed, type Way } from "./fetching";
import type { Answer, FeedListener, Host, Waiting } from "./host";
import { storage } from "./storage";

/** A token, or how to get a fresh one: asked before every request. */
export type Token = string | (() => string | Promise<string>);

export interface BearerOptions {
  /** `https://byleave.example.com`, without a path; "" for the origin of the page. */
  server: string;
  token: Token;
  onWaiting?: ((waiting: Waiting) => void) | undefined;
}

const PREFIX = "byleave.embedded.";

export class BearerHost implements Host {
  readonly kind = "embedded";
  readonly #way: Way;
  readonly #store = storage();
  readonly #onWaiting: ((waiting: Waiting) => void) | undefined;

  constructor({ server, token, onWaiting }: BearerOptions) {
    const fresh = async () => {
      try {
        return typeof token === "function" ? await token() : token;
      } catch {
        // The reason is the surrounding page's own: it may hold anything, and is not for this one to show.
        throw new Problem("The page around this chat gave no token.", 0, "Load it again, or sign in there again.");
      }
    };
    const base = server.replace(/\/+$/, "");
    this.#way = {
      address: (path) => base + path,
      // The server's cookie belongs to its own page: here the token alone says who it is.
      options: { credentials: "omit", cache: "no-store" },
      headers: async () => ({ Authorization: `Bearer ${await fresh()}` }),
    };
    this.#onWaiting = onWaiting;
  }

  request(method: "GET" | "POST", path: string, body?: unknown): Promise<Answer> {
    return ask(this.#way, method, path, body);
  }

  feed(path: string, lastEventId: string | null, listener: FeedListener): () => void {
    return readFeed(this.#way, path, lastEventId, listener);
  }

  waiting(waiting: Waiting): void {
    this.#onWaiting?.(waiting);
  }

  recall(key: string): string | null {
    return this.#store.getItem(PREFIX + key);
  }

  remember(key: string, value: string | null): void {
    if (value === null) this.#store.removeItem(PREFIX + key);
    else this.#store.setItem(PREFIX + key, value);
  }

  readonly forget = (): void => this.#store.forget(PREFIX);
}
