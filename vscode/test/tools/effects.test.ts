// What commands change is seen, told and brought back: in the real sandbox, and with looks of our own where calls run side
// by side.

import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { ExecutionCancelled, ExecutionTimeout, ToolFailure } from "../../src/tools/errors.js";
import { PathValidator } from "../../src/tools/PathValidator.js";
import type { Undo } from "../../src/tools/undo.js";
import { recorded, runsLater } from "../../src/tools/undo_effects.js";
import type { UndoLimits } from "../../src/tools/undo_recorder.js";
import { Workspace } from "../../src/tools/Workspace.js";
import { FakeMemory, until } from "./fakes.js";
import { makeFifo, temporary, workspaceWith } from "./places.js";
import { takeBack, tree, undoIn } from "./undoes.js";

let root: string;
let paths: PathValidator;
let undo: Undo;
let memory: FakeMemory;

const LIMITS: UndoLimits = { days: 7, maxBytes: 1 << 24 };

function open(limits: Partial<UndoLimits> = {}): void {
  memory = new FakeMemory();
  undo = undoIn(paths, join(temporary(), "undo"), memory, { ...LIMITS, ...limits });
}

beforeEach(() => {
  root = workspaceWith({ "a.txt": "one\n", "src/b.txt": "two\n", "src/c.txt": "three\n" });
  paths = new PathValidator(root);
  open();
});

afterEach(() => {
  undo.recorder.close();
  paths.close();
});

const at = (path: string) => join(root, path);
const text = (path: string) => readFileSync(at(path), "utf8");

const RESULT = {
  success: true,
  error: null,
  stdout: "",
  stderr: "",
  exit_code: 0,
  execution_time: 0,
  truncated: false,
  isolation: {},
  changed: [],
  changed_count: 0,
  warnings: [],
};

/** A command that does this. */
function command(id: string, act: () => unknown, name = "python", args: string[] = []) {
  const params = { command: name, args, timeout: 30 };
  return recorded(undo.recorder, id, params, async () => {
    await act();
    return RESULT;
  });
}

describe("A command", () => {
  it("is undone in the real sandbox: all of it, byte for byte, and the undo can be undone", async () => {
    writeFileSync(at("bytes.dat"), Buffer.from([0, 255, 128, 10]));
    symlinkSync("a.txt", at("link"));
    mkdirSync(at("old"), 0o750);
    chmodSync(at("src/b.txt"), 0o640);
    const before = tree(root);
    const workspace = new Workspace(root, { undo: { directory: join(temporary(), "undo"), memory: new FakeMemory() } });
    await workspace.prepare();
    const code = `
import os, shutil
os.remove('a.txt'); open('bytes.dat', 'ab').write(b'more'); os.rename('src/c.txt', 'moved.txt')
os.remove('link'); os.symlink('moved.txt', 'link'); os.rmdir('old'); os.makedirs('new/deep')
open('new/deep/x.txt', 'w').write('x'); os.chmod('src/b.txt', 0o600); os.chmod('src', 0o700)`;
    const params = { command: "python", args: ["-c", code], timeout: 30 };
    const result = await workspace.run("execute_command", params, { recordAs: "exec_1" });
    expect(result).toMatchObject({ success: true, changed_count: 7, warnings: [] });
    const after = tree(root);
    const desk = workspace.undoing as NonNullable<Workspace["undoing"]>;
    expect(desk.files().map(({ kind, path }) => [path, kind])).toContainEqual(["a.txt", "delete"]);
    const undoId = await takeBack(desk, "exec_1");
    expect(tree(root)).toEqual(before);
    await takeBack(desk, String(undoId));
    expect(tree(root)).toEqual(after);
    workspace.close();
  });

  it("that fails, is called off or runs too long is looked at all the same", async () => {
    const failing = (error: Error) => {
      writeFileSync(at(`${error.message}.txt`), "x");
      throw error;
    };
    await expect(command("exec_1", () => failing(new ToolFailure("failed")))).rejects.toThrow(ToolFailure);
    await expect(command("exec_2", () => failing(new ExecutionCancelled("off")))).rejects.toThrow(ExecutionCancelled);
    const late = await command("exec_3", () => failing(new ExecutionTimeout("long", null, RESULT as never))).catch(
      (error: ExecutionTimeout) => error,
    );
    expect((late as ExecutionTimeout).partial).toMatchObject({ changed: [{ path: "long.txt", change: "created" }] });
    await expect(command("exec_4", () => failing(new ExecutionTimeout("bare")))).rejects.toThrow("bare");
    for (const id of ["exec_4", "exec_3", "exec_2", "exec_1"]) {
      await takeBack(undo.desk, id);
    }
    expect(readdirSync(root).sort()).toEqual(["a.txt", "src"]);
  });

  it("that only reads is not looked at, and one that changed nothing leaves no entry", async () => {
    await command("exec_1", () => writeFileSync(at("x.txt"), "x"), "cat", ["a.txt"]);
    await command("exec_2", () => {});
    expect(undo.desk.files()).toEqual([]);
    await expect(undo.desk.look("exec_2")).rejects.toThrow("is known");
  });

  it("says what it changed that runs later", async () => {
    const { warnings } = await command("exec_1", () => {
      writeFileSync(at("package.json"), "{}");
      writeFileSync(at("src/Makefile"), "all:");
    });
    expect(warnings).toEqual([
      expect.stringMatching(/^The command created 'package\.json'\. npm runs/),
      expect.stringMatching(/^The command created 'src\/Makefile'\. make runs/),
    ]);
    expect(runsLater("x/.github/workflows/ci.yml")).toMatch(/GitHub runs it/);
    expect(runsLater("plain.txt")).toBeUndefined();
    expect(runsLater(".vscode/settings.json")).toBeDefined(); // by the gate's own names
  });
});

