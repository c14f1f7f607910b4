// The feed of one project: one stream at a time, opened again when it ends, from the last event that was heard. Hands on
// every event once and in order, and says when it cannot be sure of that, so that the record is read again.

import type { FeedEvent } from "@protocol";
import { withQuery } from "./api";
import type { Frame, Host } from "./host";

export const FIRST_PAUSE_MS = 500;
export const LONGEST_PAUSE_MS = 15_000;
/** After so long away the record is read instead of every event since. */
export const LONG_AWAY_MS = 10 * 60_000;

export interface FeedHandlers {
  event(event: FeedEvent): void;
  up(): void;
  down(): void;
  signedOut(): void;
  /** Events may have been missed: read the record. Called when the stream is open again. */
  gap(): void;
}

/** Tells when it is worth trying at once: the network is back, or the person looks at the page again. */
export type Wake = (listener: () => void) => () => void;

export class Feed {
  readonly #host: Host;
  readonly #project: string;
  readonly #handlers: FeedHandlers;
  readonly #unwake: () => void;
  #last: number | null = null;
  #tries = 0;
  #close: (() => void) | null = null;
  #retry: ReturnType<typeof setTimeout> | null = null;
  #openedBefore = false;
  #downSince: number | null = null;
  #ended = false;

  constructor(host: Host, project: string, handlers: FeedHandlers, wake: Wake = wakeOfBrowser) {
    this.#host = host;
    this.#project = project;
    this.#handlers = handlers;
    this.#unwake = wake(() => this.#retryNow());
    this.#connect();
  }

  end(): void {
    this.#ended = true;
    this.#unwake();
    if (this.#retry !== null) clearTimeout(this.#retry);
    this.#close?.();
    this.#close = null;
  }

  #connect(): void {
    this.#retry = null;
    // Whether the first event of this stream may be compared with what came before.
    let fresh = true;
    const away = this.#downSince === null ? 0 : Date.now() - this.#downSince;
    if (away > LONG_AWAY_MS) this.#last = null;
    const from = this.#last;
    const path = withQuery(`/my/projects/${encodeURIComponent(this.#project)}/chat/stream`, { execute: false });
    let done = false;
    // A host may answer before it returns how to close.
    const close = this.#host.feed(path, from === null ? null : String(from), {
      open: () => {
        if (this.#ended || done) return;
        this.#tries = 0;
        this.#downSince = null;
        const missed = this.#openedBefore && from === null;
        this.#openedBefore = true;
        this.#handlers.up();
        if (missed) this.#handlers.gap();
      },
      frame: (frame) => {
        if (this.#ended || done) return;
        this.#frame(frame, fresh);
        fresh = false;
      },
      missed: () => {
        if (this.#ended || done) return;
        this.#last = null;
        this.#handlers.gap();
      },
      closed: (status) => {
        if (this.#ended || done) return;
        done = true;
        this.#close = null;
        this.#lost(status);
      },
    });
    if (!done && !this.#ended) this.#close = close;
  }

  #frame(frame: Frame, fresh: boolean): void {
    const id = frame.id === null || !/^\d+$/.test(frame.id) ? null : Number(frame.id);
    if (id !== null && this.#last !== null && id <= this.#last) {
      if (!fresh) return; // a repeat
      // The server counts anew: its record was put back or replaced, and ours is of no use.
      this.#last = id;
      this.#handlers.gap();
      return;
    }
    if (id !== null) this.#last = id;
    const event = read(frame.data);
    if (event) this.#handlers.event(event);
  }

  #lost(status: number): void {
    if (status === 401) {
      this.end();
      this.#handlers.signedOut();
      return;
    }
    this.#downSince ??= Date.now();
    this.#handlers.down();
    const pause = Math.min(FIRST_PAUSE_MS * 2 ** this.#tries, LONGEST_PAUSE_MS);
    this.#tries += 1;
    this.#retry = setTimeout(() => this.#connect(), pause);
  }

  #retryNow(): void {
    if (this.#ended || this.#retry === null) return;
    clearTimeout(this.#retry);
    this.#connect();
  }
}

function read(data: string): FeedEvent | null {
  try {
    const told: unknown = JSON.parse(data);
    return typeof told === "object" && told !== null && "kind" in told ? (told as FeedEvent) : null;
  } catch {
    return null;
  }
}

export function wakeOfBrowser(listener: () => void): () => void {
  const seen = () => {
    if (document.visibilityState === "visible") listener();
  };
  window.addEventListener("online", listener);
  window.addEventListener("pageshow", listener); // back from where the browser had put it aside
  document.addEventListener("visibilitychange", seen);
  return () => {
    window.removeEventListener("online", listener);
    window.removeEventListener("pageshow", listener);
    document.removeEventListener("visibilitychange", seen);
  };
}
