// A token goes to the server it is from and to nobody who merely took its port: over real HTTP, with and without proof.

import { createHmac } from "node:crypto";
import { createServer, type Server } from "node:http";
import { type AddressInfo, createServer as createRaw } from "node:net";
import { afterEach, describe, expect, test, vi } from "vitest";
import { ServerApi } from "../../src/connection/index.js";
import { ProvenLines } from "../../src/connection/lines.js";
import { Proof } from "../../src/connection/proof.js";
import { NodeHost } from "../../src/host/node_host.js";
import { ConfigurationError, UnreachableError } from "../../src/tools/errors.js";

const SECRET = "the server's own secret, long enough to be one";
const part = (value: unknown) => Buffer.from(JSON.stringify(value)).toString("base64url");
const claims = `${part({ alg: "HS256", typ: "JWT" })}.${part({ sub: "alice" })}`;
const signed = (secret: string) => createHmac("sha256", secret).update(claims).digest();
const TOKEN = `${claims}.${signed(SECRET).toString("base64url")}`;

interface Said {
  readonly secret?: string;
  readonly host?: string;
  readonly port?: number;
}
type Answering = number | string | ((body: { challenge: string }, port: number) => object);

function honest({ secret = SECRET, host = "127.0.0.1", port }: Said = {}): Answering {
  return ({ challenge }, here) => {
    const at = port ?? here;
    const message = `byleave server proof 1\n${challenge}\n${host}\n${at}\n`;
    return { host, port: at, proof: createHmac("sha256", signed(secret)).update(message).digest("hex") };
  };
}

const running: Server[] = [];
afterEach(async () => {
  for (const server of running.splice(0)) await stop(server);
});

async function stop(server: Server): Promise<void> {
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
}

/** Something at a port: how it answers when it is to prove itself, and everything it was told. */
async function standing(answering: Answering, host = "127.0.0.1", port = 0, closes = false) {
  const told = { tokens: [] as string[], proofs: 0, raw: "" };
  const server = createServer(async (request, response) => {
    if (request.url === "/next") return; // a test answers it
    if (closes) response.setHeader("Connection", "close");
    let text = "";
    for await (const piece of request) text += String(piece);
    told.raw += `${request.rawHeaders.join(" ")} ${request.url} ${text}`;
    if (request.url !== "/proof") {
      told.tokens.push(request.headers.authorization ?? "");
      const feed = request.url?.includes("stream");
      response.writeHead(200, { "Content-Type": feed ? "text/event-stream" : "application/json" });
      response.end(feed ? ": hello\n\n" : "{}");
      return;
    }
    told.proofs += 1;
    const at = (server.address() as AddressInfo).port;
    if (typeof answering === "number") response.writeHead(answering).end();
    else response.end(typeof answering === "string" ? answering : JSON.stringify(answering(JSON.parse(text), at)));
  });
  running.push(server);
  await new Promise<void>((resolve) => server.listen(port, host, resolve));
  const at = (server.address() as AddressInfo).port;
  return { ...told, told, server, port: at, url: `http://127.0.0.1:${at}` };
}

const closed = (host: NodeHost) =>
  new Promise<number>((resolve) => {
    host.feed("/my/projects/p/chat/stream?execute=false", null, { open() {}, frame() {}, closed: resolve });
  });