describe("What is watched", () => {
  it("leaves out what tools fill again, pipes and our own drafts; that they came is said", async () => {
    const { changed } = await command("exec_1", () => {
      mkdirSync(at("node_modules/x"), { recursive: true });
      writeFileSync(at("node_modules/x/index.js"), "x");
      makeFifo(at("pipe"));
      writeFileSync(at(".byleave-0123456789abcdef.tmp"), "draft");
      mkdirSync(at("sub/.git/hooks"), { recursive: true });
      writeFileSync(at("sub/.git/hooks/pre-commit"), "x");
      writeFileSync(at("sub/.git/hooks/pre-push.sample"), "x");
      writeFileSync(at("sub/.git/config"), "x");
    });
    expect(changed?.map(({ path }) => path)).toEqual([
      "node_modules",
      "pipe",
      "sub/.git",
      "sub/.git/config",
      "sub/.git/hooks/pre-commit",
    ]);
    const told = await undo.desk.look("exec_1");
    expect(told.left).toEqual(["node_modules", "pipe", "sub/.git", "sub/.git/config", "sub/.git/hooks/pre-commit"]);
    await takeBack(undo.desk, "exec_1");
    expect(existsSync(at("node_modules/x/index.js"))).toBe(true);
  });

  it("is bounded: beyond that nothing is known, and it is said", async () => {
    open({ maxFiles: 3 });
    const { warnings } = await command("exec_1", () => writeFileSync(at("a.txt"), "new\n"));
    expect(warnings).toEqual([expect.stringMatching(/more files here than are watched \(3, the upper levels first\)/)]);
    await takeBack(undo.desk, "exec_1");
    expect(text("a.txt")).toBe("one\n");
  });

  it("is known by its stamp where it is too large to be kept, and then it is lost", async () => {
    open({ callBytes: 5 });
    writeFileSync(at("large.txt"), "0123456789");
    const { warnings } = await command("exec_1", () => {
      writeFileSync(at("large.txt"), "9876543210!");
      writeFileSync(at("a.txt"), "new\n");
    });
    expect(warnings).toEqual([expect.stringMatching(/^'large\.txt'.* cannot be brought back by undo/)]);
    const told = await undo.desk.look("exec_1");
    expect(Object.keys(told.lost ?? {})).toContain("large.txt");
  });

  it("goes as deep and as far as it says, whatever lies there", async () => {
    const deep = Array.from({ length: 70 }, (_, level) => `d${level}`).join("/");
    mkdirSync(at(deep), { recursive: true });
    writeFileSync(Buffer.concat([Buffer.from(`${root}/`), Buffer.from([0xff, 0x2e, 0x74])]), "odd");
    for (let number = 0; number < 450; number += 1) {
      writeFileSync(at(`src/many${number}.txt`), `${number}`);
    }
    writeFileSync(at("large.bin"), Buffer.alloc((1 << 20) + 7, 1));
    const { changed, warnings } = await command("exec_1", () => {
      writeFileSync(at("src/many7.txt"), "changed");
      writeFileSync(at("large.bin"), Buffer.alloc((1 << 20) + 8, 2));
      writeFileSync(at(`${deep}/x.txt`), "beyond");
    });
    expect(changed?.map(({ path }) => path)).toEqual(["large.bin", "src/many7.txt"]);
    expect(warnings).toEqual([
      expect.stringMatching(/more files here than are watched/),
      "What it changed under names that are not UTF-8 is not known.",
    ]);
    await takeBack(undo.desk, "exec_1");
    expect(readFileSync(at("large.bin")).equals(Buffer.alloc((1 << 20) + 7, 1))).toBe(true);
    expect(text("src/many7.txt")).toBe("7");
  });

  it("is kept as far as there is room; the rest is told as lost", async () => {
    open({ maxBytes: 100 });
    writeFileSync(at("src/b.txt"), "b".repeat(60));
    const { warnings } = await command("exec_1", () => {
      writeFileSync(at("src/b.txt"), "new\n");
      writeFileSync(at("a.txt"), "new\n");
    });
    expect(warnings).toEqual([expect.stringMatching(/'src\/b\.txt' cannot be brought back by undo/)]);
  });

  it("is not taken for gone where it could not be looked into", async () => {
    await undo.recorder.prepare();
    renameSync(at("src"), at("kept"));
    symlinkSync("kept", at("src"));
    const { changed } = await command("exec_1", () => {});
    expect(changed).toEqual([]);
    const { changed: moved } = await command("exec_2", () => {
      rmSync(at("src"));
      renameSync(at("kept"), at("src"));
    });
    expect(moved?.map(({ change, path }) => `${path} ${change}`)).toContain("kept/b.txt deleted");
  });
});

