// What the chat needs of the place it lives in: a browser tab, another team's page, a VS Code webview. The chat itself
// never calls fetch, opens a stream, touches the title, or stores anything except through this. A host never decides
// anything and never keeps what passes through it.

import type { RiskLevel } from "@protocol";

export interface Answer {
  status: number;
  /** The parsed JSON; null for an answer without a body. */
  body: unknown;
  /** The server's clock in milliseconds, when it said. */
  serverTime: number | null;
}

/** One event of the feed: its `id:`, its `event:` and the text of its `data:`. */
export interface Frame {
  id: string | null;
  event: string;
  data: string;
}

export interface FeedListener {
  open(): void;
  frame(frame: Frame): void;
  /** Events may have been missed, though the stream goes on: the record has to be read. */
  missed?(): void;
  /** The stream ended. `status` when the server refused it; 0 when it could not be reached or broke off. */
  closed(status: number): void;
}

/** What waits, for whoever tells the person when the chat is not in sight. */
export interface Waiting {
  count: number;
  /** What the newest question asks, in one line, safe to show. */
  headline: string | null;
  /** Which they are, oldest first. */
  questions: readonly { id: string; risk: RiskLevel }[];
}

/** How the person is told when the chat is not in sight; both are off until they turn them on. */
export interface Alerts {
  notifies(): boolean;
  /** Why it could not be turned on; null when it is as asked. */
  setNotifies(on: boolean): Promise<string | null>;
  /** Why there are none though they were turned on, and what to do; null when nothing is in the way. */
  refusal(): string | null;
  sounds(): boolean;
  setSounds(on: boolean): void;
}

export interface Host {
  readonly kind: "browser" | "embedded" | "vscode";
  /** One request to the server. Rejects only when the server cannot be reached. */
  request(method: "GET" | "POST", path: string, body?: unknown): Promise<Answer>;
  /** One stream of server-sent events; it is not opened again by the host. Returns how to close it. */
  feed(path: string, lastEventId: string | null, listener: FeedListener): () => void;
  /** Called whenever what waits changes. */
  waiting(waiting: Waiting): void;
  /** Small things that outlive a reload: the project, the session, drafts, preferences. Never a secret. */
  recall(key: string): string | null;
  remember(key: string, value: string | null): void;
  /** Forgets what a person wrote and opened here; what they prefer stays. */
  forget?: () => void;
  /** Shows a file of the workspace where the host can; absent where it cannot. */
  openFile?: (path: string, line?: number) => void;
  /** Shows a difference in the host's own viewer; absent where it has none. `approvalId`: the question it belongs to. */
  /** Questions whose difference is open outside the chat, which then does not show it a second time. */
  shownOutside?: { has(approvalId: string): boolean; subscribe(listener: () => void): () => void };
  showDiff?: (title: string, before: string, after: string, approvalId: string | null) => void;
  /** Absent where the host tells the person in its own way. */
  readonly alerts?: Alerts;
  /** Ends the sign-in; absent where the host signs in by itself. */
  signOut?: () => Promise<void>;
  /** Set by the chat: called when the person signed out in another tab. */
  onSignedOut?: (() => void) | null;
  /** Set by the chat: called when the person asked, outside of it, to be taken to a question, or to all of them. */
  onShowWaiting?: ((approvalId: string | null) => void) | null;
}