describe("a token", () => {
  test("is sent on a connection that has proven itself, which holds while that is open", async () => {
    const { told, url } = await standing(honest());
    const api = new ServerApi(url, TOKEN);
    await api.me();
    await api.me();
    expect(told).toMatchObject({ proofs: 1, tokens: [`Bearer ${TOKEN}`, `Bearer ${TOKEN}`] });
    const host = new NodeHost({ origin: url, token: TOKEN });
    await host.request("GET", "/my/me");
    await host.request("GET", "/my/me");
    expect(told).toMatchObject({ proofs: 2 });
    const feed = await api.openStream("p", new URLSearchParams(), {}, new AbortController().signal);
    await api.me();
    expect(told).toMatchObject({ proofs: 3 }); // the feed has the first one for itself
    await feed.body?.cancel();
    await closed(host);
    await Promise.all([api.me(), api.me()]);
    expect(told.tokens).toHaveLength(9);
  });

  test.each<[string, Answering]>([
    ["another secret", honest({ secret: "a guess of somebody who cannot read it" })],
    ["the real server's proof from another port", honest({ port: 9 })],
    ["the real server's proof from another loopback address", honest({ host: "127.0.0.2" })],
    ["the real server's proof from the other family", honest({ host: "::1" })],
    ["a proof that is none", () => ({ host: "127.0.0.1", port: 1, proof: "00" })],
    ["a host that is none", () => ({ host: "a b", port: 1, proof: "00" })],
    ["something else", () => ({ what: "is this" })],
    ["nothing", "null"],
    ["a page", "<html>"],
    ["not found", 404],
    ["a redirect", 302],
  ])("is not sent to who has %s", async (_, answering) => {
    const { told, url } = await standing(answering);
    const api = new ServerApi(url, TOKEN);
    await expect(api.me()).rejects.toThrow(ConfigurationError);
    const signal = new AbortController().signal;
    await expect(api.openStream("p", new URLSearchParams(), {}, signal)).rejects.toThrow("did not prove");
    const host = new NodeHost({ origin: url, token: TOKEN });
    const answer = await host.request("GET", "/my/me");
    expect(answer).toMatchObject({ status: 421, body: { hint: expect.stringContaining("port") } });
    expect(await closed(host)).toBe(0);
    expect(told.tokens).toEqual([]);
    expect(told.raw).not.toContain(TOKEN.split(".")[2]);
  });

  test("is not sent to what stands there after a restart before that has proven itself", async () => {
    const first = await standing(honest());
    const api = new ServerApi(first.url, TOKEN);
    const host = new NodeHost({ origin: first.url, token: TOKEN });
    await api.me();
    await host.request("GET", "/my/me");
    await stop(first.server);
    await expect(api.me()).rejects.toThrow(UnreachableError);
    await expect(host.request("GET", "/my/me")).rejects.toThrow();
    const squatter = await standing("{}", "127.0.0.1", first.port);
    await expect(api.me()).rejects.toThrow("did not prove");
    expect(await host.request("GET", "/my/me")).toMatchObject({ status: 421 });
    expect(squatter.told.tokens).toEqual([]);
    await stop(squatter.server);
    const again = await standing(honest(), "127.0.0.1", first.port);
    await api.me();
    expect(await host.request("GET", "/my/me")).toMatchObject({ status: 200 });
    expect(again.told.tokens).toHaveLength(2);
  });

  test("is not sent to who takes the port right after the server's end, nor trusted for its own answers", async () => {
    const first = await standing(honest());
    const api = new ServerApi(first.url, TOKEN);
    const host = new NodeHost({ origin: first.url, token: TOKEN });
    await api.me();
    await host.request("GET", "/my/me");
    await stop(first.server);
    const thief = await standing("{}", "127.0.0.1", first.port);
    for (let time = 0; time < 2; time += 1) {
      await expect(api.me()).rejects.toThrow("did not prove");
      expect(await host.request("GET", "/my/me")).toMatchObject({ status: 421 });
      expect(await closed(host)).toBe(0);
    }
    expect(thief.told.tokens).toEqual([]);
  });

  test("is not sent where every answer ends its connection, so that none can be proven", async () => {
    const { told, url } = await standing(honest(), "127.0.0.1", 0, true);
    await expect(new ServerApi(url, TOKEN).me()).rejects.toThrow(UnreachableError);
    await expect(new ServerApi(url, TOKEN).me()).rejects.toThrow(UnreachableError);
    expect(told).toMatchObject({ proofs: 2, tokens: [] });
  });

  test("goes on over a new connection when the server closed the one nobody used", async () => {
    const { server, told, url } = await standing(honest());
    const api = new ServerApi(url, TOKEN);
    await api.me();
    server.closeIdleConnections();
    await api.me();
    expect(told.tokens).toHaveLength(2);
  });

  test("of a proof only so much is read as one can have", async () => {
    let sent = 0;
    const flood = createServer((request, response) => {
      request.resume();
      const piece = Buffer.alloc(1 << 20, 97);
      const more = () => {
        for (let room = true; room && sent < 64 << 20; sent += piece.length) room = response.write(piece);
      };
      response.on("drain", more);
      more();
    });
    running.push(flood);
    await new Promise<void>((resolve) => flood.listen(0, "127.0.0.1", resolve));
    const url = `http://127.0.0.1:${(flood.address() as AddressInfo).port}`;
    await expect(new ServerApi(url, TOKEN).me()).rejects.toThrow("did not prove");
    expect(sent).toBeLessThan(32 << 20);
  });

  test("is not waited for where the answer is no answer", async () => {
    const raw = createRaw((socket) => {
      socket.on("error", () => {});
      socket.once("data", () =>
        socket.write("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n"),
      );
    });
    await new Promise<void>((resolve) => raw.listen(0, "127.0.0.1", resolve));
    const url = `http://127.0.0.1:${(raw.address() as AddressInfo).port}`;
    await expect(new ServerApi(url, TOKEN).me()).rejects.toThrow(UnreachableError);
    await new Promise((resolve) => raw.close(resolve));
  });

  test("waits for a server that is just ending", async () => {
    const { told, url } = await standing(503);
    await expect(new ServerApi(url, TOKEN).me()).rejects.toThrow(UnreachableError);
    expect(told.tokens).toEqual([]);
  });

  test("goes to a server in a container, which knows its port alone", async () => {
    const { told, url } = await standing(honest({ host: "172.17.0.2" }));
    await new ServerApi(url, TOKEN).me();
    expect(told.tokens).toHaveLength(1);
  });

  test("goes by number where the address is a name, whichever answers", async () => {
    const four = await standing(honest());
    await new ServerApi(`http://localhost:${four.port}`, TOKEN).me();
    expect(four.told.tokens).toHaveLength(1);
    const six = await standing(honest({ host: "::1" }), "::1");
    await new ServerApi(`http://localhost:${six.port}`, TOKEN).me();
    expect(six.told.tokens).toHaveLength(1);
    const squatter = await standing("{}");
    await expect(new ServerApi(`http://localhost:${squatter.port}`, TOKEN).me()).rejects.toThrow("did not prove");
    expect(squatter.told.tokens).toEqual([]);
  });
});

