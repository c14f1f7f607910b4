import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { BearerHost } from "../src/bearer_host";
import { BrowserHost, iconAddress, storage } from "../src/browser_host";
import { FrameReader, SILENCE_MS } from "../src/fetching";
import type { FeedListener, Frame } from "../src/host";

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
    new BearerHost({ server: "", token: "t", onWaiting: told }).waiting({ count: 2, headline: "x" });
    new BearerHost({ server: "", token: "t" }).waiting({ count: 2, headline: "x" });
    expect(told).toHaveBeenCalledWith({ count: 2, headline: "x" });
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

describe("what waits, in a browser", () => {
  function unseen() {
    vi.spyOn(document, "hasFocus").mockReturnValue(false);
  }

  class Notes {
    static permission = "granted";
    static shown: { title: string; body: string; note: Notes }[] = [];
    static requestPermission = async () => Notes.permission;
    onclick: (() => void) | null = null;
    closed = false;
    constructor(title: string, options: { body: string }) {
      Notes.shown.push({ title, body: options.body, note: this });
    }
    close() {
      this.closed = true;
    }
  }

  class Sound {
    static played = 0;
    currentTime = 0;
    destination = {};
    resume = async () => {};
    createOscillator = () => ({
      frequency: { value: 0 },
      connect: (next: unknown) => next,
      start: () => (Sound.played += 1),
      stop() {},
    });
    createGain = () => ({
      gain: { setValueAtTime() {}, linearRampToValueAtTime() {}, exponentialRampToValueAtTime() {} },
      connect: (next: unknown) => next,
    });
  }

  beforeEach(() => {
    Notes.permission = "granted";
    Notes.shown = [];
    Sound.played = 0;
    vi.stubGlobal("Notification", Notes);
    vi.stubGlobal("AudioContext", Sound);
  });

  test("the title and the icon say how many", () => {
    document.head.innerHTML = "";
    const host = new BrowserHost();
    host.waiting({ count: 2, headline: "x" });
    expect(document.title).toBe("(2) Assent");
    const icon = document.querySelector<HTMLLinkElement>('link[rel="icon"]');
    expect(decodeURIComponent(icon?.href ?? "")).toContain(">2<");
    host.waiting({ count: 0, headline: null });
    expect(document.title).toBe("Assent");
    expect(icon?.href).toBe(iconAddress(0));
    expect(decodeURIComponent(iconAddress(12))).toContain("9+");
  });

  test("without being asked for there is neither a notification nor a sound", () => {
    unseen();
    new BrowserHost().waiting({ count: 1, headline: "x" });
    expect([Notes.shown.length, Sound.played]).toEqual([0, 0]);
  });

  test("turned on, both come for what is new while the page is out of sight", async () => {
    const host = new BrowserHost();
    expect(await host.alerts.setNotifies(true)).toBeNull();
    host.alerts.setSounds(true);
    expect([host.alerts.notifies(), host.alerts.sounds(), Sound.played]).toEqual([true, true, 2]);
    vi.spyOn(document, "hasFocus").mockReturnValue(true);
    host.waiting({ count: 1, headline: "in sight" });
    expect(Notes.shown).toEqual([]);
    unseen();
    host.waiting({ count: 2, headline: "new" });
    host.waiting({ count: 2, headline: "new" });
    host.waiting({ count: 1, headline: "fewer" });
    host.waiting({ count: 1, headline: null });
    expect(Notes.shown.map(({ title, body }) => [title, body])).toEqual([
      ["Assent: 2 questions wait", "new"],
      ["Assent: one question waits", ""],
    ]);
    const focus = vi.spyOn(window, "focus").mockImplementation(() => {});
    Notes.shown[0]?.note.onclick?.();
    expect(focus).toHaveBeenCalled();
    expect(Notes.shown[0]?.note.closed).toBe(true);
    await host.alerts.setNotifies(false);
    host.alerts.setSounds(false);
    expect([host.alerts.notifies(), host.alerts.sounds()]).toEqual([false, false]);
  });

  test("a browser that says no, or has none, says why", async () => {
    Notes.permission = "denied";
    expect(await new BrowserHost().alerts.setNotifies(true)).toContain("does not allow");
    vi.stubGlobal("Notification", undefined);
    Reflect.deleteProperty(window, "Notification");
    Reflect.deleteProperty(window, "AudioContext");
    expect(await new BrowserHost().alerts.setNotifies(true)).toContain("no notifications");
    new BrowserHost().alerts.setSounds(true);
    expect(Sound.played).toBe(0);
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
});
