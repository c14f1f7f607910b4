// The client's life against a real HTTP server on this machine.

import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { connectWorkspace, type WorkspaceConnection } from "../../src/connection/connecting.js";
import type { ConnectionState } from "../../src/connection/connection.js";
import { FrameReader, isFeedEvent, ServerApi, SignedOut } from "../../src/connection/index.js";
import {
  CallerError,
  ConfigurationError,
  ConflictError,
  NotFound,
  RefusedError,
  UnreachableError,
} from "../../src/tools/errors.js";
import { FakeClock, FakeLog, FakePrompt, inspectionOf, PROJECT, question, signal, until } from "../tools/fakes.js";
import { temporary, workspaceWith } from "../tools/places.js";
import { json, TestServer } from "./server.js";

let server: TestServer;
let log: FakeLog;
let clock: FakeClock;
let root: string;
let storage: string;
const states: ConnectionState[] = [];
const seen: string[] = [];
const open: { connection: { close(): Promise<void> } }[] = [];

beforeEach(async () => {
  server = await TestServer.start();
  [log, clock, root, storage] = [new FakeLog(), new FakeClock(), workspaceWith({ "a.txt": "x\n" }), temporary()];
  states.length = 0;
  seen.length = 0;
});

afterEach(async () => {
  await Promise.all(open.splice(0).map(({ connection }) => connection.close()));
  await server.stop();
});

async function connected(more: Partial<WorkspaceConnection> = {}) {
  const made = await connectWorkspace({
    serverUrl: `${server.url}/`,
    token: "token",
    projectId: PROJECT,
    folder: root,
    storage,
    log,
    clock,
    policyPlaces: { home: storage },
    onState: (state) => states.push(state),
    onEvent: (_, event) => seen.push(event.kind),
    ...more,
  });
  open.push(made);
  void made.connection.run();
  return made;
}

const kinds = () => states.map((state) => state.kind);
const streaming = () => until(() => kinds().at(-1) === "connected");

