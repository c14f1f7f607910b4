// The chat in the editor's sidebar: what it asks of the server goes to the extension as messages, and the extension asks
// with the token, which never comes here. What is remembered is kept by the editor for this view.

import type { Answer, FeedListener, Host } from "./host";
import { isPersonal } from "./storage";
import type { FromChat, Place, ToChat } from "./vscode_messages";

/** What `acquireVsCodeApi()` gives. */
export interface EditorApi {
  postMessage(message: FromChat): void;
  getState(): unknown;
  setState(state: unknown): void;
}

interface Asked {
  resolve(answer: Answer): void;
  reject(reason: Error): void;
}

export class VsCodeHost implements Host {
  readonly kind = "vscode";
  readonly #editor: EditorApi;
  readonly #asked = new Map<number, Asked>();
  readonly #feeds = new Map<number, FeedListener>();
  readonly #kept: Record<string, string>;
  readonly #listeners = new Set<() => void>();
  readonly #stop: () => void;
  #next = 1;
  #place: Place | null = null;
  #openDiffs: ReadonlySet<string> = new Set();
  onShowWaiting: ((approvalId: string | null) => void) | null = null;

  constructor(editor: EditorApi, page: Window) {
    this.#editor = editor;
    this.#kept = texts(editor.getState());
    const heard = (event: MessageEvent<ToChat>) => this.#hear(event.data);
    page.addEventListener("message", heard);
    this.#stop = () => page.removeEventListener("message", heard);
    editor.postMessage({ type: "hello" });
  }

  close(): void {
    this.#stop();
  }

  /** Where the extension stands; null until it has said so. */
  place = (): Place | null => this.#place;

  subscribe = (listener: () => void): (() => void) => {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  };

  run(command: string): void {
    this.#editor.postMessage({ type: "command", command });
  }

  request(method: "GET" | "POST", path: string, body?: unknown): Promise<Answer> {
    const id = this.#next++;
    return new Promise((resolve, reject) => {
      this.#asked.set(id, { resolve, reject });
      const asks = { type: "request", id, method, path } as const;
      this.#editor.postMessage(body === undefined ? asks : { ...asks, body });
    });
  }

  feed(path: string, lastEventId: string | null, listener: FeedListener): () => void {
    const id = this.#next++;
    this.#feeds.set(id, listener);
    this.#editor.postMessage({ type: "feed", id, path, lastEventId });
    return () => {
      if (this.#feeds.delete(id)) this.#editor.postMessage({ type: "unfeed", id });
    };
  }

  /** The extension hears of questions by itself: it must tell of them also when this view was never opened. */
  waiting(): void {}

  recall(key: string): string | null {
    return this.#kept[key] ?? null;
  }

  remember(key: string, value: string | null): void {
    if (value === null) delete this.#kept[key];
    else this.#kept[key] = value;
    this.#editor.setState({ ...this.#kept });
  }

  forget = (): void => {
    for (const key of Object.keys(this.#kept)) if (isPersonal(key)) delete this.#kept[key];
    this.#editor.setState({ ...this.#kept });
  };

  openFile = (path: string, line?: number): void => {
    this.#editor.postMessage({ type: "open-file", path, line: line ?? null });
  };

  showDiff = (title: string, before: string, after: string, approvalId: string | null): void => {
    this.#editor.postMessage({ type: "show-diff", title, before, after, approvalId });
  };

  readonly shownOutside = {
    has: (approvalId: string): boolean => this.#openDiffs.has(approvalId),
    subscribe: (listener: () => void): (() => void) => this.subscribe(listener),
  };

  signOut = async (): Promise<void> => {
    this.run("byleave.signOut");
  };

  #hear(message: ToChat): void {
    switch (message.type) {
      case "place":
        this.#place = message.place;
        for (const listener of this.#listeners) listener();
        return;
      case "open-diffs":
        this.#openDiffs = new Set(message.approvalIds);
        for (const listener of this.#listeners) listener();
        return;
      case "show-waiting":
        this.onShowWaiting?.(null);
        return;
      case "answer":
        this.#answered(message.id)?.resolve(message.answer);
        return;
      case "unreachable":
        this.#answered(message.id)?.reject(new Error("The server cannot be reached."));
        return;
      case "feed-open":
        this.#feeds.get(message.id)?.open();
        return;
      case "feed-frame":
        this.#feeds.get(message.id)?.frame(message.frame);
        return;
      case "feed-closed": {
        const listener = this.#feeds.get(message.id);
        this.#feeds.delete(message.id);
        listener?.closed(message.status);
        return;
      }
    }
  }

  #answered(id: number): Asked | undefined {
    const asked = this.#asked.get(id);
    this.#asked.delete(id);
    return asked;
  }
}

function texts(kept: unknown): Record<string, string> {
  if (typeof kept !== "object" || kept === null) return {};
  return Object.fromEntries(
    Object.entries(kept).filter((pair): pair is [string, string] => typeof pair[1] === "string"),
  );
}
