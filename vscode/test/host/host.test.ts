// The address, and the watch over a project through the real engine.

import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { Api } from "../../../ui/src/api.js";
import { EngineHost } from "../../src/engine/host.js";
import { isLoopback, linkOf, originOf, tokenProblem } from "../../src/host/address.js";
import { Watch } from "../../src/host/watch.js";
import { ToolHandler } from "../../src/tools/ToolHandler.js";
import { decided, question, SmallServer } from "../editor/small_server.js";
import { Lines, realEngine } from "../engine/real_engine.js";

const { engine } = realEngine();
let server: SmallServer;

beforeEach(async () => {
  server = await SmallServer.open();
  await engine.start();
  await engine.useServer({ server_url: server.origin, token: "secret" });
});

afterEach(async () => {
  await engine.leave();
  await server.close();
});

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

describe("the watch over a project", () => {
  function watch() {
    const heard: string[] = [];
    const news: (() => void)[] = [];
    const tell = (line: string) => {
      heard.push(line);
      for (const each of news.splice(0)) each();
    };
    const host = new EngineHost(engine, server.origin);
    const handler: ToolHandler = new ToolHandler(
      { ask: ({ id }) => tell(`asked ${id}`), over: ({ id }, status) => tell(`over ${id} ${status}`) },
      { started() {}, output() {}, ended() {} },
      new Lines(),
      { approvalTimeoutMs: 300_000 },
    );
    const watching: Watch = new Watch(
      host,
      new Api(host),
      "p",
      handler,
      {
        changed: () => tell(`changed ${watching?.link} ${handler.pendingApprovals.length}`),
        event: (event) => tell(event.kind),
      },
      () => () => {},
    );
    const end = () => {
      watching.end();
      handler.dispose();
      host.dispose();
    };
    const until = async (line: string) => {
      while (!heard.includes(line)) await new Promise<void>((resolve) => news.push(resolve));
    };
    return { watching, handler, heard, until, end };
  }

  test("knows what waits from the list and from the feed, once each", async () => {
    const listed = { ...question("a"), id: "a", status: "pending" };
    server.routes.set("GET /my/approvals", [200, { approvals: [listed], total_count: 1 }]);
    const { handler, heard, until, end } = watch();
    await until("asked a");
    server.send(1, question("a"));
    server.send(2, question("b"));
    await until("asked b");
    expect(handler.pendingApprovals.map((each) => each.id)).toEqual(["a", "b"]);
    expect(handler.pendingApprovals[1]).toMatchObject({
      risk: "MEDIUM",
      digest: "digest of b",
      reasons: ["npm test runs scripts."],
    });
    expect(heard.filter((line) => line === "asked a")).toHaveLength(1);
    server.send(3, decided("a"));
    await until("over a approved");
    expect(handler.isWaiting("a")).toBe(false);
    server.send(4, question("a"));
    server.send(5, decided("never heard of"));
    server.send(6, question("c"));
    await until("asked c");
    expect(handler.pendingApprovals.map((each) => each.id)).toEqual(["b", "c"]);
    end();
  });

  test("asks for the list again after a break, and drops what is not on it any more", async () => {
    const { watching, until, end } = watch();
    await until("changed up 0");
    server.send(1, question("a"));
    await until("asked a");
    server.drop();
    await until("changed down 1");
    await until("over a cancelled");
    expect(watching.link).toBe("up");
    end();
  });

  test("goes on without the list when it cannot be had", async () => {
    server.routes.set("GET /my/approvals", [500, {}]);
    const { until, end } = watch();
    await until("changed up 0");
    server.send(1, question("a"));
    await until("asked a");
    end();
  });

  test("says when nobody is signed in any more", async () => {
    server.streamStatus = 401;
    const { watching, until, end } = watch();
    await until("changed signed-out 0");
    expect(watching.link).toBe("signed-out");
    end();
  });
});
