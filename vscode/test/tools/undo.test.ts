// What a write replaces is kept and brought back byte for byte, or nothing is touched: real files, a real store on the disk.

import {
  chmodSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  unlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { Policy, parsePolicy } from "../../src/gate/index.js";
import { CallerError, DriftedError, NotFound, ToolFailure } from "../../src/tools/errors.js";
import { FileMemory } from "../../src/tools/memory.js";
import { PathValidator } from "../../src/tools/PathValidator.js";
import type { Clock } from "../../src/tools/ports.js";
import { type UndoDesk, UndoRefused } from "../../src/tools/undo_desk.js";
import { type Entry, UndoList } from "../../src/tools/undo_list.js";
import { CallGate, type UndoLimits } from "../../src/tools/undo_recorder.js";
import { look } from "../../src/tools/undo_states.js";
import { Workspace } from "../../src/tools/Workspace.js";
import { FakeClock, settled, until } from "./fakes.js";
import { makeFifo, temporary, workspaceWith } from "./places.js";
import { takeBack } from "./undoes.js";

const YES = () => true;
let root: string;
let storage: string;
let workspace: Workspace;
let memory: FileMemory;

interface Wanted {
  readonly limits?: UndoLimits;
  readonly clock?: Clock;
  readonly policy?: Policy;
}

function open({ clock, limits, policy }: Wanted = {}): void {
  memory = new FileMemory(join(storage, "client"));
  workspace = new Workspace(root, {
    undo: { directory: join(storage, "client", "undo"), memory, ...(limits === undefined ? {} : { limits }) },
    ...(clock === undefined ? {} : { clock }),
    ...(policy === undefined ? {} : { policy }),
  });
}

function close(): void {
  workspace.close();
  memory.close();
}

/** As when the editor is started anew. */
function restart(wanted: Wanted = {}): void {
  close();
  open(wanted);
}

beforeEach(() => {
  root = workspaceWith({ "a.txt": "one\n", "src/b.txt": "two\n" });
  storage = temporary();
  open();
});

afterEach(close);

function desk(): UndoDesk {
  return workspace.undoing as UndoDesk;
}

async function write(id: string, path: string, content: string, mode = "write", more: object = {}) {
  const result = await workspace.run("write_file", { path, content, mode }, { recordAs: id, ...more });
  return result as unknown as { warnings: string[] };
}

const undo = (id: string, partial = false) => takeBack(desk(), id, partial);

const at = (path: string) => join(root, path);
const text = (path: string) => readFileSync(at(path), "utf8");
const entries = () => new UndoList(memory).entries();

/** What lies in the workspace, everything. */
function all(directory = root): string[] {
  return readdirSync(directory, { withFileTypes: true })
    .flatMap((one) => (one.isDirectory() ? [`${one.name}/`, ...all(join(directory, one.name))] : [one.name]))
    .sort();
}

describe("A write is undone", () => {
  it("byte for byte, with its mode, and the directories it needed go", async () => {
    const bytes = Buffer.from([0, 255, 10, 13, 128, 0]);
    writeFileSync(at("a.txt"), bytes);
    chmodSync(at("a.txt"), 0o640);
    const before = all();
    expect((await write("exec_1", "a.txt", "new")).warnings).toEqual([]);
    expect((await write("exec_2", "made/on/the/way.md", "deep")).warnings).toEqual([]);
    expect((await write("exec_3", "src/b.txt", "more", "append")).warnings).toEqual([]);
    expect(text("src/b.txt")).toBe("two\nmore");
    for (const id of ["exec_3", "exec_1", "exec_2"]) {
      expect(await undo(id)).toMatch(/^undo_[0-9a-f]{32}$/);
    }
    expect(readFileSync(at("a.txt"))).toEqual(bytes);
    expect(statSync(at("a.txt")).mode & 0o7777).toBe(0o640);
    expect(text("src/b.txt")).toBe("two\n");
    expect(all()).toEqual(before);
  });

  it("after a restart, and an undo can itself be undone", async () => {
    await write("exec_1", "a.txt", "new\n");
    restart();
    const undoId = await undo("exec_1");
    expect(text("a.txt")).toBe("one\n");
    restart();
    await expect(desk().look("exec_1")).rejects.toThrow("'exec_1' is already undone.");
    await undo(String(undoId));
    expect(text("a.txt")).toBe("new\n");
    // What was taken back twice is there again, and can be undone again.
    await undo("exec_1");
    expect(text("a.txt")).toBe("one\n");
  });

  it("as it was shown: the difference, its kind and its path", async () => {
    await write("exec_1", "a.txt", "new\n");
    await write("exec_2", "made/c.txt", "c\n");
    expect(await desk().look("exec_1")).toMatchObject({
      tool_id: "exec_1",
      plan: expect.stringMatching(/^[0-9a-f]{64}$/),
      files: [{ path: "a.txt", kind: "change", before: "new\n", after: "one\n", note: null }],
      total_files: 1,
      conflicts: [],
      lost: {},
      left: [],
    });
    const { files } = await desk().look("exec_2");
    expect(files).toMatchObject([
      { path: "made", kind: "delete", before: null, note: "a directory" },
      { path: "made/c.txt", kind: "delete", before: "c\n", after: null },
    ]);
  });

  it("only its own: a directory that somebody else uses by now stays", async () => {
    await write("exec_1", "made/c.txt", "c\n");
    writeFileSync(at("made/other.txt"), "theirs");
    await undo("exec_1");
    expect(all()).toContain("other.txt");
    expect(existsSync(at("made/c.txt"))).toBe(false);
  });

  it("not where there is nothing to do any more", async () => {
    await write("exec_1", "a.txt", "new\n");
    writeFileSync(at("a.txt"), "one\n");
    expect(await undo("exec_1")).toBeNull();
    expect(desk().files()).toEqual([]);
  });
});

describe("Nothing is touched", () => {
  it.each([
    ["changed", () => writeFileSync(at("a.txt"), "mine\n")],
    ["removed", () => unlinkSync(at("a.txt"))],
    ["given another mode", () => chmodSync(at("a.txt"), 0o600)],
    [
      "a link now",
      () => {
        renameSync(at("a.txt"), at("other.txt"));
        symlinkSync("other.txt", at("a.txt"));
      },
    ],
    [
      "a directory now",
      () => {
        unlinkSync(at("a.txt"));
        mkdirSync(at("a.txt"));
      },
    ],
    [
      "no file any more",
      () => {
        unlinkSync(at("a.txt"));
        makeFifo(at("a.txt"));
      },
    ],
  ])("where the file was %s since", async (_, change) => {
    await write("exec_1", "a.txt", "new\n");
    const { plan: shown } = await desk().look("exec_1");
    change();
    const before = all();
    const told = await desk().look("exec_1");
    expect(told).toMatchObject({ conflicts: ["a.txt"], files: [] });
    await expect(desk().carryOut("exec_1", shown, true, YES)).rejects.toThrow("Something changed while you decided");
    await expect(desk().carryOut("exec_1", told.plan, true, YES)).rejects.toThrow("Changed since this call: a.txt.");
    expect(all()).toEqual(before);
  });

  it("where the way to the file leads through a link by now", async () => {
    await write("exec_1", "src/b.txt", "new\n");
    renameSync(at("src"), at("elsewhere"));
    symlinkSync("elsewhere", at("src"));
    expect(await desk().look("exec_1")).toMatchObject({ conflicts: ["src/b.txt"] });
    expect(readFileSync(at("elsewhere/b.txt"), "utf8")).toBe("new\n");
  });

  it("where a later call changed the same file: the newest goes first", async () => {
    await write("exec_1", "a.txt", "first\n");
    await write("exec_2", "a.txt", "second\n");
    expect(await desk().look("exec_1")).toMatchObject({ conflicts: ["a.txt"] });
    await undo("exec_2");
    await undo("exec_1");
    expect(text("a.txt")).toBe("one\n");
  });

  it("where nobody waits any more, where it is not known, and where another plan was meant", async () => {
    await write("exec_1", "a.txt", "new\n");
    const { plan } = await desk().look("exec_1");
    const refused = desk().carryOut("exec_1", plan, false, () => false);
    await expect(refused).rejects.toThrow(UndoRefused);
    await expect(desk().look("exec_9")).rejects.toThrow(NotFound);
    await expect(desk().carryOut("exec_1", "0".repeat(64), false, YES)).rejects.toThrow(CallerError);
    expect(text("a.txt")).toBe("new\n");
  });

  it("while a call runs; and a call that comes while something is undone waits", async () => {
    const clock = new FakeClock();
    const gate = new CallGate(clock);
    const end = await gate.begin();
    const waiting = gate.alone(3_000, async () => "undone");
    await settled();
    clock.advance(4_000);
    await expect(waiting).rejects.toThrow(ToolFailure);
    end();
    end();
    let finish = () => {};
    const undoing = gate.alone(0, () => new Promise<void>((resolve) => (finish = resolve)));
    let began = false;
    const call = gate.begin().then((over) => {
      began = true;
      over();
    });
    await settled();
    expect(began).toBe(false);
    finish();
    await Promise.all([undoing, call]);
    expect(began).toBe(true);
  });
});

describe("What is kept", () => {
  it("is on the disk before the file has its new name, and a write that fails leaves no entry", async () => {
    const bound = { "a.txt": "0".repeat(64) };
    await expect(write("exec_1", "a.txt", "x", "write", { bound })).rejects.toThrow(DriftedError);
    expect(entries()).toEqual([]);
    let seen: Entry[] = [];
    let asked = 0;
    const late = () => {
      asked += 1;
      seen = asked === 2 ? entries() : seen;
      return asked === 2;
    };
    await expect(write("exec_2", "a.txt", "x", "write", { late })).rejects.toThrow("nothing was run");
    expect(seen).toMatchObject([{ id: "exec_2", changes: [["a.txt", {}, {}]] }]);
    expect(entries()).toEqual([]);
    expect(text("a.txt")).toBe("one\n");
  });

  it("is not what is too large; the result says so, and undoing the rest must be asked for", async () => {
    restart({ limits: { days: 7, maxBytes: 1 << 20, callBytes: 3 } });
    const { warnings } = await write("exec_1", "a.txt", "new\n");
    expect(warnings).toEqual([
      "This cannot be undone: what was there before could not be kept (the file is too large).",
    ]);
    const told = await desk().look("exec_1");
    expect(told).toMatchObject({ lost: { "a.txt": expect.stringMatching(/was not kept/) }, notes: warnings });
    await expect(desk().carryOut("exec_1", told.plan, false, YES)).rejects.toThrow("This cannot be brought back");
    expect(await undo("exec_1", true)).toBeNull();
    expect(text("a.txt")).toBe("new\n");
  });

  it("is nothing where there is no room, or no place for it; writes go on", async () => {
    restart({ limits: { days: 7, maxBytes: 10 } });
    expect((await write("exec_1", "a.txt", "new\n")).warnings).toEqual([expect.stringMatching(/there is no room/)]);
    const inside = new Workspace(root, { undo: { directory: at("kept"), memory } });
    expect(inside.undoing).toBeUndefined();
    const result = await inside.run(
      "write_file",
      { path: "c.txt", content: "c", mode: "write" },
      { recordAs: "exec_2" },
    );
    expect(result).toMatchObject({ warnings: [expect.stringMatching(/cannot be undone/)] });
    inside.close();
  });

  it("may be large, and is kept once; a sweep that is due takes what nobody needs and leaves the rest", async () => {
    const large = Buffer.alloc(3 * (1 << 20) + 5, 7);
    writeFileSync(at("large.dat"), large);
    const clock = new FakeClock();
    restart({ clock, limits: { days: 7, maxBytes: 1 << 23 } });
    await write("exec_1", "large.dat", "small");
    await undo("exec_1");
    expect(readFileSync(at("large.dat")).equals(large)).toBe(true);
    await write("exec_2", "large.dat", "small");
    const contents = join(storage, "client", "undo", "contents");
    const size = () => readdirSync(contents).reduce((sum, name) => sum + statSync(join(contents, name)).size, 0);
    expect(size()).toBeLessThan(2 * large.length);
    writeFileSync(at("second.dat"), Buffer.alloc(4 * (1 << 20), 8));
    await write("exec_3", "second.dat", "small");
    clock.advance(8 * 24 * 3600 * 1000);
    await write("exec_4", "a.txt", "new\n");
    restart({ clock, limits: { days: 7, maxBytes: 1 << 23 } });
    await until(() => size() < 1_000);
    await undo("exec_4");
    expect(text("a.txt")).toBe("one\n");
  });

  it("counts as lost when the disk spoiled it", async () => {
    await write("exec_1", "a.txt", "new\n");
    const contents = join(storage, "client", "undo", "contents");
    const [bundle = ""] = readdirSync(contents);
    const data = readFileSync(join(contents, bundle));
    data.write("ONE", data.indexOf("one\n"));
    writeFileSync(join(contents, bundle), data);
    expect(await desk().look("exec_1")).toMatchObject({ lost: { "a.txt": "its old content can no longer be read" } });
    rmSync(join(contents, bundle));
    expect(
      await desk()
        .look("exec_1")
        .catch((error: Error) => error.message),
    ).toMatchObject({ conflicts: [] });
  });

  it("is read past a record that a crash tore, and past lines that make no sense", async () => {
    await write("exec_1", "a.txt", "new\n");
    close();
    const contents = join(storage, "client", "undo", "contents");
    const [bundle = ""] = readdirSync(contents);
    const whole = readFileSync(join(contents, bundle));
    writeFileSync(join(contents, bundle), Buffer.concat([whole, Buffer.alloc(39, 1)]));
    const torn = Buffer.concat([Buffer.alloc(32, 7), Buffer.from([255, 0, 0, 0, 0, 0, 0, 0]), Buffer.from("half")]);
    writeFileSync(join(contents, "bundle-0000000000000001"), torn);
    writeFileSync(join(contents, "bundle-0000000000000002"), Buffer.alloc(80));
    open();
    const outside = { ...(entries()[0] as Entry), id: "exec_2", changes: [["../x", null, null]] };
    await memory.write("undo:exec_2", JSON.stringify(outside), false);
    await memory.write("undo:exec_3", "{", false);
    await memory.write("undo:exec_4", JSON.stringify({ ...outside, changes: [["x", { kind: "odd" }, null]] }), false);
    expect(entries().map(({ id }) => id)).toEqual(["exec_1"]);
    await undo("exec_1");
    expect(text("a.txt")).toBe("one\n");
  });

  it("goes after its time, and the oldest where there is too much, never the newest", async () => {
    const clock = new FakeClock();
    restart({ clock, limits: { days: 7, maxBytes: 10_000 } });
    writeFileSync(at("a.txt"), "x".repeat(500));
    for (let number = 10; number < 30; number += 1) {
      clock.advance(61_000);
      expect((await write(`exec_${number}`, "a.txt", String(number).repeat(250))).warnings).toEqual([]);
    }
    const kept = entries().map(({ id }) => id);
    expect(kept.at(-1)).toBe("exec_29");
    expect(kept).not.toContain("exec_10");
    for (const id of kept.toReversed()) {
      await undo(id);
    }
    expect(text("a.txt")).toBe(String(29 - kept.length).repeat(250));
    clock.advance(8 * 24 * 3600 * 1000);
    await write("exec_30", "src/b.txt", "new\n");
    restart({ clock });
    await until(() => entries().length === 1);
    expect(entries().map(({ id }) => id)).toEqual(["exec_30"]);
    await undo("exec_30");
    expect(text("src/b.txt")).toBe("two\n");
  });
});

describe("What is shown", () => {
  const SECRET = `ghp_${"a".repeat(36)}`;

  it("has its secrets masked, and nothing of files that hold them by their name", async () => {
    await write("exec_1", "a.txt", `token ${SECRET}\n`);
    const [file] = (await desk().look("exec_1")).files;
    expect(JSON.stringify(file)).not.toContain(SECRET);
    writeFileSync(at(".env"), "A=1\n");
    await write("exec_2", ".env", "A=2\n");
    expect((await desk().look("exec_2")).files).toMatchObject([
      { before: null, note: "not shown: it may hold secrets" },
    ]);
    writeFileSync(at("masked.txt"), `${SECRET}\n`);
    await write("exec_3", "masked.txt", `${SECRET.replace("aa", "ab")}\n`);
    const [same] = (await desk().look("exec_3")).files;
    expect(same?.note ?? "").toMatch(/masked here|^$/);
  });

  it("is no text where there is none, and not what there is too much of", async () => {
    writeFileSync(at("odd.txt"), Buffer.from([0xff, 0xfe, 0x41]));
    await write("exec_1", "odd.txt", "text");
    expect((await desk().look("exec_1")).files).toMatchObject([{ before: null, note: "not shown: large, or no text" }]);
    writeFileSync(at("large.txt"), "x".repeat(300 * 1024));
    await write("exec_2", "large.txt", "small");
    expect((await desk().look("exec_2")).files).toMatchObject([{ note: "not shown: large, or no text" }]);
  });

  it("is what the owner's rules allow; what they deny stays as it is", async () => {
    await write("exec_1", "src/b.txt", "new\n");
    await write("exec_2", "a.txt", "new\n");
    const denied = '[[rule]]\naction = "deny"\ntool = "write_file"\npaths = ["src/**"]\n';
    const unread = '[[rule]]\naction = "deny"\ntool = "read_file"\npaths = ["a.txt"]\n';
    const layer = parsePolicy(denied + unread, "user", "p.toml", true);
    restart({ policy: new Policy([layer]) });
    const told = await desk().look("exec_1");
    expect(told).toMatchObject({ files: [], lost: { "src/b.txt": expect.stringMatching(/rules deny/) } });
    expect(await undo("exec_1", true)).toBeNull();
    expect(text("src/b.txt")).toBe("new\n");
    const [file] = (await desk().look("exec_2")).files;
    expect(file).toMatchObject({ before: null, note: expect.stringMatching(/rules deny reading/) });
    expect(await desk().before("exec_2", "a.txt")).toBeNull();
  });

  it("is listed, the newest first, with what was there before", async () => {
    let told = 0;
    const stop = desk().onChange(() => (told += 1));
    await write("exec_1", "a.txt", "new\n");
    await write("exec_2", "made/c.txt", "c\n");
    expect(desk().files()).toMatchObject([
      { toolId: "exec_2", path: "made/c.txt", kind: "create" },
      { toolId: "exec_1", path: "a.txt", kind: "change" },
    ]);
    expect(await desk().before("exec_1", "a.txt")).toBe("one\n");
    expect(await desk().before("exec_2", "made/c.txt")).toBeUndefined();
    expect(await desk().before("exec_9", "a.txt")).toBeUndefined();
    await undo("exec_1");
    expect(desk().files()).toMatchObject([{ toolId: "exec_2" }]);
    expect(told).toBe(3);
    stop();
    await undo("exec_2");
    expect(told).toBe(3);
  });
});

describe("Of every kind", () => {
  /** An entry as if a call had done this. */
  async function recorded(id: string, changed: readonly string[], act: () => void, before: Entry["changes"] = []) {
    const paths = new PathValidator(root);
    const first = new Map(before.map(([path, state]) => [path, state]));
    const was = changed.map((path) => [path, first.get(path) ?? look(paths, path)] as const);
    act();
    const changes = was.map(([path, state]) => [path, state, look(paths, path)] as const);
    paths.close();
    const entry = {
      id,
      toolName: "execute_command",
      summary: "git x",
      at: 1,
      changes,
      notes: [],
      together: ["exec_0", "?"],
    };
    await new UndoList(memory).put({ ...entry, undoes: null, done: true });
  }

  it("links, directories and modes come back", async () => {
    symlinkSync("a.txt", at("link"));
    mkdirSync(at("gone"), 0o750);
    await recorded("exec_1", ["link", "gone", "new", "src", "newlink", "turned"], () => {
      unlinkSync(at("link"));
      symlinkSync("src/b.txt", at("link"));
      rmSync(at("gone"), { recursive: true });
      mkdirSync(at("new"));
      chmodSync(at("src"), 0o700);
      symlinkSync("a.txt", at("newlink"));
    });
    const told = await desk().look("exec_1");
    expect(told.files.map(({ kind, path }) => [path, kind])).toEqual([
      ["gone", "create"],
      ["link", "change"],
      ["new", "delete"],
      ["newlink", "delete"],
      ["src", "change"],
    ]);
    expect(told.files[4]?.note).toMatch(/a directory; mode 700 becomes 755/);
    expect(told).toMatchObject({ together: ["exec_0"], notes: [expect.stringMatching(/git's own state/)] });
    const undoId = await undo("exec_1");
    expect(readlinkSync(at("link"))).toBe("a.txt");
    expect(statSync(at("gone")).mode & 0o777).toBe(0o750);
    expect(statSync(at("src")).mode & 0o777).toBe(0o755);
    expect(all()).not.toContain("new/");
    expect(all()).not.toContain("newlink");
    await undo(String(undoId));
    expect(readlinkSync(at("link"))).toBe("src/b.txt");
    expect(all()).toContain("new/");
  });

  it("one kind becomes another again, but not over what somebody put there", async () => {
    await recorded("exec_1", ["dir"], () => symlinkSync("a.txt", at("dir")), [
      ["dir", { ...stateOfDirectory() }, null],
    ]);
    await undo("exec_1");
    expect(lstatSync(at("dir")).isDirectory()).toBe(true);
    symlinkSync("a.txt", at("other"));
    await recorded("exec_2", ["other"], () => {
      unlinkSync(at("other"));
      mkdirSync(at("other"));
    });
    writeFileSync(at("other/theirs.txt"), "x");
    const { plan } = await desk().look("exec_2");
    await expect(desk().carryOut("exec_2", plan, false, YES)).rejects.toThrow("changed while it was undone");
    expect(existsSync(at("other/theirs.txt"))).toBe(true);
    rmSync(at("other/theirs.txt"));
    await undo("exec_2"); // begun before, and repeated
    expect(readlinkSync(at("other"))).toBe("a.txt");
  });

  function stateOfDirectory() {
    const paths = new PathValidator(root);
    const state = look(paths, "src");
    paths.close();
    return state as NonNullable<typeof state>;
  }

  it("what nobody looked into, what is no file and what is git's is left, and said", async () => {
    await recorded("exec_1", ["pipe"], () => makeFifo(at("pipe")));
    const [entry] = entries() as [Entry];
    const closed = { ...stateOfDirectory(), kind: "closed" as const };
    const git = { ...stateOfDirectory(), kind: "git" as const };
    const changes: Entry["changes"] = [
      ...entry.changes,
      ["node_modules", null, closed],
      [".git/config", git, git],
      ["venv", closed, null],
      ["src", git, null],
    ];
    await new UndoList(memory).put({ ...entry, changes: [...changes, ["a.txt", closed, closed]] });
    const told = await desk().look("exec_1");
    expect(told.left).toEqual([".git/config", "node_modules", "pipe", "src"]);
    expect(told.notes?.[0]).toMatch(/Left where it is: pipe \(it is no file, directory or link\)/);
    expect(told.lost).toEqual({ venv: "what was there is not kept" });
    expect(told.conflicts).toEqual(["a.txt"]);
  });

  it("many are told in part, and how many there are", async () => {
    const names = Array.from({ length: 205 }, (_, number) => `n${String(number).padStart(3, "0")}`);
    await recorded("exec_1", names, () => names.map((name) => symlinkSync("a.txt", at(name))));
    const told = await desk().look("exec_1");
    expect([told.files.length, told.total_files]).toEqual([200, 205]);
    expect(told.notes?.[0]).toBe("Not all paths are listed: 205 would change.");
    for (const name of names) {
      unlinkSync(at(name));
      symlinkSync("b.txt", at(name));
    }
    const conflicts = await desk().look("exec_1");
    await expect(desk().carryOut("exec_1", conflicts.plan, false, YES)).rejects.toThrow(/n009 and 195 more/);
  });
});

describe("An undo that was interrupted", () => {
  it("is repeated: what is back is passed over, what lay between two steps goes, and all of it can be undone", async () => {
    await write("exec_1", "a.txt", "new\n");
    await write("exec_2", "src/b.txt", "new\n");
    const [one, two] = entries() as [Entry, Entry];
    // As if one call had written both, and an undo of it stopped between them.
    const both = { ...one, id: "exec_3", changes: [...one.changes, ...two.changes] };
    const back = both.changes.map(([path, before, after]) => [path, after, before] as const);
    const list = new UndoList(memory);
    await list.put(both);
    await list.put({ ...both, id: "undo_1", toolName: "undo", changes: back, undoes: "exec_3", done: false });
    writeFileSync(at("a.txt"), "one\n");
    writeFileSync(at(".byleave-0123456789abcdef.undo"), "new\n");
    restart();
    expect(
      desk()
        .files()
        .map(({ toolId }) => toolId),
    ).toContain("exec_3");
    const undoId = await undo("exec_3");
    expect([text("a.txt"), text("src/b.txt")]).toEqual(["one\n", "two\n"]);
    expect(all()).toEqual(["a.txt", "b.txt", "src/"]);
    expect(entries().map(({ id }) => id)).not.toContain("undo_1");
    await undo(String(undoId));
    expect([text("a.txt"), text("src/b.txt")]).toEqual(["new\n", "new\n"]);
  });
});
