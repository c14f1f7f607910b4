// The address, the requests and the watch, over real HTTP.

import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { Api } from "../../../ui/src/api.js";
import { isLoopback, linkOf, originOf, tokenProblem } from "../../src/host/address.js";
import { NodeHost, SILENCE_MS } from "../../src/host/node_host.js";
import { type Asked, Watch } from "../../src/host/watch.js";
import { decided, question, SmallServer } from "../editor/small_server.js";

let server: SmallServer;

beforeEach(async () => {
  server = await SmallServer.open();
});

afterEach(async () => {
  vi.useRealTimers();
  await server.close();
});

const host = () => new NodeHost({ origin: server.origin, token: "secret" });

describe("an address", () => {
  test("is taken as its origin, and nothing with a path, a user or another scheme is taken", () => {
    expect(originOf(" https://byleave.example.com/ ")).toBe("https://byleave.example.com");
    for (const text of ["", "byleave", "ftp://x", "http://u:p@x", "http://x/a", "http://x/?a", "http://x/#a"]) {
      expect(originOf(text)).toBeNull();
    }
  });

  test("of this machine is known by its name", () => {
    for (const name of ["localhost", "a.localhost", "127.0.0.1", "127.9.9.9", "[::1]"]) {
      expect(isLoopback(`http://${name}:1`)).toBe(true);
    }
    for (const name of ["10.0.0.1", "127.0.0.1.example.com", "example.com"]) {
      expect(isLoopback(`http://${name}`)).toBe(false);
    }
  });

  test("a one-time link is told from everything that merely looks like one", () => {
    const link = { origin: "http://127.0.0.1:8477", code: "a-B_9" };
    expect(linkOf(" http://127.0.0.1:8477/signin?code=a-B_9\n")).toEqual(link);
    expect(linkOf("http://127.0.0.1:8477/sign-in?code=a-B_9")).toEqual(link);
    expect(linkOf("HTTPS://Byleave.Example.COM/signin?code=x")?.origin).toBe("https://byleave.example.com");
    for (const text of [
      "",
      "http://127.0.0.1:8477",
      "http://127.0.0.1:8477/signin",
      "http://127.0.0.1:8477/signin?code=",
      "http://127.0.0.1:8477/signin?code=a&b=c",
      "http://127.0.0.1:8477/signin?code=a#b",
      "http://127.0.0.1:8477/x/signin?code=a",
      "http://me@127.0.0.1/signin?code=a",
      "http://127.0.0.1:8477\\@evil.example/signin?code=a",
      "vscode://x/signin?code=a",
      `http://x/signin?code=${"a".repeat(201)}`,
    ]) {
      expect(linkOf(text)).toBeNull();
    }
  });

  test("what cannot be a token is told", () => {
    expect(tokenProblem("")).toContain("Paste");
    expect(tokenProblem("a b")).toContain("no token");
    expect(tokenProblem("eyJ.a.b")).toBeNull();
  });
});

describe("a request", () => {
  test("carries the token and JSON, and gives the parsed answer with the server's time", async () => {
    server.routes.set("POST /my/x", [200, { fine: true }]);
    const answer = await host().request("POST", "/my/x", { a: 1 });
    expect(answer).toMatchObject({ status: 200, body: { fine: true } });
    expect(answer.serverTime).toBeGreaterThan(0);
    expect(server.got[0]).toMatchObject({ method: "POST", path: "/my/x", token: "Bearer secret", body: { a: 1 } });
  });

  test("without a body sends an empty object, and an answer that is no JSON is null", async () => {
    server.routes.set("POST /my/x", [502, "<html>"]);
    expect(await host().request("POST", "/my/x")).toMatchObject({ status: 502, body: null });
    expect(server.got[0]?.body).toEqual({});
  });

  test("never follows a redirect: the token is for one server", async () => {
    server.routes.set("GET /my/x", [302, ""]);
    await expect(host().request("GET", "/my/x")).rejects.toThrow();
  });

  test("to another server is not made", async () => {
    await expect(host().request("GET", "//elsewhere.invalid/my/x")).rejects.toThrow("another server");
  });

  test("nothing is remembered here", () => {
    const made = host();
    made.remember();
    made.waiting();
    expect(made.recall()).toBeNull();
  });
});

