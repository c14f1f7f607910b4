// The editor's small parts: settings, secrets, folder, project, words, status, log, differences, files, output.

import { chmod, mkdir, mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { Api } from "../../../ui/src/api.js";
import { Differences } from "../../src/editor/diffs.js";
import { openFile } from "../../src/editor/files.js";
import { findFolder, forgetFolder } from "../../src/editor/folder.js";
import { ChannelLog } from "../../src/editor/log.js";
import { OutputTerminal, tamed } from "../../src/editor/output.js";
import { Projects } from "../../src/editor/projects.js";
import { Tokens } from "../../src/editor/secrets.js";
import { readSettings, saveServer } from "../../src/editor/settings.js";
import { type Facts, placeOf, type Standing, silence, statusOf } from "../../src/editor/standing.js";
import { StatusBar } from "../../src/editor/status.js";
import { NodeHost } from "../../src/host/node_host.js";
import {
  answers,
  channels,
  closedTerminal,
  editors,
  failing,
  folder,
  Memory,
  ran,
  reset,
  Secrets,
  settings,
  shown,
  statusItems,
  terminals,
  type Uri,
  workspace,
} from "./fake_vscode.js";
import { SmallServer } from "./small_server.js";

beforeEach(reset);

describe("settings", () => {
  test("have defaults, and an address that is none is null", async () => {
    expect(readSettings()).toMatchObject({
      origin: "http://127.0.0.1:8477",
      serverCommand: "byleave",
      connectAtStart: true,
      notify: true,
      openDiffs: false,
      sandbox: "auto",
    });
    settings.set("serverUrl", "nonsense");
    settings.set("sandbox", "none");
    expect(readSettings()).toMatchObject({ origin: null, sandbox: "none" });
    await saveServer("https://a");
    expect(readSettings().origin).toBe("https://a");
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

  const api = () => new Api(new NodeHost({ origin: server.origin, token: "t" }));
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
  ];
  const facts: Facts = { waiting: 0, up: true, trusted: true, isolation: "bwrap", executes: true };
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
    [{ waiting: 1 }, "$(bell-dot) Byleave: 1 waiting"],
    [{ waiting: 3 }, "$(bell-dot) Byleave: 3 waiting"],
    [{ up: false }, "$(sync~spin) Byleave: reconnecting"],
    [{ trusted: false }, "$(shield) Byleave: not trusted"],
    [{ executes: false }, "$(warning) Byleave: not executing"],
    [{ isolation: "none" }, "$(unlock) Byleave: not isolated"],
  ])("connected with %o the status bar shows %s", (some, text) => {
    expect(placeOf(connected)).toEqual({ state: "ready", projectId: "p" });
    expect(statusOf(connected, { ...facts, ...some }).text).toBe(text);
  });

  test("the status bar opens the chat, and is read aloud without names of pictures", () => {
    const bar = new StatusBar();
    bar.show(statusOf(connected, { ...facts, waiting: 2 }));
    const [item] = statusItems;
    expect(item).toMatchObject({
      command: "byleave.openChat",
      backgroundColor: { id: "statusBarItem.warningBackground" },
    });
    expect(item?.accessibilityInformation.label).toBe("Byleave: 2 waiting. 2 questions wait for your answer.");
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

describe("a difference", () => {
  test("opens in the editor's own viewer from two documents that nobody can write", async () => {
    const differences = new Differences();
    await differences.show("src/a.ts (changed)", "old", "new", true);
    const [command, left, right, title, options] = ran[0] as [string, Uri, Uri, string, unknown];
    expect(command).toBe("vscode.diff");
    expect(left.scheme).toBe("byleave-change");
    expect(left.path).toMatch(/\/src\/a\.ts$/);
    expect(title).toBe("src/a.ts (changed): now ↔ as asked");
    expect(options).toEqual({ preview: true, preserveFocus: true });
    expect(differences.provideTextDocumentContent(left as never)).toBe("old");
    expect(differences.provideTextDocumentContent(right as never)).toBe("new");
    for (let at = 0; at < 30; at++) await differences.show("b", "x", "y");
    expect(differences.provideTextDocumentContent(left as never)).toContain("no longer kept");
    differences.dispose();
  });
});

describe("opening a file", () => {
  let root: string;

  beforeEach(async () => {
    root = await mkdtemp(join(tmpdir(), "byleave-files-"));
    await mkdir(join(root, "ws"));
    await writeFile(join(root, "ws", "a.txt"), "one\ntwo\n");
    await writeFile(join(root, "outside.txt"), "secret");
  });
  afterEach(() => rm(root, { recursive: true }));

  test("goes to its line", async () => {
    await openFile(join(root, "ws"), "a.txt", 2);
    expect(editors[0]?.uri.fsPath).toMatch(/ws\/a\.txt$/);
    expect(editors[0]?.revealed[0]?.start.line).toBe(1);
    await openFile(join(root, "ws"), join(root, "ws", "a.txt"), null);
    expect(editors).toHaveLength(2);
  });

  test("never leaves the folder, also not by a link", async () => {
    await symlink("../outside.txt", join(root, "ws", "link"));
    for (const path of ["../outside.txt", "link", join(root, "outside.txt"), ".."])
      await openFile(join(root, "ws"), path, null);
    expect(editors).toEqual([]);
    expect(shown).toHaveLength(4);
    expect(shown.every(({ text }) => text.includes("outside the connected folder"))).toBe(true);
  });

  test("that is gone, may not be read, or fails otherwise is told in a sentence", async () => {
    await openFile(join(root, "ws"), "gone.txt", null);
    failing.open = Object.assign(new Error("no"), { code: "EACCES" });
    await openFile(join(root, "ws"), "a.txt", null);
    failing.open = new Error("It is binary.");
    await openFile(join(root, "ws"), "a.txt", null);
    expect(shown.map(({ text }) => text)).toEqual([
      "There is no gone.txt in the folder now. It was moved or deleted since.",
      "You may not read a.txt: its permissions do not allow it.",
      "a.txt could not be opened: It is binary.",
    ]);
    await chmod(join(root, "ws"), 0o755);
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
    const base = { timestamp: "", session_id: "s", run_id: null, approved_by: null };
    const call = { tool_id: "t", tool_name: "execute_command" };
    output.show();
    expect(terminals[0]?.written).toBe("Output of commands appears here.\r\n");
    output.hear({
      ...base,
      ...call,
      kind: "tool.started",
      tool_params: { command: "ls", args: ["-l"] },
      risk_level: "LOW",
    });
    output.hear({ ...base, kind: "tool.output", tool_id: "t", stream: "stdout", text: "one\u001b[3", sequence: 0 });
    output.hear({ ...base, kind: "tool.output", tool_id: "t", stream: "stdout", text: "1mtwo", sequence: 1 });
    const ended = { status: "COMPLETED", result: null, result_shortened: false, execution_time_ms: 1 } as const;
    output.hear({ ...base, ...call, ...ended, kind: "tool.finished", error: null, error_type: null });
    output.hear({ ...base, ...call, ...ended, kind: "tool.finished", error: "It failed.", error_type: "tool_error" });
    output.hear({ ...base, kind: "chat.text", run_id: "r", text: "not this" });
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
