// The chat's and the editor's way to the server: requests and event streams, carried out by the engine with the token it
// was given. It opens nothing again by itself and keeps nothing. `origin` is only a name here: nothing is sent from this
// process.

import type { Answer, FeedListener, Host } from "../../../ui/src/host.js";
import type { Engine } from "./engine.js";

export class EngineHost implements Host {
  readonly kind = "vscode";
  readonly origin: string;
  readonly #engine: Engine;
  readonly #feeds = new Map<number, FeedListener>();
  readonly #ends: (() => void)[];
  static #next = 1;

  constructor(engine: Engine, origin: string) {
    this.#engine = engine;
    this.origin = origin;
    this.#ends = [
      engine.on("server/feedOpened", ({ feed }) => this.#feeds.get(feed)?.open()),
      engine.on("server/feedFrame", ({ feed, id, event, data }) => this.#feeds.get(feed)?.frame({ id, event, data })),
      engine.on("server/feedClosed", ({ feed, status }) => this.#closed(feed, status)),
      engine.onGone(() => {
        for (const feed of [...this.#feeds.keys()]) this.#closed(feed, 0);
      }),
    ];
  }

  /** Rejects only when the server, or the engine, cannot be reached. */
  async request(method: "GET" | "POST", path: string, body?: unknown): Promise<Answer> {
    const sent = body === undefined ? null : (body as Record<string, unknown>);
    const told = await this.#engine.ask("server/request", { method, path, body: sent });
    return { status: told.status, body: told.body, serverTime: told.server_time };
  }

  feed(path: string, lastEventId: string | null, listener: FeedListener): () => void {
    const feed = EngineHost.#next++;
    this.#feeds.set(feed, listener);
    this.#engine.ask("server/openFeed", { feed, path, last_event_id: lastEventId }).catch(() => this.#closed(feed, 0));
    return () => {
      if (this.#feeds.delete(feed)) this.#engine.ask("server/closeFeed", { feed }).catch(() => {});
    };
  }

  waiting(): void {}

  /** Nothing is remembered here: a chat remembers in its own view. */
  recall(): string | null {
    return null;
  }

  remember(): void {}

  dispose(): void {
    for (const end of this.#ends) end();
    for (const feed of this.#feeds.keys()) this.#engine.ask("server/closeFeed", { feed }).catch(() => {});
    this.#feeds.clear();
  }

  #closed(feed: number, status: number): void {
    const listener = this.#feeds.get(feed);
    this.#feeds.delete(feed);
    listener?.closed(status);
  }
}
