// The chat in a browser tab of the server's own page: signed in by the cookie and its key, on the same origin. Tells what
// waits by the title, the icon, and, where the person turned them on, by notifications and sounds.

import { Alerting } from "./alerting";
import { ask, readFeed, type Way } from "./fetching";
import type { Answer, FeedListener, Host, Waiting } from "./host";
import { PageKey } from "./page_key";
import { isPersonal, storage } from "./storage";
import { Tabs } from "./tabs";

const PREFIX = "byleave.";
const SIGNED_OUT = "signed out";

export class BrowserHost implements Host {
  readonly kind = "browser";
  readonly #store = storage();
  readonly #tabs = new Tabs();
  readonly #key = new PageKey();
  readonly #way: Way = {
    address: (path) => path,
    headers: async () => this.#key.headers(),
    options: { credentials: "same-origin", cache: "no-store" },
  };
  /** Tabs share the cookie: where one signs out, all are. */
  readonly #others = typeof BroadcastChannel === "undefined" ? null : new BroadcastChannel("byleave sign-in");
  /** The person signed out: what they wrote is kept no more, also when a message of theirs comes back late. */
  #left = false;
  onSignedOut: (() => void) | null = null;
  onShowWaiting: ((approvalId: string | null) => void) | null = null;
  readonly alerts = new Alerting({
    kept: {
      getItem: (key) => this.recall(key),
      setItem: (key, value) => this.remember(key, value),
      removeItem: (key) => this.remember(key, null),
    },
    mayTell: () => this.#tabs.tells(),
    show: (approvalId) => this.onShowWaiting?.(approvalId),
  });

  constructor() {
    this.#others?.addEventListener("message", ({ data }) => {
      if (data !== SIGNED_OUT) return;
      this.#left = true;
      this.onSignedOut?.();
      this.forget();
    });
    // A notification was tapped while the page is open.
    navigator.serviceWorker?.addEventListener("message", ({ data }) => {
      if (typeof data?.show === "string" && data.show.startsWith("#/")) location.hash = data.show;
    });
    // Brought back as it was, it would show their conversation to whoever presses Back.
    window.addEventListener("pageshow", ({ persisted }) => {
      if (!persisted || !this.#key.hasLeft()) return;
      this.#left = true;
      this.onSignedOut?.();
    });
  }

  async request(method: "GET" | "POST", path: string, body?: unknown): Promise<Answer> {
    for (;;) {
      const sent = this.#key.current();
      const answer = await ask(this.#way, method, path, body);
      // Asked again only when the person signed in anew in another tab meanwhile: the cookie was new, and the key old.
      if (answer.status !== 401 || !this.#key.refused(sent)) return answer;
    }
  }

  feed(path: string, lastEventId: string | null, listener: FeedListener): () => void {
    return this.#tabs.listen(path, lastEventId, (last, heard) => this.#read(path, last, heard), listener);
  }

  #read(path: string, last: string | null, listener: FeedListener): () => void {
    const sent = this.#key.current();
    const closed = (status: number) => listener.closed(status === 401 && this.#key.refused(sent) ? 0 : status);
    return readFeed(this.#way, path, last, { ...listener, closed });
  }

  waiting(waiting: Waiting): void {
    document.title = waiting.count > 0 ? `(${waiting.count}) Byleave` : "Byleave";
    drawIcon(waiting.count);
    this.alerts.hear(waiting);
  }

  recall(key: string): string | null {
    return this.#store.getItem(PREFIX + key);
  }

  remember(key: string, value: string | null): void {
    if (value === null || (this.#left && isPersonal(key))) this.#store.removeItem(PREFIX + key);
    else this.#store.setItem(PREFIX + key, value);
  }

  readonly forget = (): void => this.#store.forget(PREFIX);

  async signOut(): Promise<void> {
    const { status } = await this.request("POST", "/signout", {});
    // What has ended already is as good; after anything else the session may live on, and nobody must believe otherwise.
    if (status >= 400 && status !== 401) throw new Error(`signing out was answered with ${status}`);
    this.#left = true;
    this.#key.forget();
    this.forget();
    this.#others?.postMessage(SIGNED_OUT);
  }
}

/** The icon with how many wait, drawn as a picture in its own address. */
export function iconAddress(count: number): string {
  const badge =
    count > 0
      ? `<circle cx="22" cy="22" r="10" fill="#c8321f"/><text x="22" y="27" font-family="sans-serif" font-size="14" font-weight="700" text-anchor="middle" fill="#fff">${count > 9 ? "9+" : count}</text>`
      : "";
  const mark = `<rect width="32" height="32" rx="7" fill="#1d5fae"/><path d="M8 17l5.5 5.5L24 11" fill="none" stroke="#fff" stroke-width="4" stroke-linecap="round" stroke-linejoin="round"/>`;
  const picture = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32">${mark}${badge}</svg>`;
  return `data:image/svg+xml,${encodeURIComponent(picture)}`;
}

function drawIcon(count: number): void {
  let link = document.querySelector<HTMLLinkElement>('link[rel="icon"]');
  if (!link) {
    link = document.createElement("link");
    link.rel = "icon";
    document.head.append(link);
  }
  const address = iconAddress(count);
  if (link.href !== address) link.href = address;
}
