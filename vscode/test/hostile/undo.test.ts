// Undo on a bad day: two writes of one file that somebody else saves, a full disk, a stop between two steps, a file system
// without second names. Real files and a real store; only what a system would refuse is refused here.

import fs, { lstatSync, mkdirSync, openSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { syncBuiltinESMExports } from "node:module";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { FileSystemExecutor } from "../../src/tools/FileSystemExecutor.js";
import { FileMemory } from "../../src/tools/memory.js";
import { O_DIRECTORY, O_PATH, PathValidator } from "../../src/tools/PathValidator.js";
import { swap } from "../../src/tools/swapping.js";
import type { Undo } from "../../src/tools/undo.js";
import { UndoList } from "../../src/tools/undo_list.js";
import { ContentStore } from "../../src/tools/undo_store.js";
import type { Keep } from "../../src/tools/writing.js";
import { disk } from "../tools/full_disk.js";
import { temporary, workspaceWith } from "../tools/places.js";
import { takeBack, undoIn } from "../tools/undoes.js";

vi.mock("../../src/tools/io.js", async (original) => (await import("../tools/full_disk.js")).onThatDisk(original));

let root: string;
let storage: string;
let memory: FileMemory;
let undo: Undo;
let files: FileSystemExecutor;
const at = (path: string) => join(root, path);
const text = (path: string) => readFileSync(at(path), "utf8");
const entries = () => new UndoList(memory).entries();

beforeEach(() => {
  root = workspaceWith({ "a.txt": "old" });
  storage = temporary();
  memory = new FileMemory(join(storage, "memory"));
  const paths = new PathValidator(root);
  undo = undoIn(paths, join(storage, "undo"), memory);
  files = new FileSystemExecutor(paths, 1 << 20, () => false);
});

afterEach(() => {
  undo.recorder.close();
  memory.close();
});

interface Writing {
  readonly signal?: AbortSignal;
  /** After what is there was kept, before the new content has its name. */
  readonly kept?: () => unknown;
}

function write(id: string, content: string, { kept, signal = new AbortController().signal }: Writing = {}) {
  const params = { path: "a.txt", content, mode: "write" } as const;
  const run = (keep: Keep) =>
    files.writeFile(params, { signal }, async (replacing) => {
      const end = await keep(replacing);
      await kept?.();
      return end;
    });
  return undo.recorder.writing(id, id, run, signal);
}

/** A promise and how to keep it. */
function promised(): { readonly kept: Promise<void>; readonly keep: () => void } {
  let keep = () => {};
  const kept = new Promise<void>((resolve) => {
    keep = resolve;
  });
  return { kept, keep };
}

describe("Two writes of one file", () => {
  it("both end where somebody saves it in between, and each has its own entry", async () => {
    let saves = 1;
    const save = () => (saves-- > 0 ? writeFileSync(at("a.txt"), "saved by somebody") : undefined);
    await Promise.all([write("exec_1", "one", { kept: save }), write("exec_2", "two")]);
    expect(["one", "two"]).toContain(text("a.txt"));
    expect(entries().map(({ id }) => id)).toHaveLength(2);
    const last = text("a.txt") === "one" ? "exec_1" : "exec_2";
    const other = last === "exec_1" ? "exec_2" : "exec_1";
    for (const id of [last, other]) {
      await takeBack(undo.desk, id);
    }
    expect(text("a.txt")).toBe("saved by somebody");
  });

  it("the one that waits leaves at once when it is called off, wherever it waits", async () => {
    const inside = promised();
    const held = promised();
    const stop = new AbortController();
    const first = write("exec_1", "one", {
      kept: () => {
        inside.keep();
        return held.kept;
      },
    });
    await inside.kept;
    const same = write("exec_2", "two", { signal: stop.signal });
    const look = undo.recorder.begin("exec_3", "command", stop.signal);
    stop.abort();
    await expect(same).rejects.toThrow("called off");
    await expect(look).rejects.toThrow("called off");
    const undoing = undo.recorder.gate.alone(10_000, async () => {
      await expect(write("exec_4", "four", { signal: AbortSignal.abort() })).rejects.toThrow("called off");
    });
    held.keep();
    await first;
    await undoing;
    expect(text("a.txt")).toBe("one");
    await write("exec_5", "five");
    expect(entries().map(({ id }) => id)).toEqual(["exec_1", "exec_5"]);
  });
});

describe("Where a disk is full", () => {
  it("a sweep loses nothing: what it could not move is where it was", async () => {
    const directory = join(storage, "contents");
    let store = new ContentStore(directory, 1 << 30);
    const put = (data: Buffer) => {
      writeFileSync(join(storage, "source"), data);
      const fd = openSync(join(storage, "source"), "r");
      return store.putFile(fd, 50 << 20).finally(() => fs.closeSync(fd));
    };
    const kept = await put(Buffer.from("the user's work"));
    await put(Buffer.alloc(100_000, 1));
    await store.sync();
    disk.full = true;
    await expect(store.sweep(new Set([kept]))).rejects.toThrow("ENOSPC");
    disk.full = false;
    expect((await store.read(kept))?.toString()).toBe("the user's work");
    await store.sweep(new Set([kept]));
    expect(readdirSync(directory)).toHaveLength(1);
    store.close();
    store = new ContentStore(directory, 1 << 30);
    expect((await store.read(kept))?.toString()).toBe("the user's work");
    store.close();
  });

  it("of one content in two places the first that is found counts", async () => {
    const directory = join(storage, "contents");
    const store = new ContentStore(directory, 1 << 30);
    const digest = await store.batch((put) => put(Buffer.from("the user's work")));
    await store.sync();
    store.close();
    const [name = ""] = readdirSync(directory);
    const bytes = readFileSync(join(directory, name));
    // The same head once more, with other bytes behind it: what was written by somebody else.
    writeFileSync(join(directory, name), Buffer.concat([bytes, bytes.subarray(0, 40), Buffer.alloc(15, 1)]));
    const again = new ContentStore(directory, 1 << 30);
    expect((await again.read(digest))?.toString()).toBe("the user's work");
    again.close();
  });
});

describe("Where a file system gives no second name", () => {
  it("a file of that name stays when another takes its place", async () => {
    writeFileSync(at("draft"), "before");
    writeFileSync(at("undefined"), "the user's own");
    const directory = new PathValidator(root).open(".", O_PATH | O_DIRECTORY);
    const real = fs.linkSync;
    fs.linkSync = () => {
      throw Object.assign(new Error("EPERM"), { code: "EPERM" });
    };
    syncBuiltinESMExports();
    try {
      await swap(directory, "draft", "a.txt", async (name) => lstatSync(`${directory.base}/${name}`, { bigint: true }));
    } finally {
      fs.linkSync = real;
      syncBuiltinESMExports();
      fs.closeSync(directory.fd);
    }
    expect([text("a.txt"), text("undefined")]).toEqual(["before", "the user's own"]);
  });
});

describe("An undo that stopped after it took something away", () => {
  const file = (path: string) => writeFileSync(at(path), "inside");
  const kinds: Record<string, (path: string) => void> = {
    "a file": file,
    "a directory": (path) => mkdirSync(at(path)),
    "a link": (path) => symlinkSync("a.txt", at(path)),
    "another link": (path) => symlinkSync("elsewhere", at(path)),
  };
  const pairs = Object.keys(kinds).flatMap((one) => Object.keys(kinds).map((other) => [one, other] as const));
  const kindOf = (path: string) => {
    const info = lstatSync(at(path));
    return info.isSymbolicLink() ? fs.readlinkSync(at(path)) : info.isDirectory() ? "directory" : text(path);
  };

  it.each(pairs.filter(([one, other]) => one !== other))("is repeated where %s became %s", async (one, other) => {
    kinds[one]?.("x");
    const was = kindOf("x");
    const command = await undo.recorder.begin("exec_1", "command");
    fs.rmSync(at("x"), { recursive: true });
    kinds[other]?.("x");
    await undo.recorder.end(command);
    const [entry] = entries();
    if (entry === undefined) throw new Error("nothing was recorded");
    fs.rmSync(at("x"), { recursive: true });
    // Gone without an undo that began: somebody else took it away, and it is theirs.
    expect(await undo.desk.look("exec_1")).toMatchObject({ conflicts: ["x"] });
    const back = entry.changes.map(([path, before, after]) => [path, after, before] as const);
    const begun = { ...entry, id: "undo_1", toolName: "undo", changes: back, undoes: "exec_1", done: false };
    await new UndoList(memory).put(begun);
    if (was === "directory") mkdirSync(at("x"), 0o700); // one step further
    const undoId = await takeBack(undo.desk, "exec_1");
    expect(kindOf("x")).toBe(was);
    const again = await undo.desk.look(String(undoId));
    expect(again).toMatchObject({ conflicts: [], total_files: 1 });
  });
});
