// Requests and event streams to one server with one token, from the editor's Node. The token goes to the origin it was
// given for and to no other: redirects are never followed. It opens nothing again by itself and keeps nothing.

import { FrameReader } from "../../../ui/src/fetching.js";
import type { Answer, FeedListener, Host } from "../../../ui/src/host.js";

/** No bytes for so long: the connection is dead. The server says something every 15 s. */
export const SILENCE_MS = 50_000;
export const ANSWER_MS = 60_000;

/** Who asks, and where. */
export interface Access {
  readonly origin: string;
  readonly token: string;
}

export class NodeHost implements Host {
  readonly kind = "vscode";
  readonly access: Access;

  constructor(access: Access) {
    this.access = access;
  }

  async request(method: "GET" | "POST", path: string, body?: unknown): Promise<Answer> {
    const options: RequestInit = {
      method,
      redirect: "error",
      headers: { ...this.#headers(), Accept: "application/json" },
      signal: AbortSignal.timeout(ANSWER_MS),
    };
    if (method === "POST") {
      options.headers = { ...options.headers, "Content-Type": "application/json" };
      options.body = JSON.stringify(body ?? {});
    }
    const answer = await fetch(this.#address(path), options);
    const text = await answer.text();
    const time = Date.parse(answer.headers.get("Date") ?? "");
    return { status: answer.status, body: parsed(text), serverTime: Number.isNaN(time) ? null : time };
  }

  feed(path: string, lastEventId: string | null, listener: FeedListener): () => void {
    const ending = new AbortController();
    let over = false;
    let silence: ReturnType<typeof setTimeout> | undefined;
    const end = (status: number) => {
      if (over) return;
      over = true;
      clearTimeout(silence);
      ending.abort();
      listener.closed(status);
    };
    const alive = () => {
      clearTimeout(silence);
      silence = setTimeout(() => end(0), SILENCE_MS);
    };
    const read = async () => {
      alive();
      const headers: Record<string, string> = { ...this.#headers(), Accept: "text/event-stream" };
      if (lastEventId !== null) headers["Last-Event-ID"] = lastEventId;
      const answer = await fetch(this.#address(path), { redirect: "error", headers, signal: ending.signal });
      if (over) return;
      if (!answer.ok || !answer.body) return end(answer.ok ? 0 : answer.status);
      listener.open();
      const decoder = new TextDecoder();
      const frames = new FrameReader(listener);
      for await (const piece of answer.body) {
        if (over) return;
        alive();
        frames.take(decoder.decode(piece, { stream: true }));
      }
      end(0);
    };
    read().catch(() => end(0));
    return () => {
      over = true;
      clearTimeout(silence);
      ending.abort();
    };
  }

  waiting(): void {}

  /** Nothing is remembered here: a chat remembers in its own view. */
  recall(): string | null {
    return null;
  }

  remember(): void {}

  #headers(): Record<string, string> {
    return { Authorization: `Bearer ${this.access.token}` };
  }

  #address(path: string): string {
    const url = new URL(path, this.access.origin);
    if (url.origin !== this.access.origin) throw new Error("The path leads to another server.");
    return url.href;
  }
}

function parsed(text: string): unknown {
  try {
    return text === "" ? null : JSON.parse(text);
  } catch {
    return null; // A proxy's page in between: the status says enough.
  }
}
