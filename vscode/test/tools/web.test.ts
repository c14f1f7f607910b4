// search_web held against the Python client's vectors, with a real server on this machine; and what depends on names, time
// and the editor's own settings.

import { readFileSync } from "node:fs";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { addressOf, isNeverAsked, isPublic } from "../../src/tools/addresses.js";
import {
  ByleaveError,
  ConfigurationError,
  ExecutionCancelled,
  RefusedError,
  ToolFailure,
} from "../../src/tools/errors.js";
import { BoundedWeb } from "../../src/tools/fetching.js";
import { Workspace } from "../../src/tools/Workspace.js";
import { hitsIn, NO_WEB, searchWeb, type WebSettings } from "../../src/tools/web.js";
import { checkedAddress } from "../../src/tools/web_address.js";
import { workspaceWith } from "./places.js";

interface Answer {
  readonly status: number;
  readonly headers: Record<string, string>;
  readonly body: string;
}

interface Exchange {
  readonly settings: Record<string, string>;
  readonly answer: Answer | null;
  readonly expected: Record<string, unknown>;
  readonly seen: readonly unknown[];
}

interface Vectors {
  readonly urls: readonly [string, string | null, string | null][];
  readonly addresses: readonly [string, boolean, boolean][];
  readonly hits: readonly { answer: string; max_results: number; hits: unknown }[];
  readonly exchanges: readonly Exchange[];
}

const vectors = JSON.parse(readFileSync(join(import.meta.dirname, "../vectors/web.json"), "utf8")) as Vectors;
const HEADERS = ["accept", "authorization", "x-subscription-token", "content-type", "cookie"];
const QUERY = { query: "a & b+ü", max_results: 2 };

let server: Server;
let base = "";
let port = 0;
let answer: Answer | null = null;
/** In place of the answer. */
let act: ((request: IncomingMessage, response: ServerResponse) => void) | undefined;
const seen: unknown[] = [];

