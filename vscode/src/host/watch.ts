// The watch over a project, for everything outside the chat: whether the server is there, and which questions wait. It
// reads the feed without executing anything, and asks for the list again when it may have missed some.

import type { FeedEvent } from "@protocol";
import type { Api } from "../../../ui/src/api.js";
import { Feed } from "../../../ui/src/feed.js";
import type { Host } from "../../../ui/src/host.js";
import type { ToolHandler } from "../tools/ToolHandler.js";

export type Link = "connecting" | "up" | "down" | "signed-out";

export interface WatchListener {
  /** The link is another one now. */
  changed(): void;
  event(event: FeedEvent): void;
}

export class Watch {
  readonly #api: Api;
  readonly #projectId: string;
  readonly #handler: ToolHandler;
  readonly #listener: WatchListener;
  readonly #feed: Feed;
  #link: Link = "connecting";
  #ended = false;

  /** `wake` calls its listener when trying again at once is worth it; it returns how to stop that. */
  constructor(
    host: Host,
    api: Api,
    projectId: string,
    handler: ToolHandler,
    listener: WatchListener,
    wake: (listener: () => void) => () => void,
  ) {
    this.#api = api;
    this.#projectId = projectId;
    this.#handler = handler;
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
    if (event.kind === "tool.approval_request") this.#handler.handleToolApprovalRequest(event);
    else if (event.kind === "tool.approval_decided") this.#handler.handleToolApprovalDecided(event);
    this.#listener.event(event);
  }

  /** Questions that wait by the server's own word. What came by the feed meanwhile stays. */
  async #list(): Promise<void> {
    const known = this.#handler.pendingApprovals;
    try {
      const { approvals } = await this.#api.approvals(this.#projectId);
      if (!this.#ended) this.#handler.settleApprovals(approvals, known);
    } catch {
      // The stream says so too, and is opened again; then this is asked again.
    }
  }
}
