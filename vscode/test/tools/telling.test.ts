// What is told of files, rules and results: to a person who decides, and to an agent that is refused.

import { chmodSync, mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { Policy, parsePolicy } from "../../src/gate/index.js";
import { Floor } from "../../src/tools/floor.js";
import { fnmatch } from "../../src/tools/fnmatch.js";
import { Listing } from "../../src/tools/listing.js";
import { masksFor } from "../../src/tools/masking.js";
import { PathValidator } from "../../src/tools/PathValidator.js";
import { summaryOf } from "../../src/tools/reports.js";
import { NoSandbox } from "../../src/tools/sandbox.js";
import { expressionOf, Scan } from "../../src/tools/scan.js";
import { profileFor } from "../../src/tools/seatbelt.js";
import type { UndoDesk } from "../../src/tools/undo_desk.js";
import { Workspace } from "../../src/tools/Workspace.js";
import { repr } from "../../src/tools/words.js";
import { FakeClock, FakeMemory } from "./fakes.js";
import { temporary, workspaceWith } from "./places.js";

const ruled = (text: string) => new Policy([parsePolicy(text, "user", "p.toml", true)]);
const denying = (...paths: string[]) => ruled(`[[rule]]\naction = "deny"\npaths = ${JSON.stringify(paths)}\n`);

describe("Before a command runs, a person", () => {
  it("sees the scripts of a package, or that there are none", async () => {
    const root = workspaceWith({
      "none/package.json": "{}",
      "odd/package.json": '{"scripts": "all of them"}',
      "text/package.json": "no JSON",
    });
    const look = async (path: string) => (await new Workspace(root).inspect("npm", [path])).files;
    expect(await look("none/package.json")).toMatchObject([{ text: "(no script of this name)" }]);
    expect(await look("odd/package.json")).toMatchObject([{ text: "(no script of this name)" }]);
    expect(await look("text/package.json")).toMatchObject([{ text: "no JSON" }]);
  });

  it("is told where a package would run another file than the one that is shown", async () => {
    const root = workspaceWith({
      "a/package.json": "{}",
      "a/index.js": "1",
      "b/package.json": '{"main": 5}',
      "b/index.js": "1",
    });
    const workspace = new Workspace(root);
    const look = (of: string) => workspace.inspect("node", [of, `${of}/package.json`, `${of}/index.js`]);
    expect((await look("a")).problem).toBeNull();
    expect((await look("b")).problem).toMatch(/says which file would run, and it is not one that is shown/);
    expect((await workspace.inspect("python", ["no.py"])).problem).toBe("There is no 'no.py' in the workspace.");
  });
});

describe("Before a write, a person", () => {
  const look = (root: string, path: string, policy = denying("nowhere")) =>
    new Workspace(root, { policy }).inspectWrite(path);

  it("is told why what would be replaced is not shown", async () => {
    const root = workspaceWith({ "shut.md": "x", "long.md": "y".repeat(1_200_000), "quiet.md": "x", "a\nb.md": "x" });
    chmodSync(join(root, "shut.md"), 0o200);
    symlinkSync("a\nb.md", join(root, "plain.md"));
    expect((await look(root, "shut.md")).problem).toMatch(/^No permission to read 'shut\.md'/);
    expect((await look(root, "long.md")).files).toMatchObject([
      { text: null, note: "It is too long to be shown here." },
    ]);
    expect((await look(root, "plain.md")).problem).toMatch(/which no path here may hold/);
    const policy = ruled('[[rule]]\naction = "deny"\ntool = "read_file"\npaths = ["quiet.md"]\n');
    expect((await look(root, "quiet.md", policy)).files).toMatchObject([
      { text: null, shortened: true, note: "A rule denies reading it." },
    ]);
  });

  it("sees that a new file would be new, also in a directory that is there", async () => {
    const root = workspaceWith({ "in/a.md": "x" });
    expect((await look(root, "in/new.md")).files).toMatchObject([{ path: "in/new.md", sha256: "missing" }]);
  });
});

describe("What the owner rules out", () => {
  it("is refused in words where there is a rule, and nothing is where there is none", () => {
    expect(() => new Floor(denying("a/**")).refuse("a/b", "read_file")).toThrow(/'a\/b' is denied by rule /);
    expect(() => new Floor(denying("a/**")).refuse("b", "read_file")).not.toThrow();
    expect(() => new Floor(new Policy([])).refuse("a/b", "read_file")).not.toThrow();
  });

  it("stops every command where there is too much to look through for it", () => {
    const root = workspaceWith({ [`${"d/".repeat(131)}x`]: "" });
    expect(() => new Floor(denying("*.key")).masked(new PathValidator(root))).toThrow(
      /denies '\*\.key', and there is too much here to look through/,
    );
  });

  it("behind a link out of the workspace needs no cover, and what is not there neither", () => {
    const root = workspaceWith({ "b.txt": "", "a.txt": "" });
    symlinkSync("/etc", join(root, "out"));
    expect(new Floor(denying("out", "b.txt")).masked(new PathValidator(root))).toEqual(["b.txt"]);
    expect(masksFor(root, ["b.txt", "missing", "a.txt"])).toEqual({
      masks: [
        { path: "a.txt", isDirectory: false },
        { path: "b.txt", isDirectory: false },
      ],
      hidden: ["a.txt", "b.txt"],
    });
  });

  it("is not listed, and a listing of it is refused", async () => {
    const root = workspaceWith({ "open/a": "12345", "shut/b": "x".repeat(999) });
    symlinkSync("../shut/b", join(root, "open/link"));
    symlinkSync("a", join(root, "open/near"));
    const list = async (path: string) => {
      const params = { path, recursive: true, pattern: "*" };
      const signal = new AbortController().signal;
      const listing = new Listing(new PathValidator(root), params, signal, (real) => real.startsWith("shut"));
      return Object.fromEntries((await listing.run()).files.map((file) => [file.path, file.size]));
    };
    // Of a link to it, not even how large that is.
    expect(await list("open")).toEqual({ "open/a": 5, "open/link": "../shut/b".length, "open/near": 5 });
    expect(Object.keys(await list("."))).not.toContain("shut/b");
    await expect(list("shut")).rejects.toThrow("has ruled out 'shut'");
  });

  it("and is not covered is named, the first ten of it", async () => {
    const root = workspaceWith({});
    const masked = Array.from({ length: 12 }, (_, at) => `f${at}`);
    const { isolation } = await new NoSandbox(root, "There is none.").launch(["/bin/true"], { masked });
    expect(isolation.degraded.at(-1)).toMatch(/f0, f1, .*f9 and 2 more\.$/);
  });

  it("and a command makes all the same is told, the first ten of it", async () => {
    const root = workspaceWith({});
    const workspace = new Workspace(root, { policy: denying("*.key") });
    const params = { command: "touch", args: Array.from({ length: 12 }, (_, at) => `${at}.key`), timeout: 30 };
    const { warnings } = (await workspace.run("execute_command", params)) as unknown as { warnings: string[] };
    expect(warnings.at(-1)).toBe("It made 2 more that are denied.");
  });
});

describe("What an undo would do", () => {
  async function changed(count: number, size: number, clock?: FakeClock): Promise<UndoDesk> {
    const root = workspaceWith({ ".env": "A=1" });
    for (let at = 0; at < count; at += 1) {
      writeFileSync(join(root, `f${at}`), "a b\n".repeat(size / 4));
    }
    const undo = { directory: join(temporary(), "undo"), memory: new FakeMemory() };
    const workspace = new Workspace(root, { undo, ...(clock === undefined ? {} : { clock }) });
    const code = `import os; [open('f%d' % n, 'w').write('c d\\n' * ${size / 4}) for n in range(${count})]; os.chmod('.env', 0o600); open('.env', 'a').write('x')`;
    const params = { command: "python", args: ["-c", code], timeout: 30 };
    await workspace.run("execute_command", params, { recordAs: "exec_1" });
    return workspace.undoing as UndoDesk;
  }

  it("is shown only as far as there is room, and what is not says why", async () => {
    const { files } = await (await changed(6, 240_000)).look("exec_1");
    const notes = new Map(files.map(({ note, path }) => [path, note]));
    expect(notes.get("f0")).toBeNull();
    expect(notes.get("f5")).toBe("not shown: there is too much in all");
    expect(notes.get(".env")).toMatch(/^mode 600 becomes 644; not shown: it may hold secrets/);
  });

  it("is not shown where texts take too long, so that no call waits", async () => {
    const clock = new FakeClock();
    const desk = await changed(3, 40, clock);
    clock.monotonic = () => {
      clock.advance(1_500);
      return clock.now() - clock.start;
    };
    const { files } = await desk.look("exec_1");
    expect(files.map(({ note }) => note)).toContain("not shown: there is too much in all");
    expect(files.every(({ after }) => after === null)).toBe(true);
  });
});

describe("In a list or a log", () => {
  it("a result that failed is an error, and one that is large is not kept", () => {
    const end = { toolId: "exec_1", toolName: "read_file", durationMs: 1, timestamp: "t", params: {} };
    const of = (result: object, size: number) =>
      summaryOf({ ...end, outcome: { result } } as unknown as Parameters<typeof summaryOf>[0], size);
    expect(of({ success: true, error: null }, 10)).toMatchObject({ status: "success", result: { success: true } });
    expect(of({ success: false, error: "no" }, 1 << 30)).toMatchObject({ status: "error", result: null, error: "no" });
  });

  it("no character hides what it is", () => {
    expect(repr("a\u{e0001}b\u200bc\x07")).toBe("'a\\U000e0001b\\u200bc\\x07'");
  });
});

describe("A pattern", () => {
  it("of a listing means what Python's does", () => {
    const cases: [string, string, boolean][] = [
      ["a**b", "axxb", true],
      ["[z-a]", "b", false],
      ["[!z-a]", "b", true],
    ];
    expect(cases.map(([pattern, name]) => fnmatch(pattern)(name))).toEqual(cases.map(([, , fits]) => fits));
  });

  it("of a search finds in UTF-16 either way round, and a dot takes any character of the line", () => {
    const root = temporary();
    writeFileSync(join(root, "le.txt"), Buffer.from("\ufeffneedle", "utf16le"));
    writeFileSync(join(root, "be.txt"), Buffer.from("\ufeffneedle", "utf16le").swap16());
    const work = { base: root, isFile: false, above: [], regex: true, caseSensitive: true, globs: [], maxCount: 9 };
    const found = [...new Scan({ ...work, pattern: "n..dl." }).run()].map(([path]) => path);
    expect(found).toEqual(["be.txt", "le.txt"]);
    expect(expressionOf("\\t.")).toBe("\\t[^\\n\\ufffd]");
  });
});

describe("A command", () => {
  it("whose arguments are too long is refused with a reason", async () => {
    const root = workspaceWith({});
    const params = { command: "echo", args: ["x".repeat(3 << 20)], timeout: 30 };
    await expect(new Workspace(root).run("execute_command", params)).rejects.toThrow("too long for this machine");
  });

  it("of git may write its own state on macOS, and another may not", () => {
    const root = workspaceWith({});
    mkdirSync(join(root, ".git"));
    const protects = (...argv: string[]) => profileFor(root, "/h", argv, {}).protected;
    expect(protects("/usr/bin/git", "commit")).not.toContain(".git");
    expect(protects("/usr/bin/touch", "x")).toContain(".git");
  });
});
