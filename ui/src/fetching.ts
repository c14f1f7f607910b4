// Requests and event streams over fetch, for every host: a browser's page, another team's page, the editor's Node. Knows
// nothing of who asks: the cookie or the token is given. It opens nothing again by itself and keeps nothing of what passes.

import type { Answer, FeedListener } from "./host";

/** No bytes for so long: the connection is dead, whatever the browser believes. The server says something every 15 s. */
export const SILENCE_MS = 50_000;
/** An answer that takes longer is lost: who asked is told, instead of waiting for good. */
export const ANSWER_MS = 60_000;

/** How a host reaches its server. */
export interface Way {
  /** The whole address of a path of the server. */
  address(path: string): string;
  headers(): Promise<Record<string, string>>;
  /** How every request is made: with or without the cookie, whether redirects are followed. */
  options: RequestInit;
  /** How it is sent; left out: by the browser's own fetch. */
  send?(address: string, options: RequestInit): Promise<Response>;
}

export async function ask(way: Way, method: "GET" | "POST", path: string, body?: unknown): Promise<Answer> {
  const headers = { ...(await way.headers()), Accept: "application/json" };
  const options: RequestInit = { ...way.options, method, headers, signal: AbortSignal.timeout(ANSWER_MS) };
  if (method === "POST") {
    options.headers = { ...headers, "Content-Type": "application/json" };
    options.body = JSON.stringify(body ?? {});
  }
  const answer = await (way.send ?? fetch)(way.address(path), options);
  const text = await answer.text();
  return { status: answer.status, body: parsed(text), serverTime: timeOf(answer.headers.get("Date")) };
}

function parsed(text: string): unknown {
  try {
    return text === "" ? null : JSON.parse(text);
  } catch {
    return null; // A proxy's page in between: the status says enough.
  }
}

function timeOf(header: string | null): number | null {
  const time = Date.parse(header ?? "");
  return Number.isNaN(time) ? null : time;
}

/** One stream of server-sent events. Returns how to close it; after that the listener hears nothing. */
export function readFeed(way: Way, path: string, lastEventId: string | null, listener: FeedListener): () => void {
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
    const headers: Record<string, string> = { ...(await way.headers()), Accept: "text/event-stream" };
    if (lastEventId !== null) headers["Last-Event-ID"] = lastEventId;
    const answer = await (way.send ?? fetch)(way.address(path), {
      ...way.options,
      headers,
      signal: ending.signal,
    });
    if (over) return;
    if (!answer.ok || !answer.body) return end(answer.ok ? 0 : answer.status);
    listener.open();
    const reader = answer.body.getReader();
    const decoder = new TextDecoder();
    const frames = new FrameReader(listener);
    for (;;) {
      const { done, value } = await reader.read();
      if (over) return;
      if (done) return end(0);
      alive();
      frames.take(decoder.decode(value, { stream: true }));
    }
  };
  read().catch(() => end(0));

  return () => {
    over = true;
    clearTimeout(silence);
    ending.abort();
  };
}

/** Puts frames together from pieces that end anywhere, also in the middle of a line. */
export class FrameReader {
  readonly #listener: Pick<FeedListener, "frame">;
  #rest = "";
  #id: string | null = null;
  #event = "message";
  #data: string[] = [];

  constructor(listener: Pick<FeedListener, "frame">) {
    this.#listener = listener;
  }

  take(text: string): void {
    const lines = (this.#rest + text).split("\n");
    this.#rest = lines.pop() ?? "";
    for (const line of lines) this.#line(line.endsWith("\r") ? line.slice(0, -1) : line);
  }

  #line(line: string): void {
    if (line === "") {
      const told = { id: this.#id, event: this.#event, data: this.#data.join("\n") };
      const worth = this.#data.length > 0;
      this.#id = null;
      this.#event = "message";
      this.#data = [];
      if (worth) this.#listener.frame(told);
      return;
    }
    const colon = line.indexOf(":");
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "id") this.#id = value;
    else if (name === "event") this.#event = value;
    else if (name === "data") this.#data.push(value);
  }
}
