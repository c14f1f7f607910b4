// Signing in, connecting, losing the server and getting it back: the real engine, a real folder, and a small server over
// real HTTP.

import { existsSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { ChangedFiles } from "../../src/editor/changes.js";
import { registerCommands } from "../../src/editor/commands.js";
import { Connector } from "../../src/editor/connector.js";
import { Differences } from "../../src/editor/diffs.js";
import { LocalServer } from "../../src/editor/local_server.js";
import { ChannelLog } from "../../src/editor/log.js";
import { OutputTerminal } from "../../src/editor/output.js";
import { Projects } from "../../src/editor/projects.js";
import { Tokens } from "../../src/editor/secrets.js";
import { workspaceSettings } from "../../src/editor/settings.js";
import { addressRemark, signIn, takeToken, unfit } from "../../src/editor/sign_in.js";
import { StatusBar } from "../../src/editor/status.js";
import { EngineError } from "../../src/engine/engine.js";
import { EngineProblem, type EngineProgram } from "../../src/engine/program.js";
import { FileSystemExecutor } from "../../src/tools/executors.js";
import { ChatView } from "../../src/webview/view.js";
import { PROGRAM, realEngine } from "../engine/real_engine.js";
import { until } from "../waiting.js";
import {
  answers,
  channels,
  codeMarks,
  contexts,
  documents,
  folder,
  handlers,
  Memory,
  ran,
  reset,
  Secrets,
  settings,
  shown,
  statusItems,
  tabs,
  terminals,
  Uri,
  windowState,
  workspace,
} from "./fake_vscode.js";
import { decided, question, SmallServer } from "./small_server.js";

let server: SmallServer;
let current: Connector | null = null;
let program: () => Promise<EngineProgram> = async () => PROGRAM;
const real = realEngine({
  program: () => program(),
  gaveUp: (problem) => current?.engineGone(problem),
  lostFolder: (problem) => current?.live?.lostFolder(problem),
});
const { engine } = real;
const demo = real.folder("demo");

beforeEach(async () => {
  reset();
  program = async () => PROGRAM;
  server = await SmallServer.open();
  settings.set("serverUrl", server.origin);
  workspace.workspaceFolders = [folder(demo)];
});

afterEach(async () => {
  vi.restoreAllMocks();
  await current?.dispose();
  current = null;
  await engine.leave();
  await server.close();
  expect(codeMarks()).toEqual([]);
});

function house(outageMs = 15_000) {
  const memory = new Memory();
  const tokens = new Tokens(new Secrets() as never);
  const projects = new Projects(new Memory() as never);
  const log = new ChannelLog();
  const output = new OutputTerminal();
  const differences = new Differences();
  const view = new ChatView(Uri.file("/ext") as never, { openFile() {}, showDiff() {} });
  const seen = { visible: false };
  const openWaiting = vi.fn();
  const signing = { tokens, engine };
  const connector = new Connector({
    memory: memory as never,
    tokens,
    projects,
    log,
    view,
    status: new StatusBar(),
    engine,
    live: {
      output,
      differences,
      changes: new ChangedFiles(differences),
      settings: async () => workspaceSettings(),
      chatVisible: () => seen.visible,
      openWaiting,
      againMs: 5,
    },
    outageMs,
  });
  current = connector;
  const local = new LocalServer(
    log,
    async () => PROGRAM,
    () => [],
  );
  const commands = { connector, view, signing, differences, projects, local, log, output };
  return { memory, tokens, signing, projects, connector, seen, openWaiting, commands };
}

/** A token as a server signs them: it must prove itself first. */
const UNPROVABLE = `${Buffer.from('{"alg":"HS256"}').toString("base64url")}.e30.c2lnbmF0dXJl`;
const status = () => statusItems[0]?.text;
/** The directory the engine executes in; null: none. */
const executesIn = async () => (await engine.ask("diagnostics", {})).workspace;

describe("signing in", () => {
  test("asks for the address and the token, tries it, and keeps it for that server", async () => {
    const { signing, tokens } = house();
    answers.set("server's address", server.origin);
    answers.set("A token", " good ");
    expect(await signIn(signing)).toBe(true);
    expect(server.got[0]).toMatchObject({ path: "/my/me", token: "Bearer good" });
    expect(await tokens.read(server.origin)).toBe("good");
  });

  test("that is left keeps nothing", async () => {
    const { signing, tokens } = house();
    expect(await signIn(signing)).toBe(false);
    answers.set("server's address", server.origin);
    expect(await signIn(signing)).toBe(false);
    expect(await tokens.read(server.origin)).toBeNull();
  });

  test.each<[number, unknown, string]>([
    [401, { detail: "The token has expired." }, "The server did not take the token: The token has expired."],
    [403, { detail: "Not you.", hint: "Run `byleave link`." }, 'Not you. Run "byleave link".'],
    [403, { detail: "Not you." }, "Not you."],
    [200, { user_id: "a", scopes: ["agent"] }, "This is an agent's token."],
    [
      200,
      { user_id: "a", scopes: ["chat"] },
      'This token lacks the scope approve, execute. "byleave token --user NAME" makes one',
    ],
    [200, "<html>", "no Byleave server"],
    [200, { hello: "world" }, "no Byleave server"],
    [502, "<html>", "has a problem of its own (502)"],
  ])("a token the server answers with %i is not kept", async (code, body, words) => {
    const { signing, tokens } = house();
    server.routes.set("GET /my/me", [code, body]);
    expect(await takeToken(signing, server.origin, "bad")).toBe(false);
    expect(shown.at(-1)).toMatchObject({ kind: "error" });
    expect(shown.at(-1)?.text).toContain(words);
    expect(await tokens.read(server.origin)).toBeNull();
  });

  test("a server that is not there is told", async () => {
    const { signing } = house();
    expect(await takeToken(signing, "http://127.0.0.1:9", "t")).toBe(false);
    expect(shown.at(-1)?.text).toContain("Nothing answers at http://127.0.0.1:9");
  });

  test("a program at the server's port that is not the server gets no token", async () => {
    const { signing, tokens } = house();
    expect(await takeToken(signing, server.origin, UNPROVABLE)).toBe(false);
    expect(shown.at(-1)?.text).toContain("did not prove that it is the server your token is from");
    expect(server.got.map(({ path, token }) => [path, token])).toEqual([["/proof", ""]]);
    expect(await tokens.read(server.origin)).toBeNull();
  });

  test("without an engine says why, with the button that helps", async () => {
    const { signing, tokens } = house();
    const none = realEngine({ program: () => Promise.reject(new EngineProblem("python", "There is no Python.")) });
    answers.set("There is no Python", "Try Again");
    handlers.set("byleave.connect", () => {});
    expect(await takeToken({ ...signing, engine: none.engine }, server.origin, "t")).toBe(false);
    await until(() => expect(ran.at(-1)).toEqual(["byleave.connect"]));
    expect(await tokens.read(server.origin)).toBeNull();
  });

  test("a token that would go unencrypted to another machine is warned about", () => {
    expect(addressRemark("nonsense")).toContain("Write it as");
    expect(addressRemark("http://10.0.0.1")).toMatchObject({ severity: 2 });
    expect(addressRemark("https://10.0.0.1")).toBeNull();
    expect(addressRemark("http://127.0.0.1:1")).toBeNull();
    expect(unfit({ user_id: "a", scopes: ["chat", "approve", "execute"], version: "1", chat: true })).toBeNull();
  });
});

describe("at the start of a window", () => {
  test("a folder that was never connected stays so, and nobody is bothered", async () => {
    const { connector, tokens } = house();
    await tokens.keep(server.origin, "t");
    await connector.start();
    expect(connector.standing.at).toBe("disconnected");
    expect(server.got).toEqual([]);
    expect(shown).toEqual([]);
  });

  test("one that was connected before is connected again, unless it was disconnected", async () => {
    const { connector, tokens, memory } = house();
    await tokens.keep(server.origin, "t");
    await connector.connect(true);
    await connector.dispose();
    server.routes.set("GET /my/projects", [200, { projects: [{ project_id: "proj_new", name: "x" }], total_count: 1 }]);
    await connector.start();
    expect(connector.standing.at).toBe("connected");
    await connector.disconnect();
    await connector.start();
    expect(connector.standing.at).toBe("disconnected");
    expect(memory.get("disconnected")).toBe(true);
  });

  test("what is missing is said in the view and the status bar", async () => {
    const { connector } = house();
    await connector.start();
    expect(connector.standing.at).toBe("signed-out");
    settings.set("serverUrl", "nonsense");
    await connector.start();
    expect(connector.standing.at).toBe("bad-address");
    await connector.connect(true);
    expect(connector.standing.at).toBe("bad-address");
    workspace.workspaceFolders = undefined;
    await connector.start();
    expect(connector.standing.at).toBe("no-folder");
    expect(status()).toBe("$(circle-slash) Byleave");
  });
});

describe("connecting", () => {
  test("finds the project, watches it and executes in the folder", async () => {
    const { connector, tokens } = house();
    await tokens.keep(server.origin, "t");
    await connector.connect(true);
    expect(connector.standing).toMatchObject({ at: "connected", projectId: "proj_new", folder: "demo" });
    await server.until(() => server.clients.length === 1);
    expect(server.client.workspace).toBe(demo);
    expect(server.got.every(({ token }) => token === "Bearer t")).toBe(true);
    await until(() => expect(status()).toBe("$(check) Byleave"));
    await until(() => expect(statusItems[0]?.tooltip).toContain("Commands are held by"));
    expect(contexts.get("byleave.connected")).toBe(true);
  });

  test("without a sandbox says so in the status bar", async () => {
    const { connector, tokens } = house();
    await tokens.keep(server.origin, "t");
    settings.set("sandbox", "none");
    await connector.connect(true);
    await until(() => expect(status()).toBe("$(unlock) Byleave: not isolated"));
  });

  test("tells the engine what the person set for this machine, and it holds", async () => {
    const { connector, tokens } = house();
    await tokens.keep(server.origin, "t");
    const connecting = vi.spyOn(engine, "connect");
    settings.set("commandTimeoutMs", 60_000);
    settings.set("fileSizeMaxBytes", 3);
    settings.set("concurrencyLimit", 2);
    settings.set("approvalTimeoutMs", 120_000);
    settings.set("enableCaching", false);
    settings.set("cacheTtlMs", 10_000);
    await connector.connect(true);
    expect(connecting.mock.calls[0]?.[0]).toEqual({
      project_id: "proj_new",
      workspace: demo,
      settings: {
        command_timeout_seconds: 60,
        max_file_bytes: 3,
        concurrency: 2,
        approval_timeout_seconds: 120,
        cache_enabled: false,
        cache_seconds: 10,
        sandbox: null,
      },
    });
    writeFileSync(join(demo, "large.txt"), "more than three");
    expect(await new FileSystemExecutor(engine).executeReadFile("large.txt")).toMatchObject({ success: false });
  });

  test("with a setting that cannot be says which, and the chat stays", async () => {
    const { connector, tokens } = house();
    await tokens.keep(server.origin, "t");
    settings.set("concurrencyLimit", 99);
    await connector.connect(true);
    await until(() => expect(shown.at(-1)?.text).toMatch(/nothing can be executed in this folder: .*concurrency/i));
    expect(shown.at(-1)?.items).toEqual(["Try again"]);
    expect(connector.standing.at).toBe("connected");
    await until(() => expect(status()).toBe("$(warning) Byleave: not executing"));
  });

  test("offers to connect again what ended for good", async () => {
    const { connector, tokens } = house();
    await tokens.keep(server.origin, "t");
    server.clientStatus = 404;
    answers.set("any more", "Connect again");
    await connector.connect(true);
    await until(() => expect(ran.at(-1)).toEqual(["byleave.connect"]));
    expect(shown.at(-1)?.text).toMatch(/^Byleave: nothing is executed in this folder any more\. \S/);
    expect(shown.at(-1)?.items).toEqual(["Connect again"]);
    await until(() => expect(status()).toBe("$(warning) Byleave: not executing"));
  });

  test("in a folder that is gone says so", async () => {
    const { connector, tokens } = house();
    await tokens.keep(server.origin, "t");
    const gone = real.folder("gone");
    workspace.workspaceFolders = [folder(gone)];
    rmSync(gone, { recursive: true });
    await connector.connect(true);
    await until(() => expect(shown.at(-1)?.text).toContain("nothing can be executed in this folder: "));
    expect(shown).toHaveLength(1);
    expect(existsSync(gone)).toBe(false);
  });

  test("a server that cannot prove itself gets no token, and the view says why and what to do", async () => {
    const { connector, tokens } = house();
    await tokens.keep(server.origin, UNPROVABLE);
    await connector.connect(true);
    expect(connector.standing).toMatchObject({ at: "unproven", why: expect.stringContaining("did not prove") });
    expect(server.got.map(({ path, token }) => [path, token])).toEqual([["/proof", ""]]);
    expect(await tokens.read(server.origin)).not.toBeNull();
  });

  test("in a folder that is not trusted executes nothing until it is", async () => {
    const { connector, tokens } = house();
    await tokens.keep(server.origin, "t");
    workspace.isTrusted = false;
    await connector.connect(true);
    await until(() => expect(status()).toBe("$(shield) Byleave: not trusted"));
    expect(await executesIn()).toBeNull();
    workspace.isTrusted = true;
    const connecting = vi.spyOn(engine, "connect");
    await connector.trusted();
    await connector.trusted();
    expect(connecting).toHaveBeenCalledTimes(1);
    expect(await executesIn()).toBe(demo);
  });

  test("leaves the folder to another client that works in it, says so calmly, and takes over when that leaves", async () => {
    const { connector, tokens } = house();
    await tokens.keep(server.origin, "t");
    // Another window works in this folder, with the same state directory.
    const other = realEngine({ env: { ...process.env, BYLEAVE_HOME: join(real.root, "home") } });
    await other.engine.start();
    await other.engine.useServer({ server_url: server.origin, token: "t" });
    await other.engine.connect({ project_id: "proj_new", workspace: demo, settings: {} });
    await connector.connect(true);
    await until(() => expect(statusItems[0]?.tooltip).toContain("Another Byleave client"));
    expect(status()).toBe("$(check) Byleave");
    expect(shown).toEqual([]);
    await other.engine.dispose();
    server.send(1, { kind: "project.machines", timestamp: "2026-01-01T12:00:00.000Z", machines: [] });
    await until(() => expect(statusItems[0]?.tooltip).not.toContain("Another Byleave client"));
    expect(status()).toBe("$(check) Byleave");
  });

  test("tries again before it says that nothing can be executed, keeps the chat, and tries when it is told to", async () => {
    const { connector, tokens } = house();
    await tokens.keep(server.origin, "t");
    const refused = new EngineError("It cannot be read.", "ToolFailure");
    const connecting = vi.spyOn(engine, "connect");
    for (let time = 0; time < 3; time++) connecting.mockRejectedValueOnce(refused);
    answers.set("nothing can be executed", "Try again");
    await connector.connect(true);
    expect(shown).toEqual([]);
    await until(() => expect(shown.length).toBeGreaterThan(0));
    expect(connecting.mock.calls.length).toBeGreaterThanOrEqual(3);
    expect(shown[0]?.text).toBe("Byleave: nothing can be executed in this folder: It cannot be read.");
    expect(connector.standing.at).toBe("connected");
    await until(() => expect(status()).toBe("$(check) Byleave"));
  });

  test("without an engine says why in the view, and with a button", async () => {
    const { connector, tokens } = house();
    await tokens.keep(server.origin, "t");
    const { pid } = engine;
    program = () => Promise.reject(new EngineProblem("network", "No network. Try again."));
    if (pid !== null) process.kill(pid, "SIGKILL");
    await until(() => expect(connector.standing.at).toBe("no-engine"));
    shown.length = 0;
    await connector.connect(false);
    expect(connector.standing).toEqual({ at: "no-engine", why: "No network. Try again." });
    expect(shown).toMatchObject([{ kind: "error", text: "No network. Try again.", items: ["Try Again"] }]);
    expect(server.got).toEqual([]);
  });

  test("without a folder, or with none chosen, says so", async () => {
    const { connector } = house();
    workspace.workspaceFolders = undefined;
    answers.set("No folder is open", "Open a folder");
    await connector.connect(true);
    expect(shown.at(-1)?.text).toContain("No folder is open");
    await until(() => expect(ran.at(-1)).toEqual(["byleave.openFolder"]));
    workspace.workspaceFolders = [folder("/a"), folder("/b")];
    await connector.connect(true);
    expect(connector.standing.at).toBe("unchosen");
  });

  test("to a project that nobody picks leaves it as it was", async () => {
    const { connector, tokens } = house();
    await tokens.keep(server.origin, "t");
    server.routes.set("GET /my/projects", [200, { projects: [{ project_id: "p", name: "x" }], total_count: 1 }]);
    await connector.connect(true);
    expect(connector.standing.at).toBe("disconnected");
  });

  test.each<[number, unknown, string]>([
    [401, { detail: "The token's `sub` is odd." }, "signed-out"],
    [403, { detail: "Not you.", hint: "Send `scope`." }, "refused"],
    [200, { user_id: "a", scopes: ["chat"] }, "refused"],
    [200, "<html>", "unreachable"],
  ])("a server that answers %i leads to what to do", async (code, body, at) => {
    const { connector, tokens } = house();
    await tokens.keep(server.origin, "t");
    server.routes.set("GET /my/me", [code, body]);
    await connector.connect(true);
    await until(() => expect(connector.standing.at).toBe(at));
    expect(JSON.stringify(connector.standing)).not.toContain("`");
    if (code === 401) expect(await tokens.read(server.origin)).toBeNull();
  });

  test("to a server that is not there is tried again until it is, and told once", async () => {
    const { connector, tokens } = house();
    await tokens.keep(server.origin, "t");
    answers.set("problem of its own (503)", "Show the log");
    handlers.set("byleave.showLog", () => {});
    server.routes.set("GET /my/me", [503, {}]);
    await connector.connect(true);
    expect(connector.standing.at).toBe("unreachable");
    server.routes.set("GET /my/me", [200, { user_id: "a", scopes: ["chat", "approve", "execute"] }]);
    await until(() => expect(connector.standing.at).toBe("connected"));
    expect(shown.filter(({ text }) => text.includes("problem of its own"))).toHaveLength(1);
    expect(ran.some(([command]) => command === "byleave.showLog")).toBe(true);
  });

  test("a newer attempt ends the older one", async () => {
    const { connector, tokens } = house();
    await tokens.keep(server.origin, "t");
    const connecting = vi.spyOn(engine, "connect");
    await Promise.all([connector.connect(true), connector.connect(true)]);
    await until(() => expect(connector.standing.at).toBe("connected"));
    await server.until(() => server.clients.length === 1);
    expect(connecting).toHaveBeenCalledTimes(1);
  });
});

describe("while it is connected", () => {
  async function connected(outageMs?: number) {
    const made = house(outageMs);
    await made.tokens.keep(server.origin, "t");
    await made.connector.connect(true);
    await server.until(() => server.streams.length === 1 && server.clients.length === 1);
    await until(() => expect(made.connector.live?.link).toBe("up"));
    await until(() => expect(status()).toBe("$(check) Byleave"));
    return made;
  }

  test("a question is counted, and told only while the chat is hidden", async () => {
    const { seen } = await connected();
    seen.visible = true;
    server.send(1, question("a"));
    await until(() => expect(status()).toBe("$(bell-dot) Byleave: 1 to review"));
    expect(shown).toEqual([]);
    seen.visible = false;
    server.send(2, question("b"));
    await until(() => expect(shown.at(-1)?.text).toContain("the agent wants to"));
    settings.set("notifications", false);
    server.send(3, question("c"));
    await until(() => expect(status()).toBe("$(bell-dot) Byleave: 3 to review"));
    expect(shown).toHaveLength(1);
    server.send(4, decided("c"));
    await until(() => expect(status()).toBe("$(bell-dot) Byleave: 2 to review"));
  });

  test("Show leads to the chat, and a write's difference opens by itself where that is wanted", async () => {
    const { openWaiting } = await connected();
    const change = { path: "a.md", kind: "change", before: "b", after: "x" };
    server.routes.set("GET /my/approvals/w/change", [200, { approval_id: "w", digest: "digest of w", change }]);
    settings.set("openDiffs", true);
    answers.set("the agent wants to", "Review");
    server.send(1, question("w", { tool_name: "write_file", tool_params: { path: "a.md", content: "x" } }));
    await until(() => expect(openWaiting).toHaveBeenCalled());
    await until(() => expect(ran.filter(([command]) => command === "vscode.diff").length).toBe(2));
  });

  test("what was not answered or took too long is told while the chat is hidden", async () => {
    const { seen, openWaiting } = await connected();
    answers.set("It ran longer", "Open the chat");
    const base = { kind: "tool.finished", tool_id: "t", tool_name: "execute_command", status: "TIMEOUT", result: null };
    const ended = { ...base, session_id: "s", run_id: null, approved_by: null };
    server.send(1, {
      ...ended,
      error: "It ran longer than 300 s.\nhint: Start it with `byleave up`.",
      error_type: "execution_timeout",
    });
    await until(() =>
      expect(shown.at(-1)?.text).toBe("Byleave: It ran longer than 300 s. The chat shows what is known of it."),
    );
    await until(() => expect(openWaiting).toHaveBeenCalled());
    server.send(2, { ...ended, error: "It failed.", error_type: "tool_error" });
    seen.visible = true;
    server.send(3, { ...ended, error: "Nobody answered.", error_type: "approval_timeout" });
    server.send(4, question("z"));
    await until(() => expect(status()).toContain("1 to review"));
    expect(shown).toHaveLength(1);
  });

  test.each([
    [
      { error: "sleep ran longer than 1 s.\nhint: set timeout", error_type: "execution_timeout" },
      "Byleave: sleep ran longer than 1 s. The chat shows what is known of it.",
    ],
    [
      { error: "The client did not report a result in time.", error_type: "execution_timeout" },
      "Byleave: The client did not report a result in time. The chat shows what is known of it.",
    ],
    [
      { error: "Approval timeout", error_type: "approval_timeout", status: "TIMEOUT" },
      "Byleave: nobody answered a question in time, so nothing ran. Ask the agent again if you want it.",
    ],
  ])(
    "what an agent is told of a call that ended late is told to a person in a person's words (%#)",
    async (how, words) => {
      await connected();
      const base = {
        kind: "tool.finished",
        tool_id: "t",
        tool_name: "execute_command",
        status: "failed",
        result: null,
      };
      server.send(1, { ...base, session_id: "s", run_id: null, approved_by: null, ...how });
      await until(() => expect(shown.at(-1)?.text).toBe(words));
    },
  );

  test("a short break is only seen in the status bar and mends itself; the window in front tries at once", async () => {
    await connected();
    server.drop();
    await until(() => expect(status()).toBe("$(sync~spin) Byleave: reconnecting"));
    windowState.fire({ focused: false });
    windowState.fire({ focused: true });
    await until(() => expect(status()).toBe("$(check) Byleave"));
    expect(shown).toEqual([]);
  });

  test("a long break is told once", async () => {
    await connected(20);
    server.streamStatus = 503;
    answers.set("Nothing answers", "Start a local server");
    handlers.set("byleave.startServer", () => {});
    server.drop();
    await until(() => expect(ran.at(-1)).toEqual(["byleave.startServer"]));
    expect(status()).toContain("reconnecting");
    expect(shown).toHaveLength(1);
  });

  test("a token that is no longer taken signs out", async () => {
    const { connector, tokens } = await connected();
    server.streamStatus = 401;
    server.drop();
    await until(() => expect(connector.standing).toMatchObject({ at: "signed-out" }));
    expect(await tokens.read(server.origin)).toBeNull();
    expect(status()).toBe("$(key) Byleave: sign in");
  });

  test("another folder beside it changes nothing; without its own folder it ends", async () => {
    const { connector } = await connected();
    workspace.workspaceFolders = [folder(demo), folder("/a/other")];
    await connector.foldersChanged();
    expect(await executesIn()).toBe(demo);
    workspace.workspaceFolders = undefined;
    await connector.foldersChanged();
    expect(await executesIn()).toBeNull();
    expect(connector.standing.at).toBe("no-folder");
  });

  test("another server in the settings ends this connection, and the same one does not", async () => {
    const { connector } = await connected();
    await connector.serverChanged();
    expect(await executesIn()).toBe(demo);
    settings.set("serverUrl", "nonsense");
    await connector.serverChanged();
    expect(connector.standing.at).toBe("bad-address");
    expect(await executesIn()).toBeNull();
    settings.set("serverUrl", "https://elsewhere.example.com");
    await connector.serverChanged();
    expect(connector.standing.at).toBe("signed-out");
  });

  test("another sandbox in the settings holds at once: the engine is told anew", async () => {
    const { connector } = await connected();
    server.routes.set("GET /my/projects", [200, { projects: [{ project_id: "proj_new", name: "x" }], total_count: 1 }]);
    settings.set("sandbox", "none");
    await connector.engineSettingsChanged();
    await until(() => expect(status()).toBe("$(unlock) Byleave: not isolated"));
    await connector.disconnect();
    await connector.engineSettingsChanged();
    expect(connector.standing.at).toBe("disconnected");
  });

  test("disconnecting ends what executes, and the engine forgets the token", async () => {
    const { connector } = await connected();
    const program = "import time; print('here', flush=True); time.sleep(60)";
    const output = new Promise((resolve) => engine.on("execution/output", resolve));
    const report = server.execute("exec_1", "execute_command", {
      command: "python3",
      args: ["-c", program],
      timeout: 120,
    });
    await output;
    expect(connector.live?.handler.activeExecutions).toMatchObject([{ toolId: "exec_1", userApproved: true }]);
    await connector.disconnect();
    expect(await report).toMatchObject({ error_type: "cancelled" });
    expect(connector.live).toBeNull();
    expect(await engine.ask("diagnostics", {})).toMatchObject({ workspace: null, server_url: null });
  });

  test("signing out makes the engine forget the token, also where nothing could be connected", async () => {
    const { connector, tokens } = house();
    await tokens.keep(server.origin, "t");
    server.routes.set("GET /my/me", [403, { detail: "Not you." }]);
    await connector.connect(true);
    expect(connector.standing.at).toBe("refused");
    await connector.signOut();
    expect(await engine.ask("diagnostics", {})).toMatchObject({ server_url: null });
  });

  test("the window's end while the folder is connected ends that too", async () => {
    const { connector, tokens } = house();
    await tokens.keep(server.origin, "t");
    const { connect } = engine;
    vi.spyOn(engine, "connect").mockImplementationOnce((asked) => {
      void connector.dispose();
      return connect.call(engine, asked);
    });
    await connector.connect(true);
    await until(async () => expect(await executesIn()).toBeNull());
    expect(shown).toEqual([]);
  });

  test("calls are seen as they run: in the handler's history, and in the output", async () => {
    const { connector, commands } = await connected();
    commands.output.show();
    await server.execute("exec_1", "execute_command", { command: "echo", args: ["hello"], timeout: 30 });
    server.send(5, {
      kind: "tool.result_ack",
      timestamp: new Date().toISOString(),
      tool_id: "exec_1",
      status: "completed",
      session_id: "s",
    });
    await until(() =>
      expect(connector.live?.handler.history).toMatchObject([{ status: "success", acknowledged: true }]),
    );
    expect(terminals[0]?.written).toContain("echo hello");
    expect(terminals[0]?.written).toContain("\r\nhello\r\n");
  });

  test("an engine that is killed comes back by itself, and nobody is bothered", async () => {
    const { connector } = await connected(600_000);
    const { pid } = engine;
    const output = new Promise((resolve) => engine.on("execution/output", resolve));
    const program = "import time; print('here', flush=True); time.sleep(60)";
    const report = server.execute("exec_1", "execute_command", {
      command: "python3",
      args: ["-c", program],
      timeout: 120,
    });
    await output;
    process.kill(Number(pid), "SIGKILL");
    await until(() => expect(status()).toBe("$(sync~spin) Byleave: reconnecting"));
    expect(connector.live?.handler.history).toMatchObject([{ status: "interrupted" }]);
    expect(await report).toMatchObject({ error_type: "interrupted" });
    await until(() => expect(status()).toBe("$(check) Byleave"));
    expect(await executesIn()).toBe(demo);
    expect(shown).toEqual([]);
  });

  test("an engine that cannot be kept running is told, and can be tried again", async () => {
    const { connector } = await connected();
    const { pid } = engine;
    program = () => Promise.reject(new EngineProblem("setting", "There is no program at '/x'."));
    process.kill(Number(pid), "SIGKILL");
    await until(() => expect(connector.standing).toEqual({ at: "no-engine", why: "There is no program at '/x'." }));
    expect(shown).toMatchObject([{ kind: "error", items: ["Open Settings"] }]);
    expect(status()).toBe("$(circle-slash) Byleave");
    // The setting names another that is none, and then one that is.
    await connector.engineChanged();
    expect(connector.standing.at).toBe("no-engine");
    expect(shown).toHaveLength(2);
    program = async () => PROGRAM;
    server.routes.set("GET /my/projects", [200, { projects: [{ project_id: "proj_new", name: "x" }], total_count: 1 }]);
    await connector.engineChanged();
    expect(connector.standing.at).toBe("connected");
    const before = engine.pid;
    await connector.engineChanged();
    expect(engine.pid).not.toBe(before);
    await connector.disconnect();
    await connector.engineChanged();
    expect(connector.standing.at).toBe("disconnected");
  });

  test("a folder that is gone when the engine comes back is told", async () => {
    const short = real.folder("short");
    workspace.workspaceFolders = [folder(short)];
    const { connector } = await connected();
    const { pid } = engine;
    rmSync(short, { recursive: true });
    process.kill(Number(pid), "SIGKILL");
    await until(() => expect(shown.at(-1)?.text).toContain("nothing can be executed in this folder: "));
    expect(connector.standing.at).toBe("connected");
    await until(() => expect(status()).toBe("$(warning) Byleave: not executing"));
  });

  test("a write is answered in its difference, which is closed when it is over", async () => {
    const { connector, commands } = await connected();
    const registered = registerCommands(commands);
    const change = { path: "a.md", kind: "change", before: "b", after: "x" };
    server.routes.set("GET /my/approvals/w/change", [200, { approval_id: "w", digest: "digest of w", change }]);
    server.routes.set("POST /my/projects/proj_new/approvals/w/approve", [200, {}]);
    server.routes.set("POST /my/projects/proj_new/approvals/w/reject", [200, {}]);
    settings.set("notifications", false);
    server.send(1, question("w", { tool_name: "write_file", tool_params: { path: "a.md", content: "x" } }));
    await until(() => expect(connector.live?.waiting).toHaveLength(1));
    expect(await connector.live?.showQuestion("none")).toBe(false);
    expect(await connector.live?.showQuestion("w")).toBe(true);
    expect(contexts.get("byleave.askingDiffs")).toHaveLength(1);
    answers.set("The agent is told", "no");
    // Nobody answers what just appeared: it must have been read.
    const opened = Date.now();
    vi.spyOn(Date, "now").mockImplementation(() => opened + 1000);
    await handlers.get("byleave.deny")?.((tabs.tabs[0] as { input: { modified: Uri } }).input.modified);
    await handlers.get("byleave.allow")?.();
    vi.mocked(Date.now).mockRestore();
    expect(server.asked("/reject")[0]?.body).toEqual({ reason: "no" });
    expect(server.asked("/approve")[0]?.body).toEqual({ decision: "approved", digest: "digest of w", calls: 1 });
    server.send(2, decided("w"));
    await until(() => expect(tabs.tabs).toEqual([]));
    expect(contexts.get("byleave.askingDiffs")).toEqual([]);
    await handlers.get("byleave.allow")?.();
    expect(server.asked("/approve")).toHaveLength(1);
    for (const each of registered) each.dispose();
  });

  test("a question without a difference is left to the chat", async () => {
    const { connector } = await connected();
    settings.set("notifications", false);
    server.send(1, question("c"));
    await until(() => expect(connector.live?.waiting).toHaveLength(1));
    expect(await connector.live?.showQuestion("c")).toBe(false);
  });
});

describe("the commands", () => {
  test("do what they say", async () => {
    const { commands, connector, tokens } = house();
    const registered = registerCommands(commands);
    const run = async (name: string) => await handlers.get(`byleave.${name}`)?.();
    answers.set("server's address", server.origin);
    answers.set("A token", "t");
    await run("connect");
    expect(ran.some(([command]) => command === "byleave.signIn")).toBe(true);
    expect(connector.standing.at).toBe("connected");
    await run("openChat");
    await run("showWaiting");
    expect(shown.at(-1)?.text).toBe("Byleave: all clear.");
    await run("showLog");
    expect(channels[0]?.shown).toBe(1);
    await run("showOutput");
    expect(terminals).toHaveLength(1);
    await run("openSettings");
    await run("openFolder");
    await run("howToStart");
    expect(ran.slice(-1)).toEqual([["workbench.action.openWalkthrough", "byleave.byleave#start"]]);
    expect(ran.slice(-3, -1)).toEqual([
      ["workbench.action.openSettings", "@ext:byleave.byleave"],
      ["vscode.openFolder"],
    ]);
    await run("chooseProject");
    expect(connector.standing.at).toBe("connected");
    await run("disconnect");
    expect(connector.standing.at).toBe("disconnected");
    await run("signOut");
    expect(await tokens.read(server.origin)).toBeNull();
    await run("startServer");
    expect(shown.at(-1)?.text).toContain("Start a Byleave server");
    await run("diagnose");
    expect(JSON.parse(documents[0] ?? "")).toMatchObject({ version: expect.any(String), server_url: null });
    for (const each of registered) each.dispose();
  });
});