describe("Side by side", () => {
  it("each change is in one entry, also where calls ran at the same time", async () => {
    const { recorder } = undo;
    const one = await recorder.begin("exec_1", "one");
    writeFileSync(at("one.txt"), "1");
    const two = await recorder.begin("exec_2", "two");
    writeFileSync(at("two.txt"), "2");
    writeFileSync(at("one.txt"), "1, and more");
    await recorder.end(two);
    writeFileSync(at("three.txt"), "3");
    await recorder.end(one);
    expect([...two.changes.keys()].sort()).toEqual(["one.txt", "two.txt"]);
    expect([...one.changes.keys()]).toEqual(["three.txt"]);
    expect((await undo.desk.look("exec_2")).together).toEqual(["exec_1"]);
    await takeBack(undo.desk, "exec_1");
    await takeBack(undo.desk, "exec_2");
    expect(readdirSync(root).sort()).toEqual(["a.txt", "src"]);
  });

  it("a write while a command runs is the write's own, and what the command did to the file before is its", async () => {
    const workspace = new Workspace(root, { undo: { directory: join(temporary(), "undo"), memory: new FakeMemory() } });
    const desk = workspace.undoing as NonNullable<Workspace["undoing"]>;
    await workspace.prepare();
    const code =
      "import time, os\nopen('a.txt', 'w').write('by the command\\n')\nwhile not os.path.exists('go'): time.sleep(0.01)";
    const running = workspace.run(
      "execute_command",
      { command: "python", args: ["-c", code], timeout: 30 },
      { recordAs: "exec_1" },
    );
    await until(() => text("a.txt") === "by the command\n");
    await workspace.run("write_file", { path: "a.txt", content: "by us\n", mode: "write" }, { recordAs: "exec_2" });
    await expect(desk.look("exec_2")).rejects.toThrow("A call or another undo runs in this workspace right now");
    writeFileSync(at("go"), "");
    await running;
    await takeBack(desk, "exec_2");
    expect(text("a.txt")).toBe("by the command\n");
    await takeBack(desk, "exec_1");
    expect(text("a.txt")).toBe("one\n");
    workspace.close();
  });

  it("what somebody changes between two calls is nobody's", async () => {
    await command("exec_1", () => writeFileSync(at("x.txt"), "x"));
    writeFileSync(at("theirs.txt"), "x");
    const { changed } = await command("exec_2", () => writeFileSync(at("y.txt"), "y"));
    expect(changed).toEqual([{ path: "y.txt", change: "created" }]);
  });
});

describe("A look that fails", () => {
  it("costs the record, not the command", async () => {
    const { recorder } = undo;
    const broken = Object.assign(new Error("no"), { code: "EIO" });
    const begin = recorder.begin.bind(recorder);
    recorder.begin = () => Promise.reject(broken);
    const { warnings } = await command("exec_1", () => writeFileSync(at("x.txt"), "x"));
    expect(warnings).toEqual(["What the command changed was not recorded (i/o error), so it cannot be undone."]);
    recorder.begin = () => Promise.reject(new TypeError("ours"));
    await expect(command("exec_2", () => {})).rejects.toThrow(TypeError);
    recorder.begin = begin;
    memory.broken = true;
    const lost = await command("exec_3", () => writeFileSync(at("y.txt"), "y"));
    expect(lost).toMatchObject({
      changed: [{ path: "y.txt", change: "created" }],
      warnings: ["What the command changed was not recorded (no space left on device), so it cannot be undone."],
    });
    memory.broken = false;
    await takeBackNothing();
  });

  /** The gate is free again: a call that could not be recorded does not stand in the way. */
  async function takeBackNothing(): Promise<void> {
    await command("exec_4", () => writeFileSync(at("z.txt"), "z"));
    await takeBack(undo.desk, "exec_4");
    expect(existsSync(at("z.txt"))).toBe(false);
  }
});