describe("A connection", () => {
  it("declares its rules, says who it is, executes what it is told and posts the result", async () => {
    const { api, connection, workspace } = await connected();
    await streaming();
    expect(connection.state).toEqual({ kind: "connected" });
    expect(server.calls("/policy")).toMatchObject([{ method: "PUT", body: expect.stringContaining('"layers":[]') }]);
    const [stream] = server.calls("/chat/stream");
    const query = new URLSearchParams(stream?.path.split("?")[1]);
    expect(query.get("client")).toMatch(/^client_[0-9a-f]{32}$/);
    expect([query.get("workspace"), query.get("isolation")]).toEqual([workspace.root, "bwrap"]);
    expect(stream?.headers).toMatchObject({ authorization: "Bearer token", "byleave-looks": "write_file" });
    expect(stream?.headers).toMatchObject({ "byleave-editor": "vscode" });
    const event = signal("read_file", { path: "a.txt" }, { client_id: api.clientId as string });
    server.send(1, event);
    await until(() => server.calls("/result").length === 1);
    expect(JSON.parse(server.calls("/result")[0]?.body ?? "")).toMatchObject({ result: { content: "x\n" } });
    expect(seen).toEqual(["tool.execution_signal"]);
  });

  it("comes back after a break, from the last event it had, with growing pauses", async () => {
    const { api } = await connected();
    await streaming();
    server.send(7, { kind: "chat.text" });
    await until(() => seen.length === 1);
    server.streams.at(-1)?.end();
    await until(() => kinds().at(-1) === "waiting");
    expect(states.at(-1)).toMatchObject({ why: "The server ended the stream." });
    server.answer("/policy", json(503, { detail: "starting" }), json(503, {}), json(200, {}));
    clock.advance(15_000);
    await until(() => kinds().filter((kind) => kind === "waiting").length === 2);
    clock.advance(15_000);
    await until(() => kinds().filter((kind) => kind === "waiting").length === 3);
    const pauses = states.flatMap((state) => (state.kind === "waiting" ? [state.milliseconds] : []));
    expect(pauses.every((pause) => pause >= 100 && pause <= 15_000)).toBe(true);
    clock.advance(15_000);
    await streaming();
    expect(server.calls("/chat/stream").at(-1)?.headers["last-event-id"]).toBe("7");
    expect(api.clientId).toBeDefined();
  });

  it("keeps its identity and its journal: what could not be delivered is sent on the next connection", async () => {
    const first = await connected();
    await streaming();
    server.answer("/result", json(503, {}));
    const event = signal("read_file", { path: "a.txt" }, { client_id: first.api.clientId as string });
    server.send(1, event);
    for (let tries = 1; tries <= 3; tries += 1) {
      await until(() => server.calls("/result").length === tries);
      await until(() => clock.timers.size > 1 || tries === 3);
      clock.advance(5_000);
    }
    await first.connection.close();
    expect(kinds().at(-1)).toBe("closed");
    server.answer("/result", json(200, {}));
    const again = await connected();
    await until(() => server.calls("/result").length === 4);
    expect(again.api.clientId).toBe(first.api.clientId);
  });

  it("takes silence for death", async () => {
    await connected();
    await streaming();
    server.raw(": beat\n\n");
    await new Promise((resolve) => setTimeout(resolve, 20));
    clock.advance(46_000);
    await until(() => kinds().includes("waiting"));
    expect(log.said("not connected")).toBe(1);
  });

  it.each([
    [401, true],
    [403, false],
    [302, false],
  ])("ends with a clear state at %s", async (status, signedOut) => {
    server.answer("/policy", json(status, { detail: "The token has expired." }));
    const { connection } = await connected();
    await connection.run();
    expect(connection.state).toMatchObject({ kind: "ended", signedOut });
  });

  it("ends where there is no feed, or no such project", async () => {
    server.answer("/policy", json(404, { detail: "no" }));
    server.answer("/chat/stream", json(200, {}));
    const { connection } = await connected();
    await connection.run();
    expect(connection.state).toMatchObject({ kind: "ended", why: expect.stringMatching(/has no feed/) });
    expect(log.said("the server takes no rules of a machine; they hold here all the same")).toBe(1);
  });

  it("hands every event to the one it concerns, and passes over what it does not know", async () => {
    const prompt = new FakePrompt();
    const { api, handler } = await connected({ prompt });
    await streaming();
    const client_id = api.clientId as string;
    const at = new Date().toISOString();
    const base = { timestamp: at, client_id, session_id: "s" };
    server.send(1, question());
    server.send(2, { ...inspectionOf("write_file", { path: "a.txt", content: "y" }), client_id });
    const later = new Date(Date.now() + 60_000).toISOString();
    const undo = { ...base, kind: "tool.undo_request", request_id: "r", tool_id: "t", plan: null, partial: false };
    server.send(3, { ...undo, deadline: later });
    server.send(4, { ...undo, deadline: new Date(Date.now() - 60_000).toISOString() });
    server.send(5, { ...undo, deadline: later, client_id: "client_2" });
    server.send(6, { ...base, kind: "tool.cancel_signal", tool_id: "t" });
    server.send(7, { ...base, kind: "tool.result_ack", tool_id: "t", status: "COMPLETED" } as never);
    server.raw("id: 8\nevent: tool.execution_signal\ndata: {\n\n");
    server.send(9, { kind: "tool.execution_signal", tool_id: "odd", client_id });
    server.send(10, { kind: "tool.from.the.future" });
    const answered = handler.pendingApprovals;
    await until(() => server.calls("/result").length === 1);
    expect(server.calls("/result")[0]?.path).toContain("/tools/odd/result");
    await until(() => server.calls("/undo-report").length === 1 && server.calls("/inspection").length === 1);
    expect(JSON.parse(server.calls("/undo-report")[0]?.body ?? "")).toEqual({
      request_id: "r",
      problem: expect.stringMatching(/Nothing that 't' changed in this workspace is known/),
    });
    expect(handler.pendingApprovals).toHaveLength(1);
    expect(answered.length).toBeLessThan(2);
    const [{ approval_id } = { approval_id: "" }] = handler.pendingApprovals;
    const decided = {
      tool_ids: [],
      status: "approved",
      decided_by: "person:a",
      reason: null,
      scope: null,
      grant_id: null,
    };
    server.send(11, { ...base, ...decided, kind: "tool.approval_decided", approval_id });
    await until(() => handler.pendingApprovals.length === 0);
    server.answer("/undo-report", json(500, {}));
    server.send(12, { ...undo, request_id: "r2", deadline: later });
    await until(() => log.said("undo report not delivered") === 1);
  });

  it("learns what waits for an answer, and goes on where that fails", async () => {
    const { approval_id: id, timestamp: created_at, tool_id, ...rest } = question();
    const waiting = { ...rest, id, project_id: PROJECT, tool_ids: [tool_id], created_at, status: "pending" };
    server.answer("/my/approvals", json(200, { approvals: [waiting], total_count: 1 }));
    const { handler } = await connected({ prompt: new FakePrompt() });
    await until(() => handler.pendingApprovals.length === 1);
    server.answer("/my/approvals", (_, response) => response.writeHead(200).end("no JSON"));
    server.streams.at(-1)?.destroy();
    await until(() => kinds().at(-1) === "waiting");
    clock.advance(15_000);
    await until(() => log.said("could not catch up") === 1);
  });

  it("does not start where another window serves the same folder, or an address is none", async () => {
    await connected();
    await expect(connected()).rejects.toThrow("Another window already works");
    await expect(connected({ serverUrl: "ftp://x", storage: temporary() })).rejects.toThrow(
      "not the address of a server",
    );
    await expect(connected({ token: "no token", storage: temporary() })).rejects.toThrow("characters no token has");
    const settings = { commandTimeoutSeconds: 1 } as never;
    const other = {
      storage: temporary(),
      settings,
      allowedCommands: ["cat"],
      ripgrep: false,
      scanWorker: "x",
    } as const;
    await connected({ ...other, clock: undefined } as never);
    expect(join(root, "a.txt")).toBeDefined();
  });
});