test.each(["localhost.", "127.1", "0.0.0.0", "[::ffff:127.0.0.1]", "2130706433", "0"])(
  "%s is this machine too, so what answers there proves itself",
  async (name) => {
    const real = await standing(honest());
    await new ServerApi(`http://${name}:${real.port}`, TOKEN).me();
    expect(real.told).toMatchObject({ proofs: 1, tokens: [`Bearer ${TOKEN}`] });
    const squatter = await standing("{}");
    await expect(new ServerApi(`http://${name}:${squatter.port}`, TOKEN).me()).rejects.toThrow("did not prove");
    expect(squatter.told.tokens).toEqual([]);
  },
);

describe("a name that is not localhost", () => {
  const leading = (...numbers: string[]) => vi.fn(async () => numbers);
  afterEach(() => {
    vi.unstubAllGlobals();
  });

  test.each([
    ["this machine", ["127.0.0.1"]],
    ["this machine in the long form", ["::ffff:127.0.0.1"]],
    ["this machine, which has other addresses too", ["127.0.0.1", "192.0.2.1"]],
    ["this machine at a number where nobody listens, and at another", ["127.0.0.9", "127.0.0.1"]],
  ])("and leads to %s is this machine, so what answers there proves itself", async (_, numbers) => {
    const real = await standing(honest());
    const name = `byleave.test:${real.port}`;
    const lines = new ProvenLines(`http://${name}`, TOKEN, leading(...numbers));
    const init = { headers: { Authorization: `Bearer ${TOKEN}` } };
    for (let time = 0; time < 2; time += 1) {
      expect(await (await lines.fetch(`http://${name}/my/me`, init)).json()).toEqual({});
    }
    expect(real.told).toMatchObject({ proofs: 1, tokens: [`Bearer ${TOKEN}`, `Bearer ${TOKEN}`] });
    expect(real.told.raw).toContain(name); // as fetch would: a server may answer to names it knows only
    const squatter = await standing("{}");
    const taken = new ProvenLines(`http://byleave.test:${squatter.port}`, TOKEN, leading(...numbers));
    await expect(taken.fetch(`http://byleave.test:${squatter.port}/my/me`, init)).rejects.toThrow("did not prove");
    expect(squatter.told.tokens).toEqual([]);
  });

  test("is looked up for each new connection, for the next time it may lead here", async () => {
    const real = await standing(honest());
    const asked = vi.fn(async () => new Response("{}"));
    vi.stubGlobal("fetch", asked);
    const answers = [
      Promise.resolve(["192.0.2.1"]),
      Promise.reject(new Error("ENOTFOUND")),
      Promise.resolve(["::1%lo"]),
    ];
    const lines = new ProvenLines(
      `http://byleave.test:${real.port}`,
      TOKEN,
      () => answers.shift() ?? leading("127.0.0.1")(),
    );
    for (let time = 1; time <= 3; time += 1) {
      await lines.fetch(`http://byleave.test:${real.port}/my/me`, {}); // elsewhere, or nobody here knows it: its usual way
      expect(asked).toHaveBeenCalledTimes(time);
    }
    await lines.fetch(`http://byleave.test:${real.port}/my/me`, {});
    expect([asked.mock.calls.length, real.told.proofs]).toEqual([3, 1]);
  });

  test("is not waited for by who does not want the answer any more; and a number is not looked up", async () => {
    const stop = new AbortController();
    const lines = new ProvenLines("http://byleave.test", TOKEN, () => new Promise(() => {}));
    const waiting = lines.fetch("http://byleave.test/my/me", { signal: stop.signal });
    stop.abort(new Error("not any more"));
    await expect(waiting).rejects.toThrow("not any more");
    await expect(lines.fetch("http://byleave.test/my/me", { signal: stop.signal })).rejects.toThrow("not any more");
    vi.stubGlobal("fetch", async () => new Response("{}"));
    const lookup = leading("127.0.0.1");
    for (const origin of ["http://192.0.2.1", "http://[::2]:1"]) {
      await new ProvenLines(origin, TOKEN, lookup).fetch(`${origin}/my/me`, {});
    }
    expect(lookup).not.toHaveBeenCalled();
  });

  test("and that the server does not answer to is told as that", async () => {
    const { told, url } = await standing(421);
    const refused = new ServerApi(url, TOKEN).me();
    await expect(refused).rejects.toThrow("says that this is not its name");
    await expect(refused).rejects.toMatchObject({ hint: expect.stringContaining("BYLEAVE_ALLOWED_HOSTS") });
    expect(told.tokens).toEqual([]);
  });
});

