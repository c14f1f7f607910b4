import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { BearerHost } from "../src/bearer_host";
import { BrowserHost } from "../src/browser_host";
import { FrameReader, SILENCE_MS } from "../src/fetching";
import type { FeedListener, Frame } from "../src/host";
import { storage } from "../src/storage";

const fetching = vi.fn<typeof fetch>();
beforeEach(() => {
  vi.stubGlobal("fetch", fetching);
  localStorage.clear();
});
afterEach(() => {
  vi.unstubAllGlobals();
  vi.restoreAllMocks();
  vi.useRealTimers();
  fetching.mockReset();
});

function hearing() {
  const heard: unknown[] = [];
  const listener: FeedListener = {
    open: () => heard.push("open"),
    frame: (frame: Frame) => heard.push(frame),
    closed: (status) => heard.push(status),
  };
  return { heard, listener };
}

function streaming(...chunks: (string | Uint8Array)[]) {
  const encoder = new TextEncoder();
  return new Response(
    new ReadableStream({
      start(controller) {
        for (const chunk of chunks) controller.enqueue(typeof chunk === "string" ? encoder.encode(chunk) : chunk);
        controller.close();
      },
    }),
  );
}

describe("requests", () => {
  test("the page's requests carry the cookie of this origin, and JSON when they change something", async () => {
    fetching.mockImplementation(
      async () => new Response('{"a":1}', { headers: { Date: "Thu, 01 Jan 2026 12:00:00 GMT" } }),
    );
    const answer = await new BrowserHost().request("POST", "/my/x");
    expect(answer).toEqual({ status: 200, body: { a: 1 }, serverTime: Date.UTC(2026, 0, 1, 12) });
    expect(fetching.mock.calls[0]).toMatchObject([
      "/my/x",
      { method: "POST", credentials: "same-origin", body: "{}", headers: { "Content-Type": "application/json" } },
    ]);
    await new BrowserHost().signOut();
    expect(fetching.mock.lastCall?.[0]).toBe("/signout");
  });

  test("signing out that the server did not confirm is no signing out; one of a session that has ended is", async () => {
    fetching.mockImplementation(async () => new Response("{}", { status: 503 }));
    await expect(new BrowserHost().signOut()).rejects.toThrow("503");
    fetching.mockImplementation(async () => new Response("{}", { status: 401 }));
    await new BrowserHost().signOut();
  });

  test("an answer without a body, or with a stranger's page, is no error of ours", async () => {
    const host = new BrowserHost();
    fetching.mockResolvedValueOnce(new Response(null, { status: 204 }));
    expect(await host.request("GET", "/x")).toEqual({ status: 204, body: null, serverTime: null });
    fetching.mockResolvedValueOnce(new Response("<html>", { status: 502 }));
    expect(await host.request("GET", "/x")).toMatchObject({ status: 502, body: null });
  });

  test("the bearer's requests carry a fresh token and never the cookie", async () => {
    fetching.mockImplementation(async () => new Response("{}"));
    let count = 0;
    const host = new BearerHost({ server: "https://a.example/", token: async () => `token${++count}` });
    await host.request("GET", "/my/me");
    await host.request("POST", "/my/x", { b: 2 });
    expect(fetching.mock.calls[0]).toMatchObject([
      "https://a.example/my/me",
      { credentials: "omit", headers: { Authorization: "Bearer token1" } },
    ]);
    expect(fetching.mock.calls[1]?.[1]).toMatchObject({ body: '{"b":2}', headers: { Authorization: "Bearer token2" } });
    const plain = new BearerHost({ server: "", token: "secret" });
    plain.remember("a", "b");
    await plain.request("GET", "/my/me");
    expect(fetching.mock.lastCall?.[1]).toMatchObject({ headers: { Authorization: "Bearer secret" } });
    expect(JSON.stringify({ ...localStorage })).not.toContain("secret");
    expect(plain.recall("a")).toBe("b");
    plain.remember("a", null);
    expect(plain.recall("a")).toBeNull();
  });

  test("the page around is told what waits, and its title is left alone", () => {
    document.title = "Theirs";
    const told = vi.fn();
    const waiting = { count: 0, headline: null, questions: [] };
    new BearerHost({ server: "", token: "t", onWaiting: told }).waiting(waiting);
    new BearerHost({ server: "", token: "t" }).waiting(waiting);
    expect(told).toHaveBeenCalledWith(waiting);
    expect(document.title).toBe("Theirs");
  });
});

