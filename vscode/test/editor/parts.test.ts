// The editor's small parts: settings, secrets, folder, project, words, status, log, files, output.

import { symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { Api } from "../../../ui/src/api.js";
import type { Host } from "../../../ui/src/host.js";
import { openFile } from "../../src/editor/files.js";
import { findFolder, forgetFolder } from "../../src/editor/folder.js";
import { ChannelLog } from "../../src/editor/log.js";
import { OutputTerminal, tamed } from "../../src/editor/output.js";
import { Projects } from "../../src/editor/projects.js";
import { Tokens } from "../../src/editor/secrets.js";
import { readSettings, saveServer, workspaceSettings } from "../../src/editor/settings.js";
import { type Facts, placeOf, type Standing, silence, statusOf } from "../../src/editor/standing.js";
import { StatusBar } from "../../src/editor/status.js";
import { PathValidator } from "../../src/tools/executors.js";
import { realEngine } from "../engine/real_engine.js";
import {
  answers,
  channels,
  closedTerminal,
  editors,
  failing,
  folder,
  Memory,
  reset,
  Secrets,
  settings,
  shown,
  statusItems,
  terminals,
  workspace,
} from "./fake_vscode.js";
import { SmallServer } from "./small_server.js";

beforeEach(reset);

describe("settings", () => {
  test("have defaults, and an address that is none is null", async () => {
    expect(readSettings()).toEqual({
      origin: "http://127.0.0.1:8477",
      serverUrl: "http://127.0.0.1:8477",
      path: null,
      connectAtStart: true,
      notify: true,
      openDiffs: false,
      approvalTimeoutMs: 300_000,
    });
    settings.set("serverUrl", "nonsense");
    expect(readSettings()).toMatchObject({ origin: null, serverUrl: "nonsense" });
    await saveServer("https://a");
    expect(readSettings().origin).toBe("https://a");
  });

  test("that nobody made are left to the engine", () => {
    expect(Object.values(workspaceSettings())).toEqual(Array(7).fill(null));
  });

  test("of time are told in seconds, and what is no amount is left out", () => {
    settings.set("commandTimeoutMs", 90_400);
    settings.set("approvalTimeoutMs", 400);
    settings.set("fileSizeMaxBytes", 1024.9);
    settings.set("concurrencyLimit", "many");
    settings.set("enableCaching", false);
    settings.set("cacheTtlMs", 0);
    settings.set("sandbox", "bwrap");
    expect(workspaceSettings()).toEqual({
      command_timeout_seconds: 90,
      max_file_bytes: 1024,
      concurrency: null,
      approval_timeout_seconds: 1,
      cache_enabled: false,
      cache_seconds: 0,
      sandbox: "bwrap",
    });
    settings.set("fileSizeMaxBytes", -1);
    settings.set("cacheTtlMs", 1500);
    expect(workspaceSettings()).toMatchObject({ max_file_bytes: null, cache_seconds: 1.5 });
  });
});

test("a token is kept for its server alone", async () => {
  const tokens = new Tokens(new Secrets() as never);
  await tokens.keep("https://a", "secret");
  expect(await tokens.read("https://a")).toBe("secret");
  expect(await tokens.read("https://b")).toBeNull();
  await tokens.forget("https://a");
  expect(await tokens.read("https://a")).toBeNull();
});

describe("the folder", () => {
  test("is none without one, and none that could execute in a virtual workspace", async () => {
    expect(await findFolder(new Memory() as never, true)).toEqual({ kind: "none" });
    workspace.workspaceFolders = [folder("/x", "vscode-vfs")];
    expect(await findFolder(new Memory() as never, true)).toEqual({ kind: "virtual" });
  });

  test("is the only one, and of several the one that was chosen once", async () => {
    const [one, two] = [folder("/a/one"), folder("/a/two")];
    workspace.workspaceFolders = [one];
    const memory = new Memory();
    expect(await findFolder(memory as never, false)).toEqual({ kind: "folder", folder: one });
    workspace.workspaceFolders = [one, two];
    expect(await findFolder(memory as never, false)).toEqual({ kind: "unchosen" });
    answers.set("which folder", "two");
    expect(await findFolder(memory as never, true)).toEqual({ kind: "folder", folder: two });
    answers.clear();
    expect(await findFolder(memory as never, true)).toEqual({ kind: "folder", folder: two });
    expect(shown).toHaveLength(1);
    await forgetFolder(memory as never);
    expect(await findFolder(memory as never, true)).toEqual({ kind: "unchosen" });
  });
});

describe("the project of a folder", () => {
  let server: SmallServer;
  const here = folder("/a/demo") as never;

  beforeEach(async () => {
    server = await SmallServer.open();
  });
  afterEach(() => server.close());

  const host: Pick<Host, "request"> = {
    async request(method, path, body) {
      const answer = await fetch(`${server.origin}${path}`, {
        method,
        ...(body ? { body: JSON.stringify(body) } : {}),
      });
      return { status: answer.status, body: await answer.json(), serverTime: null };
    },
  };
  const api = () => new Api(host as Host);
  const some = { projects: [{ project_id: "p1", name: "one", created_at: "" }], total_count: 1 };

  test("is made and remembered when there is none", async () => {
    const projects = new Projects(new Memory() as never);
    expect((await projects.find(api(), server.origin, here))?.project_id).toBe("proj_new");
    expect(server.got.at(-1)?.body).toEqual({ name: "demo" });
    expect(projects.known(server.origin, here)).toBe("proj_new");
    await projects.forget(server.origin, here);
    expect(projects.known(server.origin, here)).toBeNull();
  });

  test("is picked once among those there are, or made, or left", async () => {
    server.routes.set("GET /my/projects", [200, some]);
    const projects = new Projects(new Memory() as never);
    expect(await projects.find(api(), server.origin, here)).toBeNull();
    answers.set("which project", '$(add) New project "demo"');
    expect((await projects.find(api(), server.origin, here))?.project_id).toBe("proj_new");
    answers.set("which project", "one");
    expect((await projects.find(api(), server.origin, here))?.project_id).toBe("p1");
    expect((await projects.find(api(), server.origin, here))?.project_id).toBe("p1");
    expect(shown).toHaveLength(3);
  });
});

describe("the words for where it stands", () => {
  const all: Standing[] = [
    { at: "no-folder" },
    { at: "virtual" },
    { at: "unchosen" },
    { at: "bad-address" },
    { at: "disconnected" },
    { at: "connecting" },
    { at: "signed-out", why: null },
    { at: "signed-out", why: "It expired." },
    { at: "unreachable", origin: "http://x", status: 0 },
    { at: "unreachable", origin: "http://127.0.0.1:1", status: 0 },
    { at: "unreachable", origin: "http://127.0.0.1:1", status: 502 },
    { at: "unproven", why: "It did not prove itself." },
    { at: "refused", why: "No." },
    { at: "no-engine", why: "Byleave needs Python 3.11." },
  ];
  const facts: Facts = {
    waiting: 0,
    up: true,
    trusted: true,
    isolation: "bwrap",
    warnings: [],
    executes: true,
    elsewhere: false,
  };
  const connected: Standing = { at: "connected", projectId: "p", folder: "demo" };

  test.each(all)("%o says what to do", (standing) => {
    const place = placeOf(standing);
    if (place.state !== "away") throw new Error("there is no chat to show");
    expect(place.title).not.toBe("");
    expect(place.busy).toBe(standing.at === "connecting");
    if (!place.busy) expect(place.actions.length).toBeGreaterThan(0);
    expect(statusOf(standing, facts).text).toContain("Byleave");
  });

  test("no answer is told with what can be done about it here", () => {
    expect(silence("https://team.example", 0)).toContain("ask who runs it");
    expect(silence("http://127.0.0.1:1", 0)).toContain("byleave serve");
    expect(silence("http://127.0.0.1:1", 502)).toContain("(502)");
  });

  test.each<[Partial<Facts>, string]>([
    [{}, "$(check) Byleave"],
    [{ isolation: null }, "$(check) Byleave"],
    [{ waiting: 1 }, "$(bell-dot) Byleave: 1 to review"],
    [{ waiting: 3 }, "$(bell-dot) Byleave: 3 to review"],
    [{ up: false }, "$(sync~spin) Byleave: reconnecting"],
    [{ trusted: false }, "$(shield) Byleave: not trusted"],
    [{ executes: false }, "$(warning) Byleave: not executing"],
    [{ isolation: "none" }, "$(unlock) Byleave: not isolated"],
  ])("connected with %o the status bar shows %s", (some, text) => {
    expect(placeOf(connected)).toEqual({ state: "ready", projectId: "p" });
    expect(statusOf(connected, { ...facts, ...some }).text).toBe(text);
  });

  test("what is weaker than it should be is in the tooltip", () => {
    const { tooltip } = statusOf(connected, { ...facts, warnings: ["No limit on memory."] });
    expect(tooltip).toBe(
      "Connected: agents may work in demo, as you allow it. Commands are held by bwrap.\nNo limit on memory.",
    );
  });

  test("the status bar opens the chat, and is read aloud without names of pictures", () => {
    const bar = new StatusBar();
    bar.show(statusOf(connected, { ...facts, waiting: 2 }));
    const [item] = statusItems;
    expect(item).toMatchObject({
      command: "byleave.openChat",
      backgroundColor: { id: "statusBarItem.warningBackground" },
    });
    expect(item?.accessibilityInformation.label).toBe("Byleave: 2 to review. Nothing runs without your approval.");
    bar.show(statusOf(connected, facts));
    expect(item?.backgroundColor).toBeUndefined();
    bar.dispose();
  });
});

test("the log has levels and fields, and nothing in it is obeyed", () => {
  const log = new ChannelLog();
  log.debug("a", { b: 1 });
  log.info("a");
  log.warn("a", {});
  log.error("a\u001b[2J");
  log.show();
  expect(channels[0]).toEqual({ lines: ['debug a {"b":1}', "info a", "warn a", "error a\\u{1b}[2J"], shown: 1 });
  log.dispose();
});

describe("opening a file", () => {
  const { engine, folder: make } = realEngine();
  const paths = new PathValidator(engine);
  let server: SmallServer;
  let root: string;

  beforeAll(async () => {
    root = make("ws");
    await writeFile(join(root, "a.txt"), "one\ntwo\n");
    await writeFile(join(root, "..", "outside.txt"), "secret");
    await symlink("../outside.txt", join(root, "link"));
    await symlink("a.txt", join(root, "inside"));
    server = await SmallServer.open();
    await engine.start();
    await engine.useServer({ server_url: server.origin, token: "t" });
    await engine.connect({ project_id: "p", workspace: root, settings: {} });
  });
  afterAll(() => server.close());

  test("goes to its line, by its real name", async () => {
    await openFile(paths, "a.txt", 2);
    expect(editors[0]?.uri.fsPath).toBe(join(root, "a.txt"));
    expect(editors[0]?.revealed[0]?.start.line).toBe(1);
    await openFile(paths, "inside", null);
    expect(editors[1]?.uri.fsPath).toBe(join(root, "a.txt"));
    expect(shown).toEqual([]);
  });

  test("never leaves the folder, also not by a link", async () => {
    for (const path of ["../outside.txt", "link", "/etc/passwd", ".."]) await openFile(paths, path, null);
    expect(editors).toEqual([]);
    expect(shown).toHaveLength(4);
    for (const { text } of shown) expect(text).toMatch(/^Byleave: .* cannot be opened: \S/);
  });

  test("that the editor cannot show, or whose name would be a link, is told in a sentence", async () => {
    failing.open = new Error("It is binary.");
    await openFile(paths, "a.txt", null);
    await openFile(paths, "../[x](command:y)", null);
    expect(shown.map(({ text }) => text)).toEqual([
      "Byleave: a.txt cannot be opened: it is not there, or is no text.",
      expect.stringContaining("[x] (command:y)"),
    ]);
  });

  test("is not possible without the engine's word", async () => {
    await engine.leave();
    await openFile(paths, "a.txt", null);
    expect(editors).toEqual([]);
    expect(shown.at(-1)?.text).toMatch(/^Byleave: a\.txt cannot be opened now: /);
  });
});

describe("output", () => {
  test("keeps colours of the text and drops everything else a terminal obeys", () => {
    expect(tamed("\u001b[31mred\u001b[0m")).toBe("\u001b[31mred\u001b[0m");
    expect(tamed("\u001b[m")).toBe("\u001b[0m");
    expect(tamed("a\u001b[8mhidden\u001b[2J\u001b]0;title\u0007\u001b]52;c;x\u001b\\b\u001bc")).toBe("ahiddenb");
    expect(tamed("a\r\nb\rc\u0007")).toBe("a\r\nb\r\nc\\u{7}");
  });

  test("shows commands, what they print as it comes, and how they ended", () => {
    const output = new OutputTerminal();
    const call = { tool_id: "t", tool_name: "execute_command", timestamp: "" };
    const started = { ...call, approved_by: "risk:LOW", tool_params: { command: "ls", args: ["-l"] } };
    const ended = { ...call, status: "success", result: null, error: null, error_type: null, duration_ms: 1 } as const;
    output.show();
    expect(terminals[0]?.written).toBe("Output of commands appears here.\r\n");
    output.started(started);
    output.output({ tool_id: "t", stream: "stdout", text: "one\u001b[3" });
    output.output({ tool_id: "t", stream: "stdout", text: "1mtwo" });
    output.ended({ ...ended, result: { stdout: "not twice" } });
    output.started({ ...started, tool_id: "quick" });
    output.ended({
      ...ended,
      tool_id: "quick",
      status: "error",
      error: "It failed.",
      result: { stdout: "at once\u001b[2J" },
    });
    output.started({ ...started, tool_name: "read_file", tool_params: { path: "secret" } });
    output.ended({ ...ended, tool_name: "read_file", result: { stdout: "not this" } });
    expect(terminals[0]?.written).not.toMatch(/not this|not twice|secret/);
    expect(terminals[0]?.written).not.toContain("\u001b[2J");
    expect(terminals[0]?.written).toContain("at once");
    expect(terminals[0]?.written).toContain("ls -l");
    expect(terminals[0]?.written).toContain("one\u001b[31mtwo");
    expect(terminals[0]?.written).toContain("— done");
    expect(terminals[0]?.written).toContain("— It failed.");
    output.show();
    expect(terminals).toHaveLength(1);
    closedTerminal.fire(terminals[0]);
    output.show();
    expect(terminals).toHaveLength(2);
    expect(terminals[1]?.written).toContain("ls -l");
    output.dispose();
  });
});
