// Undo where there is no room, and where a link stands in a directory's place: what is told is what is so, and the way back
// is there. Real files and a real store; only what a system would refuse is refused here.

import { mkdirSync, readFileSync, readlinkSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { FileSystemExecutor } from "../../src/tools/FileSystemExecutor.js";
import { FileMemory } from "../../src/tools/memory.js";
import { PathValidator } from "../../src/tools/PathValidator.js";
import type { Undo } from "../../src/tools/undo.js";
import { UndoList } from "../../src/tools/undo_list.js";
import type { UndoLimits } from "../../src/tools/undo_recorder.js";
import { disk } from "../tools/full_disk.js";
import { temporary, workspaceWith } from "../tools/places.js";
import { takeBack, undoIn } from "../tools/undoes.js";

vi.mock("../../src/tools/io.js", async (original) => (await import("../tools/full_disk.js")).onThatDisk(original));

const LARGE = 2 << 20;
let root: string;
let memory: FileMemory;
let undo: Undo;
const at = (path: string) => join(root, path);
const text = (path: string) => readFileSync(at(path), "utf8");

function open(limits?: UndoLimits): void {
  const storage = temporary();
  memory = new FileMemory(join(storage, "memory"));
  undo = undoIn(new PathValidator(root), join(storage, "undo"), memory, limits);
}

beforeEach(() => {
  root = workspaceWith({ "a.txt": "old", "b.txt": "old", "dir/in.txt": "inside", "other/in.txt": "the user's" });
});

afterEach(() => {
  disk.full = false;
  undo.recorder.close();
  memory.close();
});

async function write(id: string, path: string, content: string): Promise<void> {
  const { signal } = new AbortController();
  const files = new FileSystemExecutor(new PathValidator(root), 1 << 24, () => false);
  const params = { path, content, mode: "write" } as const;
  await undo.recorder.writing(id, id, (keep) => files.writeFile(params, { signal }, keep), signal);
}

async function command(id: string, act: () => void): Promise<void> {
  const running = await undo.recorder.begin(id, id);
  act();
  await undo.recorder.end(running);
}

const carryOut = async (id: string) => String(await takeBack(undo.desk, id));

describe("Where there is no room", () => {
  it("in the store, what calls changed can be undone all the same, and that too", async () => {
    open({ days: 7, maxBytes: 700 });
    writeFileSync(at("a.txt"), "o".repeat(400));
    await write("exec_1", "a.txt", "n".repeat(500)); // both together are more than is kept
    const undoId = await carryOut("exec_1");
    expect(text("a.txt")).toBe("o".repeat(400));
    await carryOut(undoId);
    expect(text("a.txt")).toBe("n".repeat(500));
  });

  it("on the disk, that is said, and not that somebody changed the file", async () => {
    open();
    await write("exec_1", "a.txt", "n".repeat(LARGE));
    disk.full = true;
    const looking = undo.desk.look("exec_1");
    await expect(looking).rejects.toThrow("There is no room on the disk to keep what is there now");
    await expect(looking).rejects.toMatchObject({ hint: expect.stringContaining("Free some space") });
    disk.full = false;
    await carryOut("exec_1");
    expect(text("a.txt")).toBe("old");
  });

  it("in the middle of an undo, it says that it stopped there, and can be repeated", async () => {
    open();
    await command("exec_1", () => {
      writeFileSync(at("a.txt"), "n".repeat(LARGE));
      writeFileSync(at("b.txt"), "new");
      rmSync(at("dir"), { recursive: true });
      writeFileSync(at("dir"), "n".repeat(LARGE)); // goes first: to compare it nothing is written
    });
    const { plan } = await undo.desk.look("exec_1");
    const acting = undo.desk.carryOut("exec_1", plan, false, () => {
      disk.full = true;
      return true;
    });
    await expect(acting).rejects.toThrow(
      "There is no space left for 'a.txt'. The undo stopped there; other paths may be back already.",
    );
    await expect(acting).rejects.toMatchObject({
      hint: "Free some space on the disk. Then undo again: what is already as it was is passed over.",
    });
    expect(text("a.txt")).toBe("n".repeat(LARGE));
    disk.full = false;
    await carryOut("exec_1");
    expect([text("a.txt"), text("b.txt"), text("dir/in.txt")]).toEqual(["old", "old", "inside"]);
  });
});

describe("Where a call put a link in a directory's place", () => {
  it.each([
    ["in the workspace", "other"],
    ["outside", "/usr"],
    ["to itself", "dir"],
  ])("that leads to what is %s, the directory comes back, and the link again", async (_, target) => {
    open();
    await command("exec_1", () => {
      rmSync(at("dir"), { recursive: true });
      symlinkSync(target, at("dir"));
    });
    expect(await undo.desk.look("exec_1")).toMatchObject({ conflicts: [], total_files: 2 });
    const undoId = await carryOut("exec_1");
    expect([text("dir/in.txt"), text("other/in.txt")]).toEqual(["inside", "the user's"]);
    await carryOut(undoId);
    expect(readlinkSync(at("dir"))).toBe(target);
    expect(text("other/in.txt")).toBe("the user's");
  });

  it("or the other way round, the link comes back, and the directory again; also after a stop between them", async () => {
    symlinkSync("other", at("link"));
    open();
    await command("exec_1", () => {
      rmSync(at("link"));
      mkdirSync(at("link"));
      writeFileSync(at("link/in.txt"), "the call's");
    });
    const [entry] = new UndoList(memory).entries();
    if (entry === undefined) throw new Error("nothing was recorded");
    const back = entry.changes.map(([path, before, after]) => [path, after, before] as const);
    const begun = { ...entry, id: "undo_1", toolName: "undo", changes: back, undoes: "exec_1", done: false };
    await new UndoList(memory).put(begun);
    rmSync(at("link"), { recursive: true });
    symlinkSync("other", at("link")); // as an undo does it that stops before it is confirmed
    const undoId = await carryOut("exec_1");
    expect([readlinkSync(at("link")), text("other/in.txt")]).toEqual(["other", "the user's"]);
    await carryOut(undoId);
    expect([text("link/in.txt"), text("other/in.txt")]).toEqual(["the call's", "the user's"]);
  });

  it("and somebody else another one since, theirs stays", async () => {
    open();
    await command("exec_1", () => {
      rmSync(at("dir"), { recursive: true });
      symlinkSync("other", at("dir"));
    });
    rmSync(at("dir"));
    symlinkSync("elsewhere", at("dir"));
    expect(await undo.desk.look("exec_1")).toMatchObject({ conflicts: ["dir"] });
  });
});