describe("streams", () => {
  test("frames are put together from pieces that end anywhere, also inside a character", async () => {
    const bytes = new TextEncoder().encode("id: 2\nevent: b\ndata: é\n\n");
    const cut = bytes.indexOf(0xc3) + 1;
    fetching.mockResolvedValue(
      streaming(
        ": beat\n\nretry: 1000\n\nid: 1\r\nev",
        "ent: a\r\ndata: {\r\ndata: }\r\n\r\n",
        bytes.slice(0, cut),
        bytes.slice(cut),
      ),
    );
    const { heard, listener } = hearing();
    new BearerHost({ server: "", token: "t" }).feed("/feed", "7", listener);
    await vi.waitFor(() => expect(heard).toContain(0));
    expect(heard).toEqual(["open", { id: "1", event: "a", data: "{\n}" }, { id: "2", event: "b", data: "é" }, 0]);
    expect(fetching.mock.lastCall?.[1]).toMatchObject({ headers: { "Last-Event-ID": "7", Authorization: "Bearer t" } });
  });

  test("a refusal is told with its status, and what cannot be reached as 0", async () => {
    const { heard, listener } = hearing();
    const host = new BrowserHost();
    fetching.mockResolvedValueOnce(new Response("{}", { status: 401 }));
    host.feed("/feed", null, listener);
    await vi.waitFor(() => expect(heard).toEqual([401]));
    fetching.mockRejectedValueOnce(new TypeError("refused"));
    host.feed("/feed", null, listener);
    await vi.waitFor(() => expect(heard).toEqual([401, 0]));
    fetching.mockResolvedValueOnce(new Response(null));
    host.feed("/feed", null, listener);
    await vi.waitFor(() => expect(heard).toEqual([401, 0, 0]));
  });

  test("a connection that says nothing for long is dead, and is closed", async () => {
    vi.useFakeTimers();
    const { heard, listener } = hearing();
    let signal: AbortSignal | null | undefined;
    fetching.mockImplementation(async (_, options) => {
      signal = options?.signal;
      return new Response(
        new ReadableStream({ start: (controller) => controller.enqueue(new TextEncoder().encode(": beat\n\n")) }),
      );
    });
    new BrowserHost().feed("/feed", null, listener);
    await vi.advanceTimersByTimeAsync(SILENCE_MS - 1);
    expect(heard).toEqual(["open"]);
    await vi.advanceTimersByTimeAsync(2);
    expect(heard).toEqual(["open", 0]);
    expect(signal?.aborted).toBe(true);
  });

  test("closed by us, nothing is heard of it any more", async () => {
    for (const answer of [streaming("data: a\n\n"), new Response(null, { status: 500 })]) {
      const { heard, listener } = hearing();
      fetching.mockResolvedValueOnce(answer);
      new BrowserHost().feed("/feed", null, listener)();
      await new Promise((resolve) => setTimeout(resolve, 5));
      expect(heard).toEqual([]);
    }
  });

  test("a field without a value and one nobody knows are no frames", () => {
    const { heard, listener } = hearing();
    new FrameReader(listener).take("data\nother: x\n\nevent: e\n\n");
    expect(heard).toEqual([{ id: null, event: "message", data: "" }]);
  });
});

describe("what is remembered", () => {
  test("it outlives the host, and can be forgotten", () => {
    new BrowserHost().remember("k", "v");
    expect(new BrowserHost().recall("k")).toBe("v");
    new BrowserHost().remember("k", null);
    expect(new BrowserHost().recall("k")).toBeNull();
  });

  test("a browser without storage remembers for as long as the page lives", () => {
    vi.spyOn(Storage.prototype, "setItem").mockImplementation(() => {
      throw new Error("full");
    });
    const kept = storage();
    kept.setItem("a", "b");
    expect(kept.getItem("a")).toBe("b");
    kept.removeItem("a");
    expect(kept.getItem("a")).toBeNull();
  });

  test("what no longer fits takes the place of what was kept before: an older draft must not come back", () => {
    const kept = storage();
    kept.setItem("a", "old");
    const full = vi.spyOn(Storage.prototype, "setItem").mockImplementation(() => {
      throw new Error("full");
    });
    kept.setItem("a", "new");
    expect(kept.getItem("a")).toBe("new");
    expect(storage().getItem("a")).toBeNull();
    full.mockRestore();
    kept.setItem("a", "newer");
    expect(storage().getItem("a")).toBe("newer");
  });

  test("signing out forgets what was written and opened, here and in the other tabs, and keeps what is preferred", async () => {
    fetching.mockImplementation(async () => new Response("{}"));
    const [here, there] = [new BrowserHost(), new BrowserHost()];
    const out = vi.fn();
    there.onSignedOut = out;
    const own = new BearerHost({ server: "", token: "t" });
    for (const host of [here, own]) {
      for (const key of ["draft p s", "sending p new", "session p", "project", "user", "diff"]) host.remember(key, "x");
    }
    await here.signOut();
    await vi.waitFor(() => expect(out).toHaveBeenCalledOnce());
    expect(Object.keys(localStorage).filter((name) => !name.includes("embedded"))).toEqual(["byleave.diff"]);
    // A message that was on its way comes back to who sent it, and that one has left.
    for (const host of [here, there])
      for (const key of ["draft p s", "sending p s"]) host.remember(key, "a secret plan");
    expect(Object.keys(localStorage).filter((name) => !name.includes("embedded"))).toEqual(["byleave.diff"]);
    here.remember("draft p s", null);
    own.forget();
    expect(Object.keys(localStorage)).toEqual(["byleave.diff", "byleave.embedded.diff"]);
  });
});
