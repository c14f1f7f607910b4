// What goes on in a project, for everything outside the chat: whether the server is there, which questions wait, what
// commands print. It reads the feed without executing anything, and asks for the list again when it may have missed some.

import type { ApprovalRequest, ApprovalRequested, ApprovalStatus, FeedEvent } from "@protocol";
import type { Api } from "../../../ui/src/api.js";
import { Feed } from "../../../ui/src/feed.js";
import type { Host } from "../../../ui/src/host.js";

export type Link = "connecting" | "up" | "down" | "signed-out";

/** A question that waits, as the feed or the list told it. */
export interface Asked {
  readonly id: string;
  readonly toolName: string;
  readonly params: Readonly<Record<string, unknown>>;
  readonly risk: "LOW" | "MEDIUM" | "HIGH";
  readonly description: string;
  readonly reasons: readonly string[];
  readonly network: boolean;
  readonly digest: string;
  /** Whether files belong to the question: what they hold, or why nobody could look, must be seen before it is allowed. */
  readonly inspected: boolean;
}

export interface WatchListener {
  /** The link or what waits is another one now. */
  changed(): void;
  asked(question: Asked): void;
  /** A question is over, by whoever. */
  over(question: Asked, status: ApprovalStatus, by: string | null): void;
  event(event: FeedEvent): void;
}

export class Watch {
  readonly #api: Api;
  readonly #projectId: string;
  readonly #listener: WatchListener;
  readonly #feed: Feed;
  readonly #waiting = new Map<string, Asked>();
  readonly #over = new Set<string>();
  #link: Link = "connecting";
  #ended = false;

  /** `wake` calls its listener when trying again at once is worth it; it returns how to stop that. */
  constructor(
    host: Host,
    api: Api,
    projectId: string,
    listener: WatchListener,
    wake: (listener: () => void) => () => void,
  ) {
    this.#api = api;
    this.#projectId = projectId;
    this.#listener = listener;
    this.#feed = new Feed(
      host,
      projectId,
      {
        event: (event) => this.#hear(event),
        up: () => {
          this.#become("up");
          void this.#list();
        },
        down: () => this.#become("down"),
        signedOut: () => this.#become("signed-out"),
        gap: () => {}, // the list is read at every opening
      },
      wake,
    );
  }

  get link(): Link {
    return this.#link;
  }

  /** Oldest first. */
  get waiting(): readonly Asked[] {
    return [...this.#waiting.values()];
  }

  isWaiting(id: string): boolean {
    return this.#waiting.has(id);
  }

  end(): void {
    this.#ended = true;
    this.#feed.end();
  }

  #become(link: Link): void {
    if (this.#link === link) return;
    this.#link = link;
    this.#listener.changed();
  }

  #hear(event: FeedEvent): void {
    if (event.kind === "tool.approval_request") this.#ask(ofEvent(event));
    else if (event.kind === "tool.approval_decided") this.#settle(event.approval_id, event.status, event.decided_by);
    this.#listener.event(event);
  }

  #ask(question: Asked): void {
    if (this.#over.has(question.id) || this.#waiting.has(question.id)) return;
    this.#waiting.set(question.id, question);
    this.#listener.changed();
    this.#listener.asked(question);
  }

  #settle(id: string, status: ApprovalStatus, by: string | null): void {
    this.#over.add(id);
    const question = this.#waiting.get(id);
    if (!question) return;
    this.#waiting.delete(id);
    this.#listener.changed();
    this.#listener.over(question, status, by);
  }

  /** What waits by the server's own word. What came by the feed meanwhile stays. */
  async #list(): Promise<void> {
    const known = new Set(this.#waiting.keys());
    let list: ApprovalRequest[];
    try {
      list = (await this.#api.approvals(this.#projectId)).approvals;
    } catch {
      return; // The stream says so too, and is opened again; then this is asked again.
    }
    if (this.#ended) return;
    const there = new Set(list.map((each) => each.id));
    for (const id of known) if (!there.has(id)) this.#settle(id, "cancelled", null);
    for (const each of list) if (each.status === "pending") this.#ask(ofRequest(each));
  }
}

function ofEvent(event: ApprovalRequested): Asked {
  return asked(event.approval_id, event);
}

function ofRequest(request: ApprovalRequest): Asked {
  return asked(request.id, request);
}

function asked(id: string, told: ApprovalRequest | ApprovalRequested): Asked {
  return {
    id,
    toolName: told.tool_name,
    params: told.tool_params,
    risk: told.risk_level,
    description: told.description,
    reasons: told.findings.filter((each) => each.level !== "LOW").map((each) => each.reason),
    network: told.network,
    digest: told.digest,
    inspected: (told.inspection?.files.length ?? 0) > 0 || (told.inspection?.problem ?? null) !== null,
  };
}