beforeAll(async () => {
  server = createServer((request, response) => {
    const pieces: Buffer[] = [];
    request.on("data", (piece: Buffer) => pieces.push(piece));
    request.on("end", () => {
      const body = Buffer.concat(pieces).toString();
      const headers = Object.fromEntries(
        HEADERS.flatMap((name) => (name in request.headers ? [[name, request.headers[name]]] : [])),
      );
      seen.push({ method: request.method, path: request.url, headers, body: body === "" ? null : JSON.parse(body) });
      if (act !== undefined) {
        act(request, response);
        return;
      }
      response.writeHead(answer?.status ?? 200, {
        "Content-Type": "application/json",
        "Set-Cookie": "kept=no",
        ...answer?.headers,
      });
      response.end(Buffer.from(answer?.body ?? "", "base64"));
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  port = (server.address() as AddressInfo).port;
  base = `http://127.0.0.1:${port}`;
});

afterEach(() => {
  act = undefined;
  seen.length = 0;
});

afterAll(() => {
  server.closeAllConnections();
  server.close();
});

function settingsOf(given: Record<string, string>): WebSettings {
  const at = (name: string) => given[name]?.replaceAll("{base}", base) ?? null;
  return {
    provider: at("search_provider") as WebSettings["provider"],
    searxngUrl: at("searxng_url"),
    tavilyUrl: at("tavily_url") ?? NO_WEB.tavilyUrl,
    tavilyKey: at("tavily_api_key"),
    braveUrl: at("brave_url") ?? NO_WEB.braveUrl,
    braveKey: at("brave_api_key"),
    allowPrivate: false,
  };
}

function wrong(text: string, keyed: boolean): string | null {
  try {
    checkedAddress("SearXNG", "SETTING", text, keyed);
    return null;
  } catch (error) {
    expect(error).toBeInstanceOf(ConfigurationError);
    expect((error as ByleaveError).hint).toContain("SETTING");
    return (error as Error).message;
  }
}

describe("As the Python client", () => {
  it.each(vectors.urls)("reads the address %s", (text, plain, keyed) => {
    expect([wrong(text, false), wrong(text, true)]).toEqual([plain, keyed]);
  });

  it("judges where an address leads", () => {
    const judged = vectors.addresses.map(([text]) => {
      const address = addressOf(text);
      return [text, address && isPublic(address), address && isNeverAsked(address)];
    });
    expect(judged).toEqual(vectors.addresses);
  });

  it("reads hits out of a stranger's JSON", () => {
    for (const { answer: body, hits, max_results } of vectors.hits) {
      const { results } = JSON.parse(Buffer.from(body, "base64").toString("utf8")) as { results: unknown };
      expect(hitsIn(results, "content", max_results)).toEqual(hits);
    }
  });

  it.each(vectors.exchanges.map((one, at) => [at, one] as const))("asks and understands, case %i", async (_, one) => {
    answer = one.answer;
    let found: unknown;
    try {
      found = { result: await searchWeb(settingsOf(one.settings), QUERY) };
    } catch (error) {
      expect(error).toBeInstanceOf(ByleaveError);
      const { errorType, message, name } = error as ByleaveError;
      found = { error: message, error_type: errorType, kind: name };
    }
    expect(found).toEqual(one.expected);
    expect(seen).toEqual(one.seen);
  });
});

const GOOD: Answer = { status: 200, headers: {}, body: Buffer.from('{"ok": 1}').toString("base64") };

function byName(addresses: string[], allowPrivate = false) {
  const lookups: string[] = [];
  const resolve = async (host: string) => {
    lookups.push(host);
    return addresses.map((address) => ({ address, family: address.includes(":") ? 6 : 4 }));
  };
  const web = new BoundedWeb({ resolve, allowPrivate });
  const ask = (host: string) =>
    web.ask({ name: "SearXNG", method: "GET", url: `http://${host}:${port}/search`, setting: "S", query: { q: "x" } });
  return { ask, lookups };
}

describe("A name", () => {
  it.each(["127.0.0.1", "10.0.0.1", "::1", "fd12::1", "junk", "fe80::1%eth0"])(
    "that leads to %s is refused, also beside a public address, and nobody is asked",
    async (found) => {
      const { ask, lookups } = byName(["1.1.1.1", found]);
      await expect(ask("search.test")).rejects.toThrow(RefusedError);
      await expect(ask("search.test")).rejects.toThrow(`'search.test' leads to ${found}`);
      expect(lookups).toEqual(["search.test", "search.test"]);
      expect(seen).toEqual([]);
    },
  );

  it("may lead to a private address where the owner allows it, but never to where a cloud keeps its credentials", async () => {
    answer = GOOD;
    const { ask, lookups } = byName(["127.0.0.1"], true);
    expect(await ask("search.test")).toEqual({ ok: 1 });
    // One lookup: what was judged is what was connected to.
    expect(lookups).toEqual(["search.test"]);
    await expect(byName(["169.254.169.254"], true).ask("search.test")).rejects.toThrow("never asked");
  });

  it("localhost is this machine, and nobody is asked about it", async () => {
    answer = GOOD;
    const { ask, lookups } = byName(["8.8.8.8"]);
    expect(await ask("LOCALHOST")).toEqual({ ok: 1 });
    expect(lookups).toEqual([]);
  });

  it("that nobody knows is said, as the system has it", async () => {
    const settings = { ...NO_WEB, searxngUrl: "http://no-such-name.invalid/" };
    await expect(searchWeb(settings, QUERY)).rejects.toThrow(
      /SearXNG at no-such-name.invalid could not be reached \(E/,
    );
  });
});

describe("A provider", () => {
  const settings = () => ({ ...NO_WEB, tavilyKey: "key-tell-nobody", tavilyUrl: base });

  it("does not wait for an answer that is none", async () => {
    act = (_, response) => {
      response.socket?.write("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n");
    };
    const web = new BoundedWeb({ seconds: 30 });
    const asking = web.ask({ name: "SearXNG", method: "GET", url: `${base}/search`, setting: "x" });
    await expect(asking).rejects.toThrow("SearXNG at 127.0.0.1 could not be reached");
  });

  it("that does not answer is given up, also in the middle of its answer", async () => {
    for (const begun of [false, true]) {
      act = (_, response) => {
        if (begun) {
          response.write('{"a":');
        }
      };
      const asking = searchWeb(settings(), QUERY, undefined, { seconds: 0.2 });
      await expect(asking).rejects.toThrow("Tavily did not answer within 0.2 s.");
    }
  });

  it("is left when the call is called off", async () => {
    const stop = new AbortController();
    act = () => stop.abort();
    await expect(searchWeb(settings(), QUERY, stop.signal)).rejects.toThrow(ExecutionCancelled);
  });

  it.each([
    ["that breaks off", (_: IncomingMessage, response: ServerResponse) => response.socket?.destroy()],
    [
      "whose compressed answer is torn",
      (_: IncomingMessage, response: ServerResponse) => {
        response.writeHead(200, { "Content-Encoding": "gzip" });
        response.end(Buffer.from([0x1f, 0x8b, 8, 0, 0]));
      },
    ],
    [
      "that breaks off in a compressed answer",
      (_: IncomingMessage, response: ServerResponse) => {
        response.writeHead(200, { "Content-Encoding": "gzip" });
        response.write(Buffer.from([0x1f, 0x8b, 8, 0, 0]), () => response.socket?.destroy());
      },
    ],
    [
      "that sends headers without an end",
      (_: IncomingMessage, response: ServerResponse) => {
        response.socket?.end(`HTTP/1.1 200 OK\r\nX: ${"x".repeat(64 * 1024)}\r\n\r\n{}`);
      },
    ],
  ])("%s is said, without its key", async (_, answering) => {
    act = answering;
    const asking = searchWeb(settings(), QUERY).catch((error: unknown) => error);
    const error = (await asking) as ByleaveError;
    expect(error).toBeInstanceOf(ToolFailure);
    expect(error.message).toMatch(/^Tavily at 127\.0\.0\.1 could not be reached \([A-Z_]+\)\.$/);
    expect(error.sentence).not.toContain("key-tell-nobody");
  });

  it("is asked over TLS where its address says so", async () => {
    const asking = searchWeb({ ...settings(), tavilyUrl: base.replace("http", "https") }, QUERY);
    await expect(asking).rejects.toThrow(/could not be reached/);
    expect(seen).toEqual([]); // a plain server cannot read it
  });
});

it("The workspace searches with the settings as they are then", async () => {
  answer = { ...GOOD, body: Buffer.from('{"results": [{"url": "https://example.org/"}]}').toString("base64") };
  let settings = NO_WEB;
  const workspace = new Workspace(workspaceWith({}), { web: async () => settings });
  await expect(workspace.run("search_web", QUERY)).rejects.toThrow("No web search provider is configured.");
  settings = { ...NO_WEB, searxngUrl: base };
  expect(await workspace.run("search_web", QUERY)).toMatchObject({ results: [{ url: "https://example.org/" }] });
  await expect(workspace.run("search_web", QUERY, { late: () => true })).rejects.toThrow("nothing was run");
  workspace.close();
  const bare = new Workspace(workspaceWith({}));
  await expect(bare.run("search_web", QUERY)).rejects.toThrow("No web search provider is configured.");
  bare.close();
});