describe("The server's routes", () => {
  it("become typed methods", async () => {
    const api = new ServerApi(server.url, "token");
    await api.me();
    await api.signInLink();
    await api.listProjects();
    await api.createProject("p");
    await api.listAgents("p");
    await api.postMessage("p", { content: "hi" });
    await api.approve("p", "a/b", { decision: "approved" });
    await api.reject("p", "a", { decision: "rejected" });
    await api.confirm("a", { decision: "approved" });
    await api.wholeCall("a");
    await api.change("a");
    await api.previewGrant("p", { tool: "read_file" });
    await api.getTool("t");
    await api.cancel("p", "t");
    await api.postOutput("p", "t", { stream: "stdout", text: "x", sequence: 0 });
    const paths = server.asked.map(({ method, path }) => `${method} ${path}`);
    expect(paths).toContain("POST /my/projects/p/approvals/a%2Fb/approve");
    expect(paths).toContain("POST /my/projects/p/tools/t/output");
    expect(server.asked.every(({ headers }) => headers["byleave-client"] === undefined)).toBe(true);
    expect(() => api.getTool("..")).toThrow(CallerError);
  });

  it("fail with the error that says who can act", async () => {
    const api = new ServerApi(server.url, "token");
    const kinds = [
      [401, SignedOut],
      [403, RefusedError],
      [404, NotFound],
      [409, ConflictError],
      [429, UnreachableError],
      [500, UnreachableError],
      [400, CallerError],
      [301, ConfigurationError],
    ] as const;
    for (const [status, kind] of kinds) {
      server.answer("/my/me", json(status, { detail: "so", hint: "do", state: "DONE" }));
      await expect(api.me()).rejects.toThrow(kind);
      server.answer("/my/me", (_, response) => response.writeHead(status).end("<html>"));
      await expect(api.me()).rejects.toThrow(kind);
    }
    server.answer("/my/me", (_, response) => {
      response.writeHead(200, { "Content-Length": "100" }).write("{");
      setImmediate(() => response.destroy());
    });
    await expect(api.me()).rejects.toThrow(UnreachableError);
    const nobody = new ServerApi("http://127.0.0.1:1", "token");
    await expect(nobody.me()).rejects.toThrow("Cannot reach the server");
    const cause = Object.assign(new Error(), { code: "DEPTH_ZERO_SELF_SIGNED_CERT" });
    expect(api.unreachable(new Error("x", { cause })).message).toMatch(/certificate/);
  });
});

describe("Frames", () => {
  const bytes = (text: string) => new TextEncoder().encode(text);

  it("come out whole however they are cut", () => {
    const text = "id: 1\nevent: a\ndata: x\ndata:y\n\n: beat\n\nid:2\r\nevent: é\r\ndata: 1\r\n\r\ndata\r\r";
    const whole = [
      { id: "1", event: "a", data: "x\ny" },
      { id: "2", event: "é", data: "1" },
      { id: "2", event: "message", data: "" },
    ];
    expect(new FrameReader().feed(bytes(text))).toEqual(whole);
    const reader = new FrameReader();
    const pieces = [...bytes(text)].flatMap((byte) => reader.feed(new Uint8Array([byte])));
    expect(pieces).toEqual(whole);
    expect(() => new FrameReader(10).feed(bytes("data: far too much"))).toThrow(UnreachableError);
  });

  it("are events only when their fields are what they must be", () => {
    const event = signal("read_file", {});
    expect(isFeedEvent(event, event.kind)).toBe(true);
    expect(isFeedEvent(event, "tool.cancel_signal")).toBe(false);
    expect(isFeedEvent({ ...event, bound: { a: 1 } }, event.kind)).toBe(false);
    expect(isFeedEvent({ ...event, deadline: "soon" }, event.kind)).toBe(false);
    expect(isFeedEvent(null, "chat.text")).toBe(false);
    expect(isFeedEvent({ kind: "odd" }, "odd")).toBe(false);
  });
});
