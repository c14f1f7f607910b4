// What agents changed, listed and taken back in the editor: a real workspace, real files, a small stand-in for the editor.

import { existsSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { UndoPlan } from "@protocol";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { Problem } from "../../../ui/src/api.js";
import { ChangedFiles } from "../../src/editor/changes.js";
import { Differences } from "../../src/editor/diffs.js";
import { EditorUndo } from "../../src/editor/undoing.js";
import { setSearchKey, webSettings } from "../../src/editor/web_search.js";
import { ToolFailure } from "../../src/tools/errors.js";
import type { UndoDesk } from "../../src/tools/undo_desk.js";
import { type Entry, UndoList } from "../../src/tools/undo_list.js";
import { Workspace } from "../../src/tools/Workspace.js";
import { NO_WEB } from "../../src/tools/web.js";
import { FakeMemory, PATIENT } from "../tools/fakes.js";
import { temporary, workspaceWith } from "../tools/places.js";
import { answers, folderSettings, handlers, ran, reset, Secrets, settings, shown, type Uri } from "./fake_vscode.js";

let root: string;
let memory: FakeMemory;
let workspace: Workspace;
let desk: UndoDesk;
let view: ChangedFiles;
let differences: Differences;
let hide: () => void;

/** A server that is not there, unless a test says so. */
const away = () => Promise.reject(new Problem("no answer", 0));
let api = { undo: away, undoPlan: away } as unknown as ConstructorParameters<typeof EditorUndo>[1];
let connected = false;

beforeEach(() => {
  reset();
  root = workspaceWith({ "a.txt": "one\n", "src/b $(x).txt": "two\n" });
  memory = new FakeMemory();
  workspace = new Workspace(root, { undo: { directory: join(temporary(), "undo"), memory } });
  desk = workspace.undoing as UndoDesk;
  differences = new Differences();
  view = new ChangedFiles(differences);
  connected = false;
  hide = view.show({ desk, folder: root, undo: new EditorUndo(desk, api, () => connected) });
});

afterEach(() => {
  view.dispose();
  workspace.close();
});

async function write(id: string, path: string, content: string): Promise<void> {
  await workspace.run("write_file", { path, content, mode: "write" }, { recordAs: id });
}

const text = (path: string) => readFileSync(join(root, path), "utf8");
const first = () => view.getChildren()[0] as ReturnType<ChangedFiles["getChildren"]>[number];
const press = (command: string) => handlers.get(`byleave.${command}`)?.(first());

describe("the list of changed files", () => {
  test("has the newest first, says what became of each, and follows what happens", async () => {
    let told = 0;
    view.onDidChangeTreeData(() => {
      told += 1;
    });
    expect(view.getChildren()).toEqual([]);
    await write("exec_1", "a.txt", "new\n");
    await write("exec_2", "src/b $(x).txt", "new\n");
    await write("exec_3", "made.txt", "new\n");
    expect(told).toBe(3);
    const items = view.getChildren().map((file) => view.getTreeItem(file));
    expect(items.map(({ description, label }) => [label, String(description).replace(/, .*/, "")])).toEqual([
      ["made.txt", "new"],
      ["b \\$(x).txt", "changed in src"],
      ["a.txt", "changed"],
    ]);
    expect(items[0]).toMatchObject({ id: "exec_3 made.txt", contextValue: "byleave.change" });
    expect(items[0]?.tooltip).toMatch(/^made\.txt: created by an agent at /);
    expect(view.getChildren(first())).toEqual([]);
    hide();
    expect([view.getChildren(), told]).toEqual([[], 4]);
    await view.open({ toolId: "exec_1", path: "a.txt", kind: "change", at: 1 });
    await view.undo({ toolId: "exec_1", path: "a.txt", kind: "change", at: 1 });
    // An empty list takes no room in the side bar: there is a view only while it has something.
    const shows = (some: boolean) => ["setContext", "byleave.hasChanges", some];
    expect([ran, shown]).toEqual([[shows(false), shows(true), shows(false)], []]);
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
    expect(shown.at(-1)?.text).toMatch(/a\.txt held before cannot be shown/);
  });
});

/** What the dialog says of such a plan. */
async function askedOf(plan: Partial<UndoPlan>): Promise<string | undefined> {
  hide();
  const undo = new EditorUndo(desk, api, () => false);
  undo.look = async () => ({ tool_id: "exec_1", plan: "0".repeat(64), files: [], total_files: 0, ...plan });
  hide = view.show({ desk, folder: root, undo });
  await write("exec_1", "a.txt", "new\n");
  await press("undoChange");
  return shown.at(-1)?.detail;
}

describe("undoing", () => {
  test("asks first, says what it would do, and does it here while no server is there", async () => {
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
    expect(shown.at(-1)?.text).toMatch(/Undone\. The server could not be told/);
    expect(existsSync(join(root, "made"))).toBe(false);
    expect(view.getChildren()).toEqual([]);
  });

  test("does nothing where the file changed since, and where it is gone from the list", async () => {
    await write("exec_1", "a.txt", "new\n");
    const file = first();
    writeFileSync(join(root, "a.txt"), "mine\n");
    await press("undoChange");
    expect(shown.at(-1)?.text).toBe(
      "Byleave: Nothing was undone: a.txt was changed again since. Undo the later changes first; what you changed yourself is yours to merge.",
    );
    await view.undo({ ...file, toolId: "exec_9" });
    expect(shown.at(-1)?.text).toMatch(/Nothing that 'exec_9' changed/);
    expect(text("a.txt")).toBe("mine\n");
  });

  test("of what was not kept says so, and of what is back that there is nothing to do", async () => {
    const plan = { tool_id: "exec_1", plan: "0".repeat(64), files: [], total_files: 0, notes: ["n"] };
    const told: UndoPlan[] = [
      { ...plan, lost: { "a.txt": "too large" } },
      { ...plan, notes: [] },
      { ...plan, conflicts: ["a", "b", "c", "d"] },
      { ...plan, files: Array.from({ length: 20 }, () => ({ path: "x", kind: "change" as const })), total_files: 30 },
    ];
    hide();
    const undo = {
      look: async () => told.shift() as UndoPlan,
      undo: async () => ({ message: "Done.", undoId: null }),
      bringBack: async () => "",
    };
    view.show({ desk, folder: root, undo });
    await write("exec_1", "a.txt", "new\n");
    answers.set("Undo what can be undone", "Undo");
    await press("undoChange");
    expect(shown.at(-2)).toMatchObject({ detail: "a.txt cannot be brought back: too large.\nn" });
    expect(shown.at(-1)?.text).toBe("Byleave: Done.");
    await press("undoChange");
    expect(shown.at(-1)?.detail).toBe("There is nothing to change: everything is already as it was before.");
    await press("undoChange");
    expect(shown.at(-1)?.text).toMatch(/Nothing was undone: a, b, c and 1 more were changed again since\./);
    await press("undoChange");
    expect(shown.at(-1)?.detail).toMatch(/\nand 18 more\nn$/);
  });

  test.each<[string, Partial<UndoPlan["files"][number]>, string]>([
    ["a file that the agent made", { kind: "delete" }, "x.md will be deleted: the agent created it."],
    ["one that it deleted", { kind: "create" }, "x.md will be restored: the agent deleted it."],
    ["one that it changed", { kind: "change" }, "x.md will be changed back to what it was before."],
    [
      "one that is not shown",
      { kind: "change", note: "mode 755 becomes 644; not shown: it may hold secrets" },
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
      { kind: "change", note: "it differs only in what is masked here" },
      "x.md will be changed back to what it was before.",
    ],
  ])("says of %s in words what becomes of it", async (_, change, words) => {
    expect(await askedOf({ total_files: 1, files: [{ path: "x.md", ...change } as UndoPlan["files"][number]] })).toBe(
      words,
    );
  });

  test("says that calls ran at the same time, as the terminal does", async () => {
    const asked = await askedOf({ together: ["exec_2"], notes: ["npm runs it at `npm test`."] });
    expect(asked).toMatch(
      /\nOther calls ran at the same time; some of this may be their doing\.\nnpm runs it at "npm test"\.$/,
    );
  });

  test("goes through the server while it is there; what it refuses is said", async () => {
    await write("exec_1", "a.txt", "new\n");
    connected = true;
    const asked: unknown[] = [];
    api.undoPlan = (id) => desk.look(id);
    api.undo = async (id, body) => {
      asked.push([id, body]);
      return { tool_id: id, state: "done", undo_id: null, files: 1, message: "Undone: 1 path is as before the call." };
    };
    answers.set("Undo this change?", "Undo");
    await press("undoChange");
    expect(asked).toEqual([["exec_1", { plan: expect.stringMatching(/^[0-9a-f]{64}$/), partial: false }]]);
    expect(shown.at(-1)?.text).toBe("Byleave: Undone: 1 path is as before the call.");
    api.undo = () => Promise.reject(new Problem("It is busy.", 409, "Try again."));
    await press("undoChange");
    expect(shown.at(-1)?.text).toBe("Byleave: It is busy. Try again.");
    api.undo = away;
    await press("undoChange");
    expect(text("a.txt")).toBe("one\n");
    api = { undo: away, undoPlan: away } as unknown as typeof api;
  });

  test("can be taken back at once, as long as nobody changed the file since", async () => {
    answers.set("Undo this change?", "Undo");
    answers.set("Undone.", "Bring It Back");
    await write("exec_1", "a.txt", "new\n");
    await press("undoChange");
    await vi.waitFor(
      () => expect(shown.at(-1)?.text).toMatch(/Brought back: it is as it was before the undo/),
      PATIENT,
    );
    expect(text("a.txt")).toBe("new\n");
    expect(view.getChildren()).toHaveLength(1);
    const undo = new EditorUndo(desk, api, () => false);
    const { plan } = await undo.look("exec_1");
    const { undoId } = await undo.undo("exec_1", plan, false);
    writeFileSync(join(root, "a.txt"), "mine\n");
    expect(await undo.bringBack(String(undoId))).toBe(
      "Nothing was brought back: a.txt was changed since the undo. What you changed is yours to merge.",
    );
    expect(text("a.txt")).toBe("mine\n");
  });

  test("of which something is gone cannot be taken back, and says what", async () => {
    const lost = { "a.txt": "the rules deny it" };
    const kept = { look: async () => ({ tool_id: "undo_1", plan: "", files: [], total_files: 0, lost }) };
    const undo = new EditorUndo({ ...kept, carryOut: () => Promise.reject(new Error("it acts")) }, api, () => false);
    expect(await undo.bringBack("undo_1")).toBe("Nothing was brought back: a.txt cannot be (the rules deny it).");
  });

  test("that was asked for elsewhere is told, and can be taken back in one step", async () => {
    await write("exec_1", "a.txt", "new\n");
    const undo = new EditorUndo(desk, api, () => false);
    const { plan: digest } = await desk.look("exec_1");
    const { plan, undoId } = await desk.carryOut("exec_1", digest, false, () => true);
    expect(undo.isAsking("exec_1", String(undoId))).toBe(false);
    answers.set("Undone, as asked in the chat or on the page: a.txt.", "Bring It Back");
    // Somebody else is just undoing something: the button stays.
    answers.set("A call runs in this workspace", "Bring It Back");
    let busy = true;
    const back = (id: string) => {
      const now = busy;
      busy = false;
      return now ? Promise.reject(new ToolFailure("A call runs in this workspace.")) : undo.bringBack(id);
    };
    view.tellUndone({ bringBack: back }, plan, String(undoId));
    await vi.waitFor(
      () => expect(shown.at(-1)?.text).toMatch(/Brought back: it is as it was before the undo/),
      PATIENT,
    );
    expect(shown.map(({ kind }) => kind)).toEqual(["info", "warning", "info"]);
    view.tellUndone(undo, { ...plan, files: [] }, String(undoId));
    expect(shown.at(-1)?.text).toBe("Byleave: Undone, as asked in the chat or on the page.");
    expect(text("a.txt")).toBe("new\n");
  });

  test("that stopped in the middle is told when the folder is opened again, and can be finished from there", async () => {
    await write("exec_1", "made.txt", "new\n");
    const list = new UndoList(memory);
    const [entry] = list.entries();
    await list.put({ ...(entry as Entry), id: "undo_1", toolName: "undo", undoes: "exec_1", done: false });
    hide();
    answers.set("an undo stopped in the middle", "Finish It…");
    answers.set("Undo this change?", "Undo");
    hide = view.show({ desk, folder: root, undo: new EditorUndo(desk, api, () => false) });
    await vi.waitFor(() => expect(shown.at(-1)?.text).toMatch(/Undone/), PATIENT);
    expect(shown[0]).toMatchObject({
      kind: "warning",
      text: expect.stringContaining("Of what an agent did to made.txt and the files with it, only a part"),
    });
    expect([existsSync(join(root, "made.txt")), desk.interrupted()]).toEqual([false, []]);
  });

  test("that was dismissed can be taken back later, from a list of what was undone", async () => {
    await handlers.get("byleave.bringBack")?.();
    expect(shown.at(-1)?.text).toMatch(/nothing was undone here that could be brought back/);
    const undo = new EditorUndo(desk, api, () => false);
    for (const [id, path] of Object.entries({ exec_1: "a.txt", exec_2: "src/b $(x).txt" })) {
      await write(id, path, "new\n");
      await undo.undo(id, (await undo.look(id)).plan, false);
    }
    await handlers.get("byleave.bringBack")?.();
    expect(shown.at(-1)).toMatchObject({ kind: "pick", items: ["src/b \\$(x).txt", "a.txt"] });
    answers.set("bring back what was undone", "a.txt");
    await handlers.get("byleave.bringBack")?.();
    expect([text("a.txt"), text("src/b $(x).txt")]).toEqual(["new\n", "two\n"]);
    expect(desk.undone()).toMatchObject([{ paths: ["src/b $(x).txt"] }]); // it is back, and not undone any more
    hide();
    await handlers.get("byleave.bringBack")?.();
    expect(shown.at(-1)?.text).toBe("Byleave: Brought back: it is as it was before the undo.");
  });

  test("that was carried out although its answer was lost, or came too early, can be taken back too", async () => {
    await write("exec_1", "a.txt", "new\n");
    const undo: EditorUndo = new EditorUndo(desk, { ...api, undo: (id, body) => asked(id, body) }, () => true);
    const { plan } = await desk.look("exec_1");
    const carried = async (body: { plan: string }) => {
      const { undoId } = await desk.carryOut("exec_1", body.plan, false, () => true);
      expect(undo.isAsking("exec_1", String(undoId))).toBe(true);
      return undoId;
    };
    let asked: typeof api.undo = async (_, body) => {
      await carried(body);
      throw new Problem("no answer", 0);
    };
    const first = await undo.undo("exec_1", plan, false);
    expect(first).toEqual({ message: "Undone.", undoId: expect.stringMatching(/^undo_/) });
    expect(await undo.bringBack(String(first.undoId))).toMatch(/^Brought back: it is as it was/);
    asked = async (id, body) => {
      await carried(body);
      return { tool_id: id, state: "undoing", undo_id: null, files: 0, message: "It takes a while." };
    };
    const { plan: again } = await desk.look("exec_1");
    expect(await undo.undo("exec_1", again, false)).toMatchObject({ undoId: expect.stringMatching(/^undo_/) });
    expect(undo.isAsking("exec_1", "undo_0")).toBe(false);
  });

  test("that cannot be taken back says why", async () => {
    hide();
    const undo = new EditorUndo(desk, api, () => false);
    const lost = async () => ({ message: "Undone.", undoId: "undo_0" });
    view.show({
      desk,
      folder: root,
      undo: { look: (id) => undo.look(id), undo: lost, bringBack: (id) => undo.bringBack(id) },
    });
    answers.set("Undo this change?", "Undo");
    answers.set("Undone.", "Bring It Back");
    await write("exec_1", "a.txt", "new\n");
    await press("undoChange");
    await vi.waitFor(() => expect(shown.at(-1)?.text).toMatch(/Nothing that 'undo_0' changed/), PATIENT);
  });

  test("of what is already as it was says so; a fault of ours is not hidden", async () => {
    await write("exec_1", "a.txt", "new\n");
    writeFileSync(join(root, "a.txt"), "one\n");
    answers.set("Undo this change?", "Undo");
    await press("undoChange");
    expect(shown.at(-1)?.text).toMatch(/Nothing to do: everything is already as it was before this call\./);
    hide();
    const broken = () => Promise.reject(new TypeError("x"));
    view.show({ desk, folder: root, undo: { look: broken, undo: broken, bringBack: broken } });
    await expect(view.undo({ toolId: "exec_1", path: "a.txt", kind: "change", at: 1 })).rejects.toThrow(TypeError);
  });
});

describe("web search", () => {
  test("is as the person set it for this machine; a folder has no say", async () => {
    const secrets = new Secrets();
    expect(await webSettings(secrets as never)).toEqual(NO_WEB);
    folderSettings.set("search.searxngUrl", "http://evil.test");
    expect(await webSettings(secrets as never)).toEqual(NO_WEB);
    settings.set("search.searxngUrl", "https://search.test");
    settings.set("search.provider", "searxng");
    settings.set("search.allowPrivate", true);
    const set = { searxngUrl: "https://search.test", provider: "searxng", allowPrivate: true };
    expect(await webSettings(secrets as never)).toEqual({ ...NO_WEB, ...set });
  });

  test("takes keys into the secret storage, and forgets them", async () => {
    const secrets = new Secrets();
    await setSearchKey(secrets as never);
    answers.set("a key for web search", "Brave Search");
    await setSearchKey(secrets as never);
    answers.set("Your key for Brave", "no key é");
    await setSearchKey(secrets as never);
    expect(secrets.kept.size).toBe(0);
    answers.set("Your key for Brave", " key-1 ");
    await setSearchKey(secrets as never);
    expect(await webSettings(secrets as never)).toEqual({ ...NO_WEB, braveKey: "key-1" });
    expect(JSON.stringify(shown)).not.toContain("key-1");
    answers.set("Your key for Brave", "");
    await setSearchKey(secrets as never);
    expect(secrets.kept.size).toBe(0);
  });
});