describe("a feed", () => {
  test("tells its frames, and its end when the server goes", async () => {
    const heard: string[] = [];
    const closed = new Promise<number>((resolve) => {
      host().feed("/my/projects/p/chat/stream?execute=false", "7", {
        open: () => heard.push("open"),
        frame: (frame) => {
          heard.push(`${frame.id} ${frame.event}`);
          server.drop();
        },
        closed: resolve,
      });
    });
    await server.until(() => server.streams.length === 1);
    expect(server.got[0]?.lastEventId).toBe("7");
    server.send(8, { kind: "chat.run" });
    expect(await closed).toBe(0);
    expect(heard).toEqual(["open", "8 chat.run"]);
  });

  test("that is refused tells the status", async () => {
    server.streamStatus = 401;
    const status = await new Promise<number>((resolve) => {
      host().feed("/my/projects/p/chat/stream", null, { open() {}, frame() {}, closed: resolve });
    });
    expect(status).toBe(401);
  });

  test("that is closed here tells nothing more", async () => {
    const closed = vi.fn();
    const opened = new Promise<void>((resolve) => {
      const end = host().feed("/my/projects/p/chat/stream", null, {
        open: () => {
          end();
          resolve();
        },
        frame: closed,
        closed,
      });
    });
    await opened;
    server.send(1, { kind: "chat.run" });
    await host().request("GET", "/my/me");
    expect(closed).not.toHaveBeenCalled();
  });

  test("that is silent for too long is dead", async () => {
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
    const closed = new Promise<number>((resolve) => {
      host().feed("/my/projects/p/chat/stream", null, {
        open: () => void vi.advanceTimersByTimeAsync(SILENCE_MS + 1),
        frame() {},
        closed: resolve,
      });
    });
    expect(await closed).toBe(0);
  });
});

describe("the watch over a project", () => {
  function watch() {
    const heard: string[] = [];
    const news: (() => void)[] = [];
    const tell = (line: string) => {
      heard.push(line);
      for (const each of news.splice(0)) each();
    };
    const made = host();
    const watching: Watch = new Watch(
      made,
      new Api(made),
      "p",
      {
        changed: () => tell(`changed ${watching?.link} ${watching?.waiting.length}`),
        asked: (asked: Asked) => tell(`asked ${asked.id}`),
        over: (asked, status) => tell(`over ${asked.id} ${status}`),
        event: (event) => tell(event.kind),
      },
      () => () => {},
    );
    const until = async (line: string) => {
      while (!heard.includes(line)) await new Promise<void>((resolve) => news.push(resolve));
    };
    return { watching, heard, until };
  }

  test("knows what waits from the list and from the feed, once each", async () => {
    const listed = { ...question("a"), id: "a", status: "pending" };
    server.routes.set("GET /my/approvals", [200, { approvals: [listed], total_count: 1 }]);
    const { watching, heard, until } = watch();
    await until("asked a");
    server.send(1, question("a"));
    server.send(2, question("b"));
    await until("asked b");
    expect(watching.waiting.map((each) => each.id)).toEqual(["a", "b"]);
    expect(watching.waiting[1]).toMatchObject({
      risk: "MEDIUM",
      digest: "digest of b",
      reasons: ["npm test runs scripts."],
    });
    expect(heard.filter((line) => line === "asked a")).toHaveLength(1);
    server.send(3, decided("a"));
    await until("over a approved");
    expect(watching.isWaiting("a")).toBe(false);
    server.send(4, question("a"));
    server.send(5, decided("never heard of"));
    server.send(6, question("c"));
    await until("asked c");
    expect(watching.waiting.map((each) => each.id)).toEqual(["b", "c"]);
    watching.end();
  });

  test("asks for the list again after a break, and drops what is not on it any more", async () => {
    const { watching, until } = watch();
    await until("changed up 0");
    server.send(1, question("a"));
    await until("asked a");
    server.drop();
    await until("changed down 1");
    await until("over a cancelled");
    expect(watching.link).toBe("up");
    watching.end();
  });

  test("goes on without the list when it cannot be had", async () => {
    server.routes.set("GET /my/approvals", [500, {}]);
    const { watching, until } = watch();
    await until("changed up 0");
    server.send(1, question("a"));
    await until("asked a");
    watching.end();
  });

  test("says when nobody is signed in any more", async () => {
    server.streamStatus = 401;
    const { watching, until } = watch();
    await until("changed signed-out 0");
    expect(watching.link).toBe("signed-out");
  });
});
