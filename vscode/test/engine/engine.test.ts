// The engine as a child process: the real one wherever it can be made to do what a test needs, else a script of a few
// lines that speaks as one.

import { readFileSync, realpathSync, rmSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { type Engine, EngineError } from "../../src/engine/engine.js";
import { EngineHost } from "../../src/engine/host.js";
import { EngineProblem } from "../../src/engine/program.js";
import { SmallServer } from "../editor/small_server.js";
import { until } from "../waiting.js";
import { PROGRAM, realEngine } from "./real_engine.js";
import { machine, script } from "./surroundings.js";

const TOKEN = "a-token-that-nobody-else-may-see";

let server: SmallServer;

beforeEach(async () => {
  server = await SmallServer.open();
});

afterEach(() => server.close());

async function failure(work: Promise<unknown>): Promise<EngineError> {
  const error = await work.then(
    () => null,
    (reason: unknown) => reason,
  );
  if (error instanceof EngineError) return error;
  throw error ?? new Error("it did not fail");
}

/** Waits until another process than `before` has taken over. */
async function successor(engine: Engine, before: number | null): Promise<void> {
  await until(() => expect(engine.pid).not.toBeOneOf([null, before]));
}

describe("an engine that runs", () => {
  const real = realEngine();
  const { engine } = real;

  beforeEach(() => engine.start());

  test("is started once, in a directory of the extension's, and tells what it is", async () => {
    const { pid } = engine;
    await Promise.all([engine.start(), engine.start()]);
    expect(engine.pid).toBe(pid);
    expect(realpathSync(`/proc/${pid}/cwd`)).toBe(join(real.root, "runs"));
    expect(await engine.ask("diagnostics", {})).toMatchObject({ home: join(real.root, "home"), connection: "none" });
    expect(real.log.lines.filter((line) => line.startsWith("info starting the engine"))).toHaveLength(1);
  });

  test("never has the token in its arguments or its environment", async () => {
    await engine.useServer({ server_url: server.origin, token: TOKEN });
    expect(await engine.ask("server/request", { method: "GET", path: "/my/me", body: null })).toMatchObject({
      status: 200,
    });
    expect(server.got[0]?.token).toBe(`Bearer ${TOKEN}`);
    const [args, environment] = ["cmdline", "environ"].map((name) =>
      readFileSync(`/proc/${engine.pid}/${name}`, "utf8"),
    );
    expect(args?.split("\0").slice(1)).toEqual(["-m", "byleave.cli.main", "connect", "--stdio", ""]);
    expect(environment).toContain("BYLEAVE_HOME=");
    expect(`${args}${environment}${real.log.lines.join()}`).not.toContain(TOKEN);
  });

  test("fails with the kind of what went wrong, and what to do", async () => {
    const nobody = "http://127.0.0.1:9";
    const unreachable = await failure(engine.ask("server/exchange", { server_url: nobody, code: "x" }));
    expect(unreachable).toMatchObject({ kind: "UnreachableError", unreachable: true, name: "EngineError" });
    expect(unreachable.hint).toContain("is the server of this link still running");
    await engine.leave();
    const early = await failure(engine.ask("server/request", { method: "GET", path: "/my/me", body: null }));
    expect(early).toMatchObject({ kind: "CallerError", unreachable: false });
    const wrong = await failure(engine.ask("server/use", { server_url: "nonsense", token: "t" }));
    expect(wrong).toMatchObject({ kind: "ConfigurationError", hint: "write it as http://HOST:PORT" });
    const unknown = await failure(engine.ask("undo/everything" as never, {} as never));
    expect(unknown.kind).toBe("MethodNotFound");
    const invalid = await failure(engine.ask("server/use", { server_url: server.origin, token: "" }));
    expect(invalid.kind).toBe("InvalidParams");
  });

  test("tells each listener what happens, until it no longer listens", async () => {
    const heard: string[] = [];
    const ends = [
      engine.on("connection/changed", ({ state }) => void heard.push(state)),
      engine.on("isolation/found", ({ backend }) => void heard.push(backend)),
    ];
    await engine.useServer({ server_url: server.origin, token: "t" });
    const settings = { sandbox: "none" };
    const workspace = real.folder("told");
    expect(await engine.connect({ project_id: "p", workspace, settings })).toMatchObject({ workspace });
    await until(() => expect(heard).toEqual(["none", "connected"]));
    for (const end of ends) end();
    await engine.leave();
    await engine.useServer({ server_url: server.origin, token: "t" });
    await engine.connect({ project_id: "p", workspace, settings });
    await server.until(() => server.clients.length === 1);
    await engine.leave();
    expect(heard).toHaveLength(2);
  });

  test("logs in its own levels", () => {
    expect(real.log.lines.some((line) => /^info engine: .*engine started/.test(line))).toBe(true);
  });
});

describe("an engine that is killed", () => {
  const real = realEngine();
  const { engine } = real;

  beforeEach(() => engine.start());

  test("is started again, with the server and the folder of before", async () => {
    const workspace = real.folder("again");
    await engine.useServer({ server_url: server.origin, token: TOKEN });
    await engine.connect({ project_id: "p", workspace, settings: { sandbox: "none" } });
    await server.until(() => server.clients.length === 1);
    const before = engine.pid;
    const gone = vi.fn();
    const end = engine.onGone(gone);
    process.kill(Number(before), "SIGKILL");
    await successor(engine, before);
    await server.until(() => server.got.filter(({ path }) => path.includes("client=")).length === 2);
    expect(gone).toHaveBeenCalledTimes(1);
    end();
    expect(server.client.workspace).toBe(workspace);
    expect(await engine.ask("server/request", { method: "GET", path: "/my/me", body: null })).toMatchObject({
      status: 200,
    });
    expect(real.log.lines).toContain('warn the engine ended {"code":null,"signal":"SIGKILL"}');
    expect([real.gaveUp, real.lostFolder]).toEqual([[], []]);
  });

  test("rejects what it was asked, and closes its feeds", async () => {
    await engine.useServer({ server_url: server.origin, token: "t" });
    const host = new EngineHost(engine, server.origin);
    const closed = vi.fn();
    const opened = new Promise<void>((open) => {
      host.feed("/my/projects/p/chat/stream?execute=false", null, { open, frame() {}, closed });
    });
    await opened;
    server.routes.set("GET /my/slow", null);
    const before = engine.pid;
    const inFlight = failure(engine.ask("server/request", { method: "GET", path: "/my/slow", body: null }));
    await server.until(() => server.asked("/my/slow").length === 1);
    process.kill(Number(before), "SIGKILL");
    expect(await inFlight).toMatchObject({ kind: "EngineGone", unreachable: true });
    await until(() => expect(closed.mock.calls).toEqual([[0]]));
    expect(await failure(engine.ask("diagnostics", {}))).toMatchObject({
      message: "Byleave's engine is not running.",
      hint: "it is started again automatically",
    });
    host.dispose();
    await successor(engine, before);
  });

  test("whose folder is gone says so, and runs without it", async () => {
    const workspace = real.folder("short");
    await engine.useServer({ server_url: server.origin, token: "t" });
    await engine.connect({ project_id: "p", workspace, settings: {} });
    await server.until(() => server.clients.length === 1);
    const before = engine.pid;
    rmSync(workspace, { recursive: true });
    process.kill(Number(before), "SIGKILL");
    await until(() => expect(real.lostFolder).toHaveLength(1));
    expect(real.lostFolder[0]?.kind).toBe("ConfigurationError");
    await engine.leave();
  });
});

test("an engine that is disposed of ends in order, reports what ran, and is not started again", async () => {
  const real = realEngine();
  const { engine } = real;
  await engine.start();
  await engine.useServer({ server_url: server.origin, token: "t" });
  await engine.connect({ project_id: "proj_new", workspace: real.folder("ws"), settings: {} });
  const { pid } = engine;
  const output = new Promise((resolve) => engine.on("execution/output", resolve));
  const program = "import time; print('here', flush=True); time.sleep(60)";
  const params = { command: "python3", args: ["-c", program], timeout: 120 };
  const report = server.execute("exec_1", "execute_command", params);
  await output;
  await engine.dispose();
  expect(await report).toMatchObject({ error_type: "cancelled" });
  expect(() => process.kill(Number(pid), 0)).toThrow("ESRCH");
  expect(engine.pid).toBeNull();
  expect(real.log.lines.filter((line) => line.includes("the engine ended"))).toEqual([]);
  await expect(engine.start()).rejects.toMatchObject({ kind: "EngineGone" });
  await engine.dispose();
});

test("an engine that is restarted runs what is the program by then", async () => {
  const programs = [PROGRAM, { ...PROGRAM, args: ["-I", ...PROGRAM.args] }];
  const { engine } = realEngine({ program: async () => programs.shift() ?? PROGRAM });
  await engine.start();
  const before = engine.pid;
  const gone = vi.fn();
  engine.onGone(gone);
  await engine.restart();
  expect(gone).toHaveBeenCalledTimes(1);
  expect(engine.pid).not.toBe(before);
  expect(readFileSync(`/proc/${engine.pid}/cmdline`, "utf8")).toContain("-I");
});

describe("a program that is none", () => {
  const started = (command: string, more = {}) =>
    realEngine({ program: async () => ({ ...PROGRAM, command, args: [] }), ...more });

  test("or cannot be had, is told to whoever starts it", async () => {
    expect(await failure(started("/no/such/program").engine.start())).toMatchObject({ kind: "EngineGone" });
    expect(await failure(started("/bin/true").engine.start())).toMatchObject({ kind: "EngineGone" });
    const { engine } = realEngine({ program: () => Promise.reject(new EngineProblem("python", "No Python.")) });
    await expect(engine.start()).rejects.toThrow("No Python.");
    expect(engine.pid).toBeNull();
  });

  test("and never answers is ended after a while", async () => {
    const { engine } = started(script(join(machine().root, "silent"), "echo $$ >&2; exec cat >/dev/null"));
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
    try {
      const told = failure(engine.start());
      await vi.advanceTimersByTimeAsync(20_000);
      expect(await told).toMatchObject({ message: "Byleave's engine does not answer." });
    } finally {
      vi.useRealTimers();
    }
  });

  test("of another protocol says which version belongs to the extension", async () => {
    const { engine } = fake({ answer: { error: { code: -32000, message: "It speaks engine protocol 2, not 1." } } });
    expect(await failure(engine.start())).toMatchObject({
      message: "It speaks engine protocol 2, not 1.",
      kind: "EngineFault",
      hint: null,
    });
  });
});

/** A script that answers `initialize` and then does what `after` says. It notes each of its starts; later ones fail. */
function fakeProgram({ answer = { result: {} } as object, after = "", starts = 1000 }) {
  const { root } = machine();
  const notes = join(root, "starts");
  const path = script(
    join(root, "engine"),
    `
const fs = require("node:fs");
fs.appendFileSync("${notes}", "x");
if (fs.readFileSync("${notes}", "utf8").length > ${starts}) process.exit(3);
process.stdin.once("data", (data) => {
  const { id } = JSON.parse(String(data).split("\\r\\n\\r\\n")[1]);
  const text = JSON.stringify({ jsonrpc: "2.0", id, ...${JSON.stringify(answer)} });
  process.stdout.write("Content-Length: " + text.length + "\\r\\n\\r\\n" + text, () => { ${after} });
});`,
    `#!${process.execPath}`,
  );
  return { program: { ...PROGRAM, command: path, args: [] }, count: () => readFileSync(notes, "utf8").length };
}

function fake(given: Parameters<typeof fakeProgram>[0]) {
  const { count, program } = fakeProgram(given);
  return { ...realEngine({ program: async () => program, firstPauseMs: 1 }), count };
}

test("an engine that does not end when it is told to is killed after a while", async () => {
  const { engine } = fake({ after: "setInterval(() => {}, 1000)" });
  await engine.start();
  const { pid } = engine;
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
  try {
    const ended = engine.dispose();
    await vi.advanceTimersByTimeAsync(10_000);
    await ended;
  } finally {
    vi.useRealTimers();
  }
  expect(() => process.kill(Number(pid), 0)).toThrow("ESRCH");
});

describe("an engine that does not stay", () => {
  test("is given up when it no longer starts, and somebody is told", async () => {
    const { engine, gaveUp, log, count } = fake({ starts: 1, after: "process.exit(2)" });
    await engine.start();
    await until(() => expect(gaveUp).toHaveLength(1));
    expect(gaveUp[0]).toMatchObject({ kind: "EngineGone", message: "Byleave's engine is not running." });
    expect(count()).toBe(7);
    expect(log.lines.filter((line) => line.includes("the engine did not start"))).toHaveLength(6);
    expect(engine.pid).toBeNull();
  });

  test("is given up too when it starts each time and ends at once, until somebody starts it again", async () => {
    const { engine, gaveUp, count } = fake({ after: "process.exit(2)" });
    await engine.start();
    await until(() => expect(gaveUp).toHaveLength(1));
    expect(gaveUp[0]?.message).toBe("Byleave's engine ends again and again. The log says why.");
    expect(count()).toBe(7);
    await engine.start();
    await until(() => expect(gaveUp).toHaveLength(2));
  });

  test("is not tried again where a person must do something first", async () => {
    const { program } = fakeProgram({ after: "process.exit(2)" });
    const found = vi.fn(() => Promise.reject(new EngineProblem("version", "Old.")));
    const { engine, gaveUp } = realEngine({ program: found as never, firstPauseMs: 1 });
    found.mockImplementationOnce(async () => program as never);
    await engine.start();
    await until(() => expect(gaveUp.map(({ message }) => message)).toEqual(["Old."]));
  });

  test("says on stderr what goes to the log, whatever it is", async () => {
    const lines = ["12:00 DEBUG   one", "12:00 WARNING two", "12:00 ERROR   three", "a trace", ""].join("\\n");
    const after = `process.stderr.write("${lines}\\n"); process.stdin.on("data", () => process.exit(0))`;
    const { engine, log } = fake({ after });
    await engine.start();
    await until(() =>
      expect(log.lines.slice(-4)).toEqual([
        "debug engine: one",
        "warn engine: two",
        "error engine: three",
        "warn engine: a trace",
      ]),
    );
  });
});
