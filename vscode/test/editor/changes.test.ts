// What agents changed, listed and taken back in the editor: the real engine at work in a real folder, for a small server.

import { existsSync, mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { ChangedFile, UndoList, UndoPlan } from "@protocol";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { ChangedFiles, type KeptFolder } from "../../src/editor/changes.js";
import { Differences } from "../../src/editor/diffs.js";
import { searchSettings, setSearchKey } from "../../src/editor/web_search.js";
import { EngineError } from "../../src/engine/engine.js";
import { realEngine } from "../engine/real_engine.js";
import { until } from "../waiting.js";
import {
  answers,
  codeMarks,
  folderSettings,
  handlers,
  ran,
  reset,
  Secrets,
  settings,
  shown,
  type TabInputTextDiff,
  tabs,
  type Uri,
} from "./fake_vscode.js";
import { SmallServer } from "./small_server.js";

const { engine, folder } = realEngine();
let count = 0;
let root: string;
let server: SmallServer;
let view: ChangedFiles;
let differences: Differences;
let hide: () => void;
const api = { undoPlan: vi.fn(), undo: vi.fn() };

beforeEach(async () => {
  reset();
  root = folder(`ws${count++}`);
  mkdirSync(join(root, "src"));
  writeFileSync(join(root, "a.txt"), "one\n");
  writeFileSync(join(root, "src/b $(x).txt"), "two\n");
  server = await SmallServer.open();
  await engine.start();
  await engine.useServer({ server_url: server.origin, token: "t" });
  await engine.connect({ project_id: "proj_new", workspace: root, settings: {} });
  await server.until(() => server.clients.length === 1);
  differences = new Differences();
  view = new ChangedFiles(differences);
  hide = view.show({ engine, api, folder: root });
});

afterEach(async () => {
  hide();
  view.dispose();
  await engine.leave();
  await server.close();
  expect(codeMarks()).toEqual([]);
});

/** An agent's write, and the list that has it. */
async function write(id: string, path: string, content: string): Promise<void> {
  expect(await server.execute(id, "write_file", { path, content, mode: "write" })).toMatchObject({
    status: "completed",
  });
  await until(() => expect(view.getChildren().map(({ tool_id }) => tool_id)).toContain(id));
}

const text = (path: string) => readFileSync(join(root, path), "utf8");
const first = () => view.getChildren()[0] as ChangedFile;
const press = (command: string) => handlers.get(`byleave.${command}`)?.(first());
const last = () => shown.at(-1)?.text;

/** Shows the list of an engine of which something is otherwise. */
function showWith(ask: (method: string, params: never, real: KeptFolder["engine"]["ask"]) => unknown): void {
  hide();
  const real = engine.ask.bind(engine);
  const asked = (method: string, params: never) => ask(method, params, real);
  hide = view.show({ engine: { ask: asked as never, on: engine.on.bind(engine) }, api, folder: root });
}

describe("what another client changed", () => {
  const ended = (tool_id: string, tool_name: string, result: Record<string, unknown> | null) =>
    view.heard({
      kind: "tool.finished",
      timestamp: "2026-01-01T12:00:00.000Z",
      tool_id,
      tool_name,
      status: "completed",
      result,
      result_shortened: false,
      error: null,
      error_type: null,
      execution_time_ms: 1,
      session_id: "s",
      run_id: null,
      approved_by: null,
    });
  const listed = () => view.getChildren().map(({ kind, path, tool_id }) => [tool_id, kind, path]);

  test("is listed once, with what a command did, and goes when it is undone", async () => {
    await write("exec_own", "a.txt", "new\n");
    ended("exec_own", "write_file", { path: "a.txt" });
    ended("exec_1", "write_file", { path: "other.md" });
    ended("exec_2", "read_file", { content: "x" });
    const changed = [
      { path: "made", change: "created" },
      { path: "gone", change: "deleted" },
      { path: "b", change: "changed" },
    ];
    ended("exec_3", "execute_command", { exit_code: 0, changed });
    await until(() =>
      expect(listed()).toEqual([
        ["exec_own", "change", "a.txt"],
        ["exec_3", "create", "made"],
        ["exec_3", "delete", "gone"],
        ["exec_3", "change", "b"],
        ["exec_1", "change", "other.md"],
      ]),
    );
    view.heard({
      kind: "tool.undone",
      timestamp: "2026-01-01T12:00:01.000Z",
      tool_id: "exec_3",
      undo_id: null,
      files: 3,
      undone_by: "person:alice",
      session_id: "s",
    });
    await until(() => expect(listed()).toHaveLength(2));
  });

  test("opens and is undone through the server", async () => {
    ended("exec_1", "write_file", { path: "other.md" });
    const files = [{ path: "other.md", kind: "change", before: "now", after: "then" }];
    api.undoPlan.mockResolvedValue({ tool_id: "exec_1", plan: "p", files, total_files: 1 });
    api.undo.mockResolvedValue({ message: "Undone: 1 path is as before the call." });
    await view.open(first());
    const { input } = tabs.tabs[0] as { input: TabInputTextDiff };
    expect(differences.provideTextDocumentContent(input.original as never)).toBe("then");
    expect(differences.provideTextDocumentContent(input.modified as never)).toBe("now");
    answers.set("Undo this change?", "Undo");
    await press("undoChange");
    expect(api.undo).toHaveBeenCalledWith("exec_1", { plan: "p", partial: false });
    expect(last()).toBe("Byleave: Undone: 1 path is as before the call.");
    api.undoPlan.mockResolvedValue({ tool_id: "exec_1", plan: "p", files: [], total_files: 1 });
    await view.open(first());
    expect(last()).toContain("cannot be shown: there are too many files.");
    api.undoPlan.mockResolvedValue({ tool_id: "exec_1", plan: "p", files: [], total_files: 0 });
    await view.open(first());
    expect(last()).toBe("Byleave: other.md is as it was before the call.");
    api.undoPlan.mockRejectedValue(new EngineError("No machine.", "Unavailable"));
    await view.open(first());
    expect(last()).toContain("No machine.");
  });
});

describe("the list of changed files", () => {
  test("has the newest first, says what became of each, and follows what happens", async () => {
    await write("exec_1", "a.txt", "new\n");
    await write("exec_2", "src/b $(x).txt", "new\n");
    await write("exec_3", "made.txt", "new\n");
    const items = view.getChildren().map((file) => view.getTreeItem(file));
    expect(items.map(({ description, label }) => [label, String(description).replace(/, .*/, "")])).toEqual([
      ["made.txt", "new"],
      ["b \\$(x).txt", "changed in src"],
      ["a.txt", "changed"],
    ]);
    expect(items[0]).toMatchObject({ id: "exec_3 made.txt", contextValue: "byleave.change" });
    expect(items[0]?.description).toBe("new, just now");
    expect(items[0]?.tooltip).toMatch(/^made\.txt: created by an agent at \d\d:\d\d/);
    expect(view.getChildren(first())).toEqual([]);
    const file = first();
    let told = 0;
    view.onDidChangeTreeData(() => {
      told += 1;
    });
    hide();
    expect([view.getChildren(), told]).toEqual([[], 1]);
    // An empty list takes no room in the side bar: there is a view only while it has something.
    expect(view.getChildren()).toEqual([]);
    await view.open(file);
    await view.undo(file);
    await view.bringBack();
    expect(shown).toEqual([]);
  });

  test("says how long ago each was, and says it anew as time goes on", async () => {
    await write("exec_1", "a.txt", "new\n");
    hide();
    vi.useFakeTimers({ toFake: ["setInterval", "clearInterval", "Date"] });
    try {
      let told = 0;
      view.onDidChangeTreeData(() => {
        told += 1;
      });
      hide = view.show({ engine, api, folder: root });
      await until(() => expect(view.getChildren()).toHaveLength(1));
      const said = told;
      vi.advanceTimersByTime(120_000);
      expect(told).toBe(said + 2);
      expect(view.getTreeItem(first()).description).toBe("changed, 2 min ago");
      hide();
      const over = told;
      vi.advanceTimersByTime(120_000);
      expect(told).toBe(over);
    } finally {
      vi.useRealTimers();
    }
  });

  test("opens what was there against what is there now, and follows no link that came since", async () => {
    await write("exec_1", "a.txt", "new\n");
    await press("openChange");
    const [, left, right, title] = ran.at(-1) as [string, Uri, Uri, string];
    expect(differences.provideTextDocumentContent(left as never)).toBe("one\n");
    expect([right.scheme, right.fsPath]).toEqual(["file", join(root, "a.txt")]);
    expect(title).toBe("a.txt: before the agent ↔ now");
    rmSync(join(root, "a.txt"));
    symlinkSync("/etc/hostname", join(root, "a.txt"));
    await press("openChange");
    const [, , gone] = ran.at(-1) as [string, Uri, Uri];
    expect([gone.scheme, differences.provideTextDocumentContent(gone as never)]).toEqual(["byleave-change", ""]);
  });

  test("says where a content cannot be shown", async () => {
    writeFileSync(join(root, "a.txt"), Buffer.from([0, 1]));
    await write("exec_1", "a.txt", "new\n");
    await press("openChange");
    expect(last()).toMatch(/a\.txt held before cannot be shown/);
  });

  test("stays as it is while the engine is gone", async () => {
    await write("exec_1", "a.txt", "new\n");
    const before = view.getChildren();
    const { pid } = engine;
    process.kill(Number(pid), "SIGKILL");
    await until(() => expect(engine.pid).not.toBeOneOf([null, pid]));
    await until(() => expect(view.getChildren()).toEqual(before));
  });
});

/** What the dialog says of such a plan of the server. */
async function askedOf(plan: Partial<UndoPlan>): Promise<string | undefined> {
  const whole = { tool_id: "exec_1", plan: "0".repeat(64), files: [], total_files: 0, ...plan };
  server.routes.set("GET /my/tools/exec_1/undo", [200, whole]);
  await view.undo({ tool_id: "exec_1", path: "a.txt", kind: "change", at: "", interrupted: false });
  return shown.at(-1)?.detail;
}

describe("undoing", () => {
  test("asks first, says what it would do, and does it here where the server does not know the call", async () => {
    await write("exec_1", "made/a.txt", "new\n");
    await press("undoChange");
    // Enter presses the first one.
    const items = ["Show the Difference", "Undo"];
    expect(shown.at(-1)).toMatchObject({ kind: "warning", text: "Undo this change?", items });
    expect(shown.at(-1)?.detail).toBe(
      [
        "The agent did this in one step, so it is undone as a whole:",
        "made (a directory) will be deleted: the agent created it.",
        "made/a.txt will be deleted: the agent created it.",
      ].join("\n"),
    );
    answers.set("Undo this change?", "Show the Difference");
    await press("undoChange");
    expect(ran.at(-1)?.[0]).toBe("vscode.diff");
    expect(text("made/a.txt")).toBe("new\n");
    answers.set("Undo this change?", "Undo");
    await press("undoChange");
    expect(last()).toMatch(/Undone\. The server could not be told/);
    expect(existsSync(join(root, "made"))).toBe(false);
    expect(view.getChildren()).toEqual([]);
  });

  test("does nothing where the file changed since, and where it is gone from the list", async () => {
    await write("exec_1", "a.txt", "new\n");
    const file = first();
    writeFileSync(join(root, "a.txt"), "mine\n");
    await press("undoChange");
    expect(last()).toBe(
      "Byleave: Nothing was undone: a.txt was changed again since. Undo the later changes first; what you changed yourself is yours to merge.",
    );
    await view.undo({ ...file, tool_id: "exec_9" });
    expect(last()).toMatch(/Nothing that 'exec_9' changed/);
    expect(text("a.txt")).toBe("mine\n");
  });

  test("of what was not kept says so, and of what is back that there is nothing to do", async () => {
    const done = { tool_id: "exec_1", state: "done", undo_id: null, files: 0, message: "Done." };
    server.routes.set("POST /my/tools/exec_1/undo", [200, done]);
    answers.set("Undo what can be undone", "Undo");
    await askedOf({ lost: { "a.txt": "too large" }, notes: ["n"] });
    expect(shown.at(-2)).toMatchObject({ detail: "a.txt cannot be brought back: too large.\nn" });
    expect(last()).toBe("Byleave: Done.");
    expect(server.asked("/undo").at(-1)?.body).toMatchObject({ partial: true });
    expect(await askedOf({})).toBe("There is nothing to change: everything is already as it was before.");
    await askedOf({ conflicts: ["a", "b", "c", "d"] });
    expect(last()).toMatch(/Nothing was undone: a, b, c and 1 more were changed again since\./);
    const files = Array.from({ length: 20 }, () => ({ path: "x", kind: "change" as const }));
    expect(await askedOf({ files, total_files: 30, notes: ["n"] })).toMatch(/\nand 18 more\nn$/);
  });

  test.each<[string, Partial<UndoPlan["files"][number]>, string]>([
    ["a file that the agent made", { kind: "delete" }, "x.md will be deleted: the agent created it."],
    ["one that it deleted", { kind: "create" }, "x.md will be restored: the agent deleted it."],
    ["one that it changed", { kind: "change" }, "x.md will be changed back to what it was before."],
    [
      "one that is not shown",
      { kind: "change", note: "mode 755 becomes 644", unshown: "not shown: it may hold secrets" },
      "x.md will be changed back to what it was before (mode 755 becomes 644).",
    ],
    [
      "a link that it made of a file",
      { kind: "change", note: "a link to 'b' becomes a file" },
      "x.md will be changed back to what it was before (a link to 'b' becomes a file).",
    ],
    [
      "a link",
      { kind: "create", note: "a link to 'b'" },
      "x.md (a link to 'b') will be restored: the agent deleted it.",
    ],
    [
      "what differs in secrets alone",
      { kind: "change", unshown: "it differs only in what is masked here" },
      "x.md will be changed back to what it was before.",
    ],
  ])("says of %s in words what becomes of it", async (_, change, words) => {
    const files = [{ path: "x.md", ...change } as UndoPlan["files"][number]];
    expect(await askedOf({ total_files: 1, files })).toBe(words);
  });

  test("says that calls ran at the same time, as the terminal does", async () => {
    expect(await askedOf({ together: ["exec_2"], notes: ["npm runs it at `npm test`."] })).toMatch(
      /\nOther calls ran at the same time; some of this may be their doing\.\nnpm runs it at "npm test"\.$/,
    );
  });

  test("goes through the server while it knows the call; what it refuses is said", async () => {
    await write("exec_1", "a.txt", "new\n");
    const plan = await engine.ask("undo/preview", { tool_id: "exec_1" });
    server.routes.set("GET /my/tools/exec_1/undo", [200, plan]);
    const done = { tool_id: "exec_1", state: "done", undo_id: null, files: 1, message: "Undone: as `before`." };
    server.routes.set("POST /my/tools/exec_1/undo", [200, done]);
    answers.set("Undo this change?", "Undo");
    await press("undoChange");
    expect(server.asked("/undo").at(-1)?.body).toEqual({ plan: plan.plan, partial: false });
    expect(last()).toBe('Byleave: Undone: as "before".');
    const busy = { title: "Busy", status: 409, detail: "It is busy.", hint: "try again", state: "busy" };
    server.routes.set("POST /my/tools/exec_1/undo", [409, busy]);
    await press("undoChange");
    expect(last()).toBe("Byleave: It is busy. Try again.");
    expect(text("a.txt")).toBe("new\n");
  });

  test("can be taken back at once, and not once somebody changed the file since", async () => {
    answers.set("Undo this change?", "Undo");
    answers.set("Undone.", "Bring It Back");
    await write("exec_1", "a.txt", "new\n");
    await press("undoChange");
    await until(() => expect(last()).toMatch(/Brought back: it is as it was before the undo/));
    expect(text("a.txt")).toBe("new\n");
    await until(() => expect(view.getChildren()).toHaveLength(1));
    answers.delete("Undone.");
    await press("undoChange");
    expect(text("a.txt")).toBe("one\n");
    writeFileSync(join(root, "a.txt"), "mine\n");
    answers.set("bring back what was undone", "a.txt");
    await handlers.get("byleave.bringBack")?.();
    expect(last()).toBe("Byleave: Nothing was brought back: a.txt changed since the undo.");
    expect(text("a.txt")).toBe("mine\n");
  });

  test("that was asked for elsewhere is told, and the button stays until it is taken back", async () => {
    await write("exec_1", "a.txt", "new\n");
    answers.set("Undone, as asked in the chat or on the page: a.txt.", "Bring It Back");
    answers.set("A call runs in this workspace", "Bring It Back");
    let busy = true;
    showWith((method, params, real) => {
      if (method !== "undo/bringBack" || !busy) return real(method as never, params);
      busy = false;
      return Promise.reject(new EngineError("A call runs in this workspace.", "ConflictError", "try again"));
    });
    const asked = {
      kind: "tool.undo_request",
      tool_id: "exec_1",
      client_id: server.client.id,
      session_id: "s",
      partial: false,
    };
    const times = { timestamp: new Date().toISOString(), deadline: new Date(Date.now() + 60_000).toISOString() };
    const reports = () => server.asked("/undo-report");
    server.send(1, { ...asked, ...times, request_id: "r1", plan: null });
    await server.until(() => reports().length === 1);
    const [first] = reports() as { body: { plan: UndoPlan } }[];
    server.send(2, { ...asked, ...times, request_id: "r2", plan: first?.body.plan.plan });
    await until(() => expect(last()).toMatch(/Brought back: it is as it was before the undo/));
    expect(shown.map(({ kind }) => kind)).toEqual(["info", "warning", "info"]);
    expect(text("a.txt")).toBe("new\n");
    await until(() => expect(view.getChildren()).toHaveLength(1));
  });

  test("that stopped in the middle is told when the folder is opened again, and can be finished from there", async () => {
    await write("exec_1", "made.txt", "new\n");
    answers.set("an undo stopped in the middle", "Finish It…");
    answers.set("Undo this change?", "Undo");
    showWith(async (method, params, real) => {
      const told = await real(method as never, params);
      if (method !== "undo/list") return told;
      const list = told as UndoList;
      return { ...list, changes: list.changes.map((change) => ({ ...change, interrupted: true })) };
    });
    await until(() => expect(last()).toMatch(/Undone/));
    expect(shown[0]).toMatchObject({
      kind: "warning",
      text: expect.stringContaining("Of what an agent did to made.txt and the files with it, only a part"),
    });
    expect(existsSync(join(root, "made.txt"))).toBe(false);
  });

  test("that was dismissed can be taken back later, from a list of what was undone", async () => {
    await handlers.get("byleave.bringBack")?.();
    expect(last()).toMatch(/nothing was undone here that could be brought back/);
    answers.set("Undo this change?", "Undo");
    for (const [id, path] of Object.entries({ exec_1: "a.txt", exec_2: "src/b $(x).txt" })) {
      await write(id, path, "new\n");
      await press("undoChange");
    }
    await handlers.get("byleave.bringBack")?.();
    expect(shown.at(-1)).toMatchObject({ kind: "pick", items: ["src/b \\$(x).txt", "a.txt"] });
    answers.set("bring back what was undone", "a.txt");
    await handlers.get("byleave.bringBack")?.();
    expect(last()).toBe("Byleave: Brought back: it is as it was before the undo.");
    expect([text("a.txt"), text("src/b $(x).txt")]).toEqual(["new\n", "two\n"]);
    // It is back, and not undone any more.
    answers.delete("bring back what was undone");
    await handlers.get("byleave.bringBack")?.();
    expect(shown.at(-1)).toMatchObject({ kind: "pick", items: ["src/b \\$(x).txt"] });
  });

  test("of what is already as it was says so; a fault of ours is not hidden", async () => {
    await write("exec_1", "a.txt", "new\n");
    writeFileSync(join(root, "a.txt"), "one\n");
    answers.set("Undo this change?", "Undo");
    const file = first();
    await press("undoChange");
    expect(last()).toMatch(/Nothing to do: everything is already as it was before this call\./);
    expect(shown.at(-1)?.items).toEqual([]);
    showWith(() => Promise.reject(new TypeError("x")));
    await expect(view.undo(file)).rejects.toThrow(TypeError);
  });
});

describe("web search", () => {
  const NOTHING = {
    search_provider: null,
    searxng_url: null,
    tavily_url: null,
    tavily_api_key: null,
    brave_url: null,
    brave_api_key: null,
    search_allow_private: null,
  };

  test("is as the person set it for this machine; a folder has no say", async () => {
    const secrets = new Secrets();
    folderSettings.set("search.searxngUrl", "http://evil.test");
    folderSettings.set("search.provider", "searxng");
    expect(await searchSettings(secrets as never)).toEqual(NOTHING);
    settings.set("search.searxngUrl", "https://search.test");
    settings.set("search.provider", "searxng");
    settings.set("search.allowPrivate", true);
    const set = { searxng_url: "https://search.test", search_provider: "searxng", search_allow_private: true };
    expect(await searchSettings(secrets as never)).toEqual({ ...NOTHING, ...set });
    settings.set("search.provider", "auto");
    expect((await searchSettings(secrets as never)).search_provider).toBeNull();
  });

  test("takes keys into the secret storage, and forgets them", async () => {
    const secrets = new Secrets();
    expect(await setSearchKey(secrets as never)).toBe(false);
    answers.set("a key for web search", "Brave Search");
    expect(await setSearchKey(secrets as never)).toBe(false);
    answers.set("Your key for Brave", "no key é");
    expect(await setSearchKey(secrets as never)).toBe(false);
    expect(secrets.kept.size).toBe(0);
    answers.set("Your key for Brave", " key-1 ");
    expect(await setSearchKey(secrets as never)).toBe(true);
    expect(await searchSettings(secrets as never)).toEqual({ ...NOTHING, brave_api_key: "key-1" });
    expect(JSON.stringify(shown)).not.toContain("key-1");
    answers.set("Your key for Brave", "");
    expect(await setSearchKey(secrets as never)).toBe(true);
    expect(secrets.kept.size).toBe(0);
  });
});
