// Signing in, connecting, losing the server and getting it back, over real HTTP with a small server.

import { chmod, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { registerCommands } from "../../src/editor/commands.js";
import { Connector } from "../../src/editor/connector.js";
import { Differences } from "../../src/editor/diffs.js";
import { LocalServer } from "../../src/editor/local_server.js";
import { ChannelLog } from "../../src/editor/log.js";
import { OutputTerminal } from "../../src/editor/output.js";
import { Projects } from "../../src/editor/projects.js";
import { Tokens } from "../../src/editor/secrets.js";
import { addressRemark, signIn, takeToken, unfit } from "../../src/editor/sign_in.js";
import { StatusBar } from "../../src/editor/status.js";
import type { ExecutingOptions, ExecutingState } from "../../src/host/executing.js";
import { MORE_TIME } from "../../src/tools/CommandExecutor.js";
import { ConfigurationError } from "../../src/tools/errors.js";
import { SEARCH_LESS } from "../../src/tools/SearchExecutor.js";
import { ChatView } from "../../src/webview/view.js";
import {
  answers,
  channels,
  codeMarks,
  folder,
  handlers,
  Memory,
  ran,
  reset,
  Secrets,
  settings,
  shown,
  statusItems,
  terminals,
  Uri,
  windowState,
  workspace,
} from "./fake_vscode.js";
import { decided, question, SmallServer } from "./small_server.js";

let server: SmallServer;
const ending: (() => Promise<void>)[] = [];

beforeEach(async () => {
  reset();
  server = await SmallServer.open();
  settings.set("serverUrl", server.origin);
  workspace.workspaceFolders = [folder("/a/demo")];
});

afterEach(async () => {
  vi.useRealTimers();
  for (const end of ending.splice(0)) await end();
  await server.close();
  expect(codeMarks()).toEqual([]);
});

function house(outageMs = 15_000) {
  const memory = new Memory();
  const tokens = new Tokens(new Secrets() as never);
  const projects = new Projects(new Memory() as never);
  const log = new ChannelLog();
  const output = new OutputTerminal();
  const view = new ChatView(Uri.file("/ext") as never, { openFile() {}, showDiff() {} });
  const seen = { visible: false };
  const state: { -readonly [key in keyof ExecutingState]: ExecutingState[key] } = {
    connected: true,
    isolation: "bwrap",
    ended: null,
  };
  const started: ExecutingOptions[] = [];
  const disposed = vi.fn(async () => {});
  const startExecuting = vi.fn(async (options: ExecutingOptions) => {
    started.push(options);
    return { state, dispose: disposed };
  });
  const openWaiting = vi.fn();
  const connector = new Connector({
    memory: memory as never,
    tokens,
    projects,
    log,
    view,
    status: new StatusBar(),
    live: { log, output, differences: new Differences(), chatVisible: () => seen.visible, openWaiting, againMs: 5 },
    startExecuting,
    outageMs,
  });
  const local = new LocalServer(log);
  ending.push(async () => {
    await connector.dispose();
    local.dispose();
  });
  const commands = { connector, view, tokens, projects, local, log, output };
  return { memory, tokens, projects, connector, seen, state, started, disposed, startExecuting, openWaiting, commands };
}

const status = () => statusItems[0]?.text;
const until = (so: () => void) => vi.waitFor(so, { timeout: 5000, interval: 5 });

describe("signing in", () => {
  test("asks for the address and the token, tries it, and keeps it for that server", async () => {
    const { tokens } = house();
    answers.set("server's address", server.origin);
    answers.set("A token", " good ");
    expect(await signIn(tokens)).toBe(true);
    expect(server.got[0]).toMatchObject({ path: "/my/me", token: "Bearer good" });
    expect(await tokens.read(server.origin)).toBe("good");
  });

  test("that is left keeps nothing", async () => {
    const { tokens } = house();
    expect(await signIn(tokens)).toBe(false);
    answers.set("server's address", server.origin);
    expect(await signIn(tokens)).toBe(false);
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
  ])("a token the server answers with %i is not kept", async (code, body, words) => {
    const { tokens } = house();
    server.routes.set("GET /my/me", [code, body]);
    expect(await takeToken(tokens, server.origin, "bad")).toBe(false);
    expect(shown.at(-1)).toMatchObject({ kind: "error" });
    expect(shown.at(-1)?.text).toContain(words);
    expect(await tokens.read(server.origin)).toBeNull();
  });

  test("a server that is not there is told", async () => {
    const { tokens } = house();
    expect(await takeToken(tokens, "http://127.0.0.1:9", "t")).toBe(false);
    expect(shown.at(-1)?.text).toContain("Nothing answers at http://127.0.0.1:9");
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
    const { connector, tokens, started, state } = house();
    await tokens.keep(server.origin, "t");
    await connector.connect(true);
    expect(connector.standing).toMatchObject({ at: "connected", projectId: "proj_new", folder: "demo" });
    expect(started[0]).toMatchObject({ projectId: "proj_new", folder: "/a/demo", access: { token: "t" } });
    await until(() => expect(status()).toBe("$(check) Byleave"));
    state.isolation = "none";
    started[0]?.changed();
    expect(status()).toBe("$(unlock) Byleave: not isolated");
    state.ended = "The project is gone. Run `byleave connect`.";
    started[0]?.changed();
    expect(shown.at(-1)?.text).toBe(
      'Byleave: nothing is executed in this folder any more. The project is gone. Run "byleave connect".',
    );
    expect(shown.at(-1)?.items).toEqual(["Connect again"]);
    expect(status()).toBe("$(warning) Byleave: not executing");
  });

  test("offers to connect again what ended for good", async () => {
    const { connector, tokens, started, state } = house();
    await tokens.keep(server.origin, "t");
    await connector.connect(true);
    answers.set("any more", "Connect again");
    state.ended = "The project is gone. Run `byleave connect`.";
    started[0]?.changed();
    await until(() => expect(ran.at(-1)).toEqual(["byleave.connect"]));
  });

  test.each<[string, string]>([
    ["ENOENT", "not there any more. Open it again"],
    ["EACCES", "permissions do not allow it. Correct them"],
  ])("a folder the machine answers %s for says what to do", async (code, words) => {
    const { connector, tokens, startExecuting } = house();
    await tokens.keep(server.origin, "t");
    startExecuting.mockRejectedValue(Object.assign(new Error(`${code}: lstat`), { code }));
    await connector.connect(true);
    await until(() => expect(shown.at(-1)?.text).toContain(words));
    expect(shown.at(-1)?.items).toEqual(["Try again"]);
  });

  test("a server that cannot prove itself gets no token, and the view says why and what to do", async () => {
    const { connector, tokens } = house();
    const claims = ["eyJhbGciOiJIUzI1NiJ9", "e30"].join(".");
    await tokens.keep(server.origin, `${claims}.c2lnbmF0dXJl`);
    await connector.connect(true);
    expect(connector.standing).toMatchObject({ at: "unproven" });
    expect(connector.standing).toMatchObject({ why: expect.stringContaining("did not prove") });
    expect(server.got).toMatchObject([{ path: "/proof", token: "", body: { claims } }]);
    expect(await tokens.read(server.origin)).not.toBeNull();
  });

  test("in a folder that is not trusted executes nothing until it is", async () => {
    const { connector, tokens, startExecuting } = house();
    await tokens.keep(server.origin, "t");
    workspace.isTrusted = false;
    await connector.connect(true);
    await until(() => expect(status()).toBe("$(shield) Byleave: not trusted"));
    expect(startExecuting).not.toHaveBeenCalled();
    workspace.isTrusted = true;
    await connector.trusted();
    await connector.trusted();
    expect(startExecuting).toHaveBeenCalledTimes(1);
  });

  test("tries again before it says that nothing can be executed, keeps the chat, and tries when it is told to", async () => {
    const { connector, tokens, startExecuting } = house();
    await tokens.keep(server.origin, "t");
    const problem = new ConfigurationError("Another window works here.", "close it first");
    for (let at = 0; at < 3; at++) startExecuting.mockRejectedValueOnce(problem);
    answers.set("nothing can be executed", "Try again");
    await connector.connect(true);
    expect(shown).toEqual([]);
    await until(() => expect(startExecuting).toHaveBeenCalledTimes(4));
    expect(shown.map(({ text }) => text)).toEqual([
      "Byleave: nothing can be executed in this folder: Another window works here. Close it first.",
    ]);
    await until(() => expect(status()).toBe("$(check) Byleave"));
  });

  test("an ending window starts nothing any more", async () => {
    const { connector, tokens, startExecuting } = house();
    await tokens.keep(server.origin, "t");
    startExecuting.mockImplementationOnce(async () => {
      await connector.dispose();
      throw "not today";
    });
    await connector.connect(true);
    expect(startExecuting).toHaveBeenCalledTimes(1);
    expect(shown).toEqual([]);
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
    const { connector, tokens, started } = house();
    await tokens.keep(server.origin, "t");
    await Promise.all([connector.connect(true), connector.connect(true)]);
    await until(() => expect(connector.standing.at).toBe("connected"));
    expect(started).toHaveLength(1);
  });
});

describe("while it is connected", () => {
  async function connected(outageMs?: number) {
    const made = house(outageMs);
    await made.tokens.keep(server.origin, "t");
    await made.connector.connect(true);
    await server.until(() => server.streams.length === 1);
    await until(() => expect(made.connector.live?.link).toBe("up"));
    return made;
  }

  test("a question is counted, and told only while the chat is hidden", async () => {
    const { seen } = await connected();
    seen.visible = true;
    server.send(1, question("a"));
    await until(() => expect(status()).toBe("$(bell-dot) Byleave: 1 waiting"));
    expect(shown).toEqual([]);
    seen.visible = false;
    server.send(2, question("b"));
    await until(() => expect(shown.at(-1)?.text).toContain("Byleave asks"));
    settings.set("notifications", false);
    server.send(3, question("c"));
    await until(() => expect(status()).toBe("$(bell-dot) Byleave: 3 waiting"));
    expect(shown).toHaveLength(1);
    server.send(4, decided("c"));
    await until(() => expect(status()).toBe("$(bell-dot) Byleave: 2 waiting"));
  });

  test("Show leads to the chat, and a write's difference opens by itself where that is wanted", async () => {
    const { openWaiting } = await connected();
    const change = { path: "a.md", kind: "change", before: "b", after: "x" };
    server.routes.set("GET /my/approvals/w/change", [200, { approval_id: "w", digest: "digest of w", change }]);
    settings.set("openDiffs", true);
    answers.set("Byleave asks", "Show");
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
      expect(shown.at(-1)?.text).toBe('Byleave: It ran longer than 300 s. Start it with "byleave up".'),
    );
    await until(() => expect(openWaiting).toHaveBeenCalled());
    server.send(2, { ...ended, error: "It failed.", error_type: "tool_error" });
    seen.visible = true;
    server.send(3, { ...ended, error: "Nobody answered.", error_type: "approval_timeout" });
    server.send(4, question("z"));
    await until(() => expect(status()).toContain("1 waiting"));
    expect(shown).toHaveLength(1);
  });

  test.each([
    [
      { error: `sleep ran longer than 1 s and was ended.\nhint: ${MORE_TIME}`, error_type: "execution_timeout" },
      "Byleave: sleep ran longer than 1 s and was ended. If it needs longer, ask the agent to allow it more time: at most 300 seconds.",
    ],
    [
      {
        error: `The search took longer than 10 s and was ended.\nhint: ${SEARCH_LESS}`,
        error_type: "execution_timeout",
      },
      "Byleave: The search took longer than 10 s and was ended. The agent was told to search a smaller part.",
    ],
    [
      { error: "The client did not report a result in time.", error_type: "execution_timeout" },
      "Byleave: The client did not report a result in time. The chat shows what is known of it.",
    ],
    [
      { error: "Approval timeout", error_type: "approval_timeout", status: "TIMEOUT" },
      "Byleave: nobody answered a question in time, so what it asked for was not done. Ask the agent again if you want it.",
    ],
  ])(
    "what an agent is told of a call that ended late is told to a person in a person's words (%#)",
    async (how, words) => {
      await connected();
      const base = {
        kind: "tool.finished",
        tool_id: "t",
        tool_name: "execute_command",
        status: "FAILED",
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
    const { connector, disposed } = await connected();
    workspace.workspaceFolders = [folder("/a/demo"), folder("/a/other")];
    await connector.foldersChanged();
    expect(disposed).not.toHaveBeenCalled();
    workspace.workspaceFolders = undefined;
    await connector.foldersChanged();
    expect(disposed).toHaveBeenCalledTimes(1);
    expect(connector.standing.at).toBe("no-folder");
  });

  test("another server in the settings ends this connection, and the same one does not", async () => {
    const { connector, disposed } = await connected();
    await connector.serverChanged();
    expect(disposed).not.toHaveBeenCalled();
    settings.set("serverUrl", "nonsense");
    await connector.serverChanged();
    expect(connector.standing.at).toBe("bad-address");
    settings.set("serverUrl", "https://elsewhere.example.com");
    await connector.serverChanged();
    expect(connector.standing.at).toBe("signed-out");
    expect(disposed).toHaveBeenCalledTimes(1);
  });

  test("another sandbox in the settings holds at once: the client is started again with it", async () => {
    const { connector, disposed, startExecuting } = await connected();
    await connector.sandboxChanged();
    expect(disposed).toHaveBeenCalledTimes(1);
    expect(startExecuting).toHaveBeenCalledTimes(2);
    await connector.disconnect();
    await connector.sandboxChanged();
    expect(startExecuting).toHaveBeenCalledTimes(2);
  });

  test("disconnecting ends what executes", async () => {
    const { connector, disposed } = await connected();
    await connector.disconnect();
    expect(disposed).toHaveBeenCalledTimes(1);
    expect(connector.live).toBeNull();
  });

  test("the window's end during the start of the client ends it too", async () => {
    const { connector, tokens, startExecuting, disposed } = house();
    await tokens.keep(server.origin, "t");
    startExecuting.mockImplementationOnce(async () => {
      await connector.dispose();
      return { state: { connected: true, isolation: null, ended: null }, dispose: disposed };
    });
    await connector.connect(true);
    expect(disposed).toHaveBeenCalledTimes(1);
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
    expect(shown.at(-1)?.text).toBe("Byleave: nothing waits.");
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
    for (const each of registered) each.dispose();
  });
});

describe("a local server", () => {
  let place: string;

  beforeEach(async () => {
    place = await mkdtemp(join(tmpdir(), "byleave-local-"));
    answers.set("Start a Byleave server", "Start");
  });
  afterEach(() => rm(place, { recursive: true }));

  async function program(serve: string, token = `console.log('{"token": "made"}')`): Promise<void> {
    const path = join(place, "byleave");
    await writeFile(path, `#!${process.execPath}\nif (process.argv[2] === "serve") { ${serve} } else { ${token} }\n`);
    await chmod(path, 0o755);
    settings.set("serverCommand", path);
  }

  test("is started after consent, tells its address, and gives a token", async () => {
    await program(
      `require("fs").writeFileSync("${place}/said", process.argv.slice(2).join(" ")); process.stderr.write("hello\\n"); process.stdout.write('{"ready": true, "ur'); setTimeout(() => process.stdout.write('l": "${server.origin}"}\\n'), 20); setInterval(() => {}, 1000)`,
    );
    const { commands, connector, tokens } = house();
    registerCommands(commands);
    await handlers.get("byleave.startServer")?.();
    expect(await tokens.read(server.origin)).toBe("made");
    expect(connector.standing.at).toBe("connected");
    expect(shown[0]?.detail).toContain("serve on 127.0.0.1");
  });

  test("that runs already is used, and no other is started", async () => {
    await program("process.exit(9)");
    server.routes.set("GET /readyz", [200, {}]);
    answers.set("runs at", "Sign in");
    const started = await house().commands.local.start();
    expect(started).toEqual({ origin: server.origin, token: "made" });
    expect(server.got).toMatchObject([{ path: "/readyz", token: "" }]);
  });

  test("that is not there says how to get it", async () => {
    settings.set("serverCommand", join(place, "missing"));
    answers.set("There is no program", "Open the settings");
    handlers.set("byleave.openSettings", () => {});
    expect(await house().commands.local.start()).toBeNull();
    expect(shown.at(-1)?.text).toContain("pipx install byleave");
    expect(ran.at(-1)).toEqual(["byleave.openSettings"]);
  });

  test("that ends at once tells its last words", async () => {
    await program(`process.stderr.write("one\\nThe port is taken.\\n"); process.exitCode = 3`);
    answers.set("did not start", "Show the log");
    handlers.set("byleave.showLog", () => {});
    settings.set("serverUrl", "https://elsewhere.example.com");
    expect(await house().commands.local.start()).toBeNull();
    expect(shown.at(-1)?.text).toBe("The server did not start: The port is taken.");
    await program("process.exitCode = 3");
    await house().commands.local.start();
    expect(shown.at(-1)?.text).toBe("The server did not start: it ended with 3, and did not say why");
    const both = "error: Cannot listen on 127.0.0.1:1: Address already in use.\\nhint: Choose another --port.\\n";
    await program(`process.stderr.write("2026 warning\\n${both}"); process.exitCode = 1`);
    await house().commands.local.start();
    expect(shown.at(-1)?.text).toBe(
      "The server did not start: Cannot listen on 127.0.0.1:1: Address already in use. Choose another --port.",
    );
  });

  test("whose token program fails tells its words too, and one that may not be run says so", async () => {
    await program(
      `console.log('{"ready": true, "url": "${server.origin}"}'); setInterval(() => {}, 1000)`,
      `process.stderr.write("error: The secret is too short.\\nhint: Run \`byleave up\`.\\n"); process.exitCode = 1`,
    );
    expect(await house().commands.local.start()).toBeNull();
    expect(shown.at(-1)?.text).toBe('The server did not start: The secret is too short. Run "byleave up".');
    settings.set("serverCommand", place); // a directory
    expect(await house().commands.local.start()).toBeNull();
    expect(shown.at(-1)?.text).toContain("You may not run");
  });

  test("that makes no token is ended again", async () => {
    await program(
      `console.log('{"ready": true, "url": "${server.origin}"}'); setInterval(() => {}, 1000)`,
      `console.log("{}")`,
    );
    expect(await house().commands.local.start()).toBeNull();
    expect(shown.at(-1)?.text).toContain("it made no token");
  });
});
