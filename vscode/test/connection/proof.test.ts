// A token goes to the server it is from and to nobody who merely took its port: over real HTTP, with and without proof.

import { createHmac } from "node:crypto";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { afterEach, describe, expect, test } from "vitest";
import { ServerApi } from "../../src/connection/index.js";
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
    const message = `assent server proof 1\n${challenge}\n${host}\n${at}\n`;
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
async function standing(answering: Answering, host = "127.0.0.1", port = 0) {
  const told = { tokens: [] as string[], proofs: 0, raw: "" };
  const server = createServer(async (request, response) => {
    response.setHeader("Connection", "close"); // none is left over that a later request could find broken
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
  test("is sent once the server has proven itself, which holds while it answers", async () => {
    const { told, url } = await standing(honest());
    const api = new ServerApi(url, TOKEN);
    await api.me();
    await api.me();
    expect(told).toMatchObject({ proofs: 1, tokens: [`Bearer ${TOKEN}`, `Bearer ${TOKEN}`] });
    const host = new NodeHost({ origin: url, token: TOKEN });
    await host.request("GET", "/my/me");
    await host.request("GET", "/my/me");
    expect(told).toMatchObject({ proofs: 2 });
    await closed(host);
    await api.openStream("p", new URLSearchParams(), {}, new AbortController().signal);
    expect(told).toMatchObject({ proofs: 4 });
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
    expect(await new Proof(`http://localhost:${four.port}`, TOKEN).ensure()).toBe(four.url);
    const six = await standing(honest({ host: "::1" }), "::1");
    expect(await new Proof(`http://localhost:${six.port}`, TOKEN).ensure()).toBe(`http://[::1]:${six.port}`);
    await new ServerApi(`http://localhost:${six.port}`, TOKEN).me();
    expect(six.told.tokens).toHaveLength(1);
    const squatter = await standing("{}");
    await expect(new Proof(`http://localhost:${squatter.port}`, TOKEN).ensure()).rejects.toThrow("did not prove");
  });
});

test("a proof is asked for again after a while", async () => {
  const { told, url } = await standing(honest());
  const proof = new Proof(url, TOKEN, -1);
  await proof.ensure();
  await proof.ensure();
  expect(told.proofs).toBe(2);
});

test.each<[string, string, boolean]>([
  ["http://127.0.0.1:1", TOKEN, true],
  ["http://localhost:1", TOKEN, true],
  ["http://[::1]:1", TOKEN, true],
  ["https://127.0.0.1:1", TOKEN, false],
  ["http://example.com", TOKEN, false],
  ["http://127.0.0.1:1", `${part({ alg: "RS256" })}.e30.x`, false],
  ["http://127.0.0.1:1", `${part(null)}.e30.x`, false],
  ["http://127.0.0.1:1", "opaque", false],
])("at %s only a token that a server's secret signed is proven", (origin, token, needed) => {
  expect(new Proof(origin, token).needed).toBe(needed);
});
