// The extension's end of the chat's messages: requests and feeds are carried out by the engine, and their answers sent
// back. Only the routes the chat has a use for are reached: none that gives a way to sign in, none by which a machine
// reports, no stream but a feed, and that never executes. Nothing the chat says is taken on trust.

import type { FromChat, ToChat } from "../../../ui/src/vscode_messages.js";
import type { EngineHost } from "../engine/host.js";

export interface BridgePorts {
  post(message: ToChat): void;
  openFile(path: string, line: number | null): void;
  /** `approvalId`: the question it belongs to, if it waits. */
  showDiff(title: string, before: string, after: string, approvalId: string | null): void;
  run(command: string): void;
  hello(): void;
}

const FEED = /^\/my\/projects\/[^/?#]+\/chat\/stream\?execute=false$/;
// Ids in it hold no `/`, written as such or not: a server would split the path at either.
const ID = "(?:[\\w.~!*'()-]|%(?!2[Ff])[0-9A-Fa-f]{2})+";
const ROUTES = {
  GET: route(
    "me|projects|grants|approvals",
    "approvals/ID/(?:whole|change)",
    "tools/ID(?:/undo)?",
    "projects/ID/(?:agents|machines|policy|audit|audit/verify|tools/available|chat/(?:sessions|messages|runs))",
  ),
  POST: route(
    "projects",
    "grants/ID/revoke",
    "tools/ID/(?:cancel|undo)",
    "projects/ID/(?:check|grants/preview|chat/messages|chat/runs/ID/cancel|approvals/ID/(?:approve|reject))",
  ),
};
const LONGEST = 10_000;
const MOST_FEEDS = 8;

export class Bridge {
  readonly #ports: BridgePorts;
  readonly #feeds = new Map<number, () => void>();
  #host: EngineHost | null = null;

  constructor(ports: BridgePorts) {
    this.#ports = ports;
  }

  /** Who asks from now on; null: nobody. What was open is closed. */
  use(host: EngineHost | null): void {
    if (host === this.#host) return;
    this.closeFeeds();
    this.#host = host;
  }

  closeFeeds(): void {
    for (const close of this.#feeds.values()) close();
    this.#feeds.clear();
  }

  hear(message: FromChat): void {
    switch (message?.type) {
      case "hello":
        // The page was loaded anew: what it had open is nobody's.
        this.closeFeeds();
        this.#ports.hello();
        return;
      case "request":
        void this.#request(message);
        return;
      case "feed":
        this.#feed(message);
        return;
      case "unfeed":
        this.#feeds.get(message.id)?.();
        this.#feeds.delete(message.id);
        return;
      case "open-file":
        if (typeof message.path === "string") this.#ports.openFile(message.path, line(message.line));
        return;
      case "show-diff":
        this.#ports.showDiff(
          String(message.title),
          String(message.before),
          String(message.after),
          typeof message.approvalId === "string" ? message.approvalId : null,
        );
        return;
      case "command":
        this.#ports.run(String(message.command));
        return;
    }
  }

  async #request({ id, method, path, body }: Extract<FromChat, { type: "request" }>): Promise<void> {
    const host = this.#host;
    if (host === null) {
      this.#ports.post({ type: "unreachable", id });
      return;
    }
    if ((method !== "GET" && method !== "POST") || !proper(path, ROUTES[method])) {
      const answer = { status: 400, body: { detail: "The chat asked for something it may not." }, serverTime: null };
      this.#ports.post({ type: "answer", id, answer });
      return;
    }
    try {
      this.#ports.post({ type: "answer", id, answer: await host.request(method, path, body) });
    } catch {
      this.#ports.post({ type: "unreachable", id });
    }
  }

  #feed({ id, path, lastEventId }: Extract<FromChat, { type: "feed" }>): void {
    const host = this.#host;
    const closed = (status: number) => {
      this.#feeds.delete(id);
      this.#ports.post({ type: "feed-closed", id, status });
    };
    if (host === null || !proper(path, FEED) || this.#feeds.size >= MOST_FEEDS) {
      closed(host === null ? 0 : 400);
      return;
    }
    this.#feeds.get(id)?.(); // nobody could close it any more
    const from = lastEventId !== null && /^\d{1,20}$/.test(lastEventId) ? lastEventId : null;
    const close = host.feed(path, from, {
      open: () => this.#ports.post({ type: "feed-open", id }),
      frame: (frame) => this.#ports.post({ type: "feed-frame", id, frame }),
      closed,
    });
    this.#feeds.set(id, close);
  }
}

function route(...forms: string[]): RegExp {
  return new RegExp(`^/my/(?:${forms.join("|").replaceAll("ID", ID)})(?:\\?[^#\\\\]*)?$`);
}

/** A path of the wanted form that stays what it is when it is resolved: no `..`, no second server. */
function proper(path: unknown, form: RegExp): path is string {
  if (typeof path !== "string" || path.length > LONGEST || !form.test(path)) return false;
  const url = new URL(path, "http://server.invalid");
  return url.origin === "http://server.invalid" && url.pathname + url.search === path;
}

function line(value: unknown): number | null {
  return typeof value === "number" && Number.isSafeInteger(value) && value > 0 ? value : null;
}
