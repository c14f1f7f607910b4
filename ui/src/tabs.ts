// Tabs of one browser share its few connections to the server (six, for all of them together): a stream held by every tab
// would leave none for an answer. With many tabs, those that nobody looks at stop listening, all but one, which tells
// what waits. A tab that is looked at always listens.

import type { FeedListener } from "./host";

/** So many may listen whatever is in sight: each may load something at the same time. */
export const MOST_LISTENING = 3;
const PREFIX = "assent tab ";

/** The tabs of this browser that show this server, as far as a tab can know. */
export class Tabs {
  readonly #name = PREFIX + crypto.getRandomValues(new Uint32Array(2)).join("-");
  readonly #locks: LockManager | undefined;
  readonly #others: BroadcastChannel | null;
  #announced = false;

  constructor() {
    // Where the page came over plain HTTP from another machine there are no locks: then every tab listens.
    this.#locks = typeof navigator === "undefined" ? undefined : navigator.locks;
    this.#others = this.#locks && typeof BroadcastChannel !== "undefined" ? new BroadcastChannel("assent tabs") : null;
  }

  /** Opens a stream, or says at once that it is closed where this tab is one too many. It is closed when it becomes so. */
  listen(open: (listener: FeedListener) => () => void, listener: FeedListener): () => void {
    if (!this.#locks) return open(listener);
    this.#announce(this.#locks);
    const looking = new AbortController();
    let close: () => void = () => {};
    let over = false;
    const end = () => {
      over = true;
      looking.abort();
      close();
    };
    const check = async () => {
      if (!(await this.#tooMany()) || over) return;
      end();
      listener.closed(0);
    };
    document.addEventListener("visibilitychange", check, { signal: looking.signal });
    this.#others?.addEventListener("message", check, { signal: looking.signal });
    const closed = (status: number) => {
      end();
      listener.closed(status);
    };
    void check().then(() => {
      if (!over) close = open({ ...bound(listener), closed });
      // It may have answered before it returned how to close.
      if (over) close();
    });
    return end;
  }

  /** Held for as long as this tab lives, whatever becomes of it. */
  #announce(locks: LockManager): void {
    if (this.#announced) return;
    this.#announced = true;
    void locks.request(this.#name, () => {
      this.#others?.postMessage("here");
      return new Promise<never>(() => {});
    });
  }

  async #tooMany(): Promise<boolean> {
    if (document.visibilityState === "visible") return false;
    const { held = [] } = (await this.#locks?.query()) ?? {};
    const tabs = held.flatMap(({ name }) => (name?.startsWith(PREFIX) ? [name] : [])).sort();
    // The first by name goes on, so that somebody tells what waits.
    return tabs.length > MOST_LISTENING && tabs[0] !== this.#name;
  }
}

function bound(listener: FeedListener): FeedListener {
  return {
    open: () => listener.open(),
    frame: (frame) => listener.frame(frame),
    closed: (status) => listener.closed(status),
  };
}
