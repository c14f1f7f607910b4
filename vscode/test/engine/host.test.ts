// The chat's way to the server, through the real engine and over real HTTP.

import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { EngineHost } from "../../src/engine/host.js";
import { SmallServer } from "../editor/small_server.js";
import { until } from "../waiting.js";
import { realEngine } from "./real_engine.js";

const { engine } = realEngine();
let server: SmallServer;
let host: EngineHost;

beforeEach(async () => {
  server = await SmallServer.open();
  await engine.start();
  await engine.useServer({ server_url: server.origin, token: "secret" });
  host = new EngineHost(engine, server.origin);
});

afterEach(async () => {
  host.dispose();
  await engine.leave();
  await server.close();
});

const FEED = "/my/projects/p/chat/stream?execute=false";

describe("a request", () => {
  test("carries the token and JSON, and gives the parsed answer with the server's time", async () => {
    server.routes.set("POST /my/x", [200, { fine: true }]);
    const answer = await host.request("POST", "/my/x", { a: 1 });
    expect(answer).toMatchObject({ status: 200, body: { fine: true } });
    expect(answer.serverTime).toBeGreaterThan(0);
    expect(server.got[0]).toMatchObject({ method: "POST", path: "/my/x", token: "Bearer secret", body: { a: 1 } });
  });

  test("without a body sends an empty object, and an answer that is no JSON is null", async () => {
    server.routes.set("POST /my/x", [502, "<html>"]);
    expect(await host.request("POST", "/my/x")).toMatchObject({ status: 502, body: null });
    expect(server.got[0]?.body).toEqual({});
  });

  test("never follows a redirect: the token is for one server", async () => {
    server.routes.set("GET /my/x", [302, ""]);
    const answer = await host.request("GET", "/my/x").catch(() => null);
    expect(answer?.status ?? 302).toBe(302);
    expect(server.got).toHaveLength(1);
  });

  test.each(["//elsewhere.invalid/my/x", "http://elsewhere.invalid/my/x", "/other"])(
    "to %s is not made",
    async (path) => {
      await expect(host.request("GET", path)).rejects.toMatchObject({ kind: "InvalidParams" });
      expect(server.got).toEqual([]);
    },
  );

  test("to a server that is gone rejects", async () => {
    await server.close();
    await expect(host.request("GET", "/my/me")).rejects.toMatchObject({ kind: "UnreachableError" });
    server = await SmallServer.open();
  });

  test("remembers nothing here", () => {
    host.remember();
    host.waiting();
    expect([host.recall(), host.kind, host.origin]).toEqual([null, "vscode", server.origin]);
  });
});

describe("a feed", () => {
  test("tells its frames, and its end when the server goes", async () => {
    const heard: string[] = [];
    const closed = new Promise<number>((resolve) => {
      host.feed(FEED, "7", {
        open: () => heard.push("open"),
        frame: (frame) => {
          heard.push(`${frame.id} ${frame.event} ${frame.data}`);
          server.drop();
        },
        closed: resolve,
      });
    });
    await server.until(() => server.streams.length === 1);
    expect(server.got[0]?.lastEventId).toBe("7");
    server.send(8, { kind: "chat.run" });
    expect(await closed).toBe(0);
    expect(heard).toEqual(["open", '8 chat.run {"kind":"chat.run"}']);
  });

  test("that is refused tells the status", async () => {
    server.streamStatus = 401;
    const listener = { open() {}, frame() {} };
    expect(await new Promise((closed) => host.feed(FEED, null, { ...listener, closed }))).toBe(401);
    expect(await new Promise((closed) => host.feed("/elsewhere", null, { ...listener, closed }))).toBe(0);
  });

  test("that is closed here ends at the server, and tells nothing more", async () => {
    const [closed, frame] = [vi.fn(), vi.fn()];
    let end = () => {};
    await new Promise<void>((open) => {
      end = host.feed(FEED, null, { open, frame, closed });
    });
    end();
    end();
    await until(() => expect(server.streams).toEqual([]));
    await host.request("GET", "/my/me");
    expect([closed, frame].map((each) => each.mock.calls.length)).toEqual([0, 0]);
  });

  test("of another host is not heard", async () => {
    const other = new EngineHost(engine, server.origin);
    const [mine, theirs] = [vi.fn(), vi.fn()];
    await Promise.all([
      new Promise<void>((open) => host.feed(FEED, null, { open, frame: mine, closed() {} })),
      new Promise<void>((open) => other.feed(FEED, null, { open, frame: theirs, closed() {} })),
    ]);
    other.dispose();
    server.send(1, { kind: "chat.run" });
    await until(() => expect(mine).toHaveBeenCalledTimes(1));
    expect(theirs).not.toHaveBeenCalled();
  });
});