test("a redirect, and an answer no program may give, are no answers; one without a body is one", async () => {
  const { server, url } = await standing(honest());
  const lines = new ProvenLines(url, TOKEN);
  const answers = [302, 302, 204, 999];
  server.prependListener("request", (request, response) => {
    if (request.url === "/next") response.writeHead(answers.shift() ?? 500, { Location: "/my/me" }).end();
  });
  await expect(lines.fetch(`${url}/next`, {})).rejects.toThrow("redirect");
  expect(await lines.fetch(`${url}/next`, { redirect: "manual" })).toMatchObject({ status: 302 });
  expect(await lines.fetch(`${url}/next`, {})).toMatchObject({ status: 204, body: null });
  await expect(lines.fetch(`${url}/next`, {})).rejects.toThrow();
});

test("who does not want the answer any more does not wait for the proof, at no address", async () => {
  const lines = new ProvenLines("http://localhost:9", TOKEN);
  await expect(lines.fetch("http://localhost:9/my/me", { signal: AbortSignal.abort() })).rejects.toThrow("aborted");
});

test.each<[string, string, boolean]>([
  ["http://127.0.0.1:1", TOKEN, true],
  ["http://localhost:1", TOKEN, true],
  ["http://[::1]:1", TOKEN, true],
  ["http://[::]:1", TOKEN, true],
  ["http://127.255.0.1:1", TOKEN, true],
  ["https://127.0.0.1:1", TOKEN, false],
  ["http://127.0.0.1:1", `${part({ alg: "RS256" })}.e30.x`, false],
  ["http://127.0.0.1:1", `${part(null)}.e30.x`, false],
  ["http://127.0.0.1:1", "opaque", false],
])("at %s only a token that a server's secret signed is proven", (origin, token, needed) => {
  expect(new Proof(origin, token).possible).toBe(needed);
});
