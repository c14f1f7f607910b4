// Getting the engine's program in the editor's way: progress only while something is installed, and one sentence with one
// button when there is none.

import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { beforeEach, describe, expect, test, vi } from "vitest";
import { agentFolders, gettingEngine, tellEngineProblem } from "../../src/editor/getting_engine.js";
import { EngineProblem } from "../../src/engine/program.js";
import { Lines } from "../engine/real_engine.js";
import { fake, machine, problem, script } from "../engine/surroundings.js";
import { until } from "../waiting.js";
import {
  answers,
  folder,
  folderSettings,
  handlers,
  progress,
  ran,
  reset,
  settings,
  shown,
  Uri,
  workspace,
} from "./fake_vscode.js";

const earlier: string[] = [];
const projects = { folders: () => earlier };

beforeEach(() => {
  reset();
  earlier.length = 0;
  vi.unstubAllEnvs();
});

function getting(root = machine().root, signal = new AbortController().signal) {
  const log = new Lines();
  const context = { globalStorageUri: Uri.file(join(root, "storage")), extensionUri: Uri.file(root) };
  const folders = () => agentFolders(projects, join(root, "storage"));
  return { root, log, folders, program: gettingEngine(context as never, folders, log, signal) };
}

describe("the program", () => {
  test("is the one of the person's own setting, without a word", async () => {
    const { root, program } = getting();
    settings.set("path", fake(join(root, "bin/byleave")));
    expect(await program()).toMatchObject({ command: join(root, "bin/byleave"), from: "setting", version: "0.1.0" });
    expect([progress.said, shown]).toEqual([[], []]);
  });

  test("is never one that a folder's settings name, nor one in an opened folder", async () => {
    const { root, folders, program } = getting();
    const mine = fake(join(root, "ws/byleave"));
    folderSettings.set("path", mine);
    vi.stubEnv("PATH", fake(join(root, "bin/byleave")).replace(/\/byleave$/, ""));
    expect(await program()).toMatchObject({ command: join(root, "bin/byleave"), from: "path" });
    workspace.workspaceFolders = [folder(join(root, "ws")), folder("/x", "vscode-vfs")];
    expect(folders()).toEqual([join(root, "ws")]);
    settings.set("path", mine);
    expect(await problem(program())).toMatchObject({ kind: "setting", button: "Open Settings" });
  });

  test("is never one in a folder that was connected before, unless that holds the editor's own storage", async () => {
    const { root, folders, program } = getting();
    const mine = fake(join(root, "old/byleave"));
    earlier.push(join(root, "old"), root);
    expect(folders()).toEqual([join(root, "old")]);
    settings.set("path", mine);
    expect(await problem(program())).toMatchObject({ kind: "setting" });
  });

  test("is looked for anew each time", async () => {
    const { root, program } = getting();
    settings.set("path", join(root, "bin/byleave"));
    expect((await problem(program())).message).toContain("There is no program at");
    fake(join(root, "bin/byleave"));
    expect(await program()).toMatchObject({ from: "setting" });
  });

  test("is installed with progress that ends with it, and why it cannot be goes to the log", async () => {
    const { root, log, program } = getting();
    mkdirSync(join(root, "engine"));
    script(join(root, "engine/byleave-0.1.0-py3-none-any.whl"), "");
    script(join(root, "engine/requirements.lock"), "");
    // A Python that makes an environment, in which nothing can be installed.
    const venv = `[ "$3" = venv ] && { /bin/mkdir -p "$4/bin"; /bin/cp "$0" "$4/bin/python"; exit 0; }`;
    const told = `echo '[3, 12, "${root}/bin/python3", "/", "/"]'`;
    script(join(root, "bin/python3"), `${venv}\n[ "$3" = pip ] && { echo broken; exit 1; }\n${told}`);
    vi.stubEnv("PATH", join(root, "bin"));
    vi.stubEnv("HOME", root);
    expect(await problem(program())).toMatchObject({ kind: "install", button: "Show Log" });
    expect(progress.said).toEqual(["Byleave", "setting up its engine (once)…", "downloading its engine…"]);
    await until(() => expect(progress.open).toBe(0));
    expect(log.lines.at(-1)).toMatch(/^error Byleave could not set up its engine.*broken/);
  });

  test("that is no longer wanted when the window closes is given up without a word", async () => {
    const stop = new AbortController();
    const { root, log, program } = getting(undefined, stop.signal);
    settings.set("path", fake(join(root, "bin/byleave")));
    stop.abort(new Error("The window closed."));
    await expect(program()).rejects.toThrow("The window closed.");
    expect([shown, log.lines.filter((line) => line.startsWith("error"))]).toEqual([[], []]);
  });
});

describe("a problem", () => {
  test.each<[EngineProblem["kind"], string, string]>([
    ["setting", "Open Settings", "byleave.openSettings"],
    ["version", "Open Settings", "byleave.openSettings"],
    ["python", "Try Again", "byleave.connect"],
    ["venv", "Try Again", "byleave.connect"],
    ["network", "Try Again", "byleave.connect"],
    ["install", "Show Log", "byleave.showLog"],
  ])("of kind %s has the button %s, which leads to %s", async (kind, button, command) => {
    handlers.set(command, () => {});
    answers.set("Something", button);
    await tellEngineProblem(new EngineProblem(kind, "Something is wrong."));
    expect(shown).toEqual([{ kind: "error", text: "Something is wrong.", items: [button] }]);
    expect(ran).toEqual([[command]]);
  });

  test("of any other kind leads to the log, makes no link, and can be left", async () => {
    await tellEngineProblem(new Error("one\ntwo [x](command:y)"));
    await tellEngineProblem("odd");
    expect(shown.map(({ text, items }) => [text.includes("]("), items])).toEqual(Array(2).fill([false, ["Show Log"]]));
    expect(shown[1]?.text).toBe("odd");
    expect(ran).toEqual([]);
  });
});
