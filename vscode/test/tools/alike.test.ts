// Answers the Python client gives to odd files, names and moments: this one must give the same, in the same words.

import { chmodSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, describe, expect, it } from "vitest";
import type { Params } from "../../src/gate/index.js";
import { readContent } from "../../src/tools/contents.js";
import { PathValidationError, ToolFailure } from "../../src/tools/errors.js";
import { PathValidator } from "../../src/tools/PathValidator.js";
import { SearchExecutor } from "../../src/tools/SearchExecutor.js";
import { MAX_IGNORE } from "../../src/tools/scan.js";
import { type AnyResult, Workspace, type WorkspaceOptions } from "../../src/tools/Workspace.js";
import { scanWorker, workspaceWith } from "./places.js";

const open: Workspace[] = [];

afterEach(() => {
  for (const workspace of open.splice(0)) {
    workspace.close();
  }
});

function workspaceAt(root: string, options: WorkspaceOptions = {}): Workspace {
  const workspace = new Workspace(root, options);
  open.push(workspace);
  return workspace;
}

const write = (workspace: Workspace, path: string, content = "x", mode = "write") =>
  workspace.run("write_file", { path, content, mode });
const read = (workspace: Workspace, path: string, more: Params = { start_line: null, end_line: null }) =>
  workspace.run("read_file", { path, ...more }) as Promise<AnyResult & { content: string; encoding: string }>;
const search = (workspace: Workspace, path: string, more: Params = {}) => {
  const params = { pattern: "needle", regex: false, glob: null, case_sensitive: true, max_results: 9 };
  return workspace.run("search_files", { ...params, path, ...more });
};
async function list(workspace: Workspace, more: Params): Promise<string[]> {
  const params = { path: ".", pattern: "*", recursive: false, ...more };
  const result = await workspace.run("list_directory", params);
  return (result as unknown as { files: { path: string }[] }).files.map(({ path }) => path);
}
async function found(searched: Promise<AnyResult>): Promise<string[]> {
  return ((await searched) as unknown as { matches: { path: string }[] }).matches.map(({ path }) => path);
}

describe("Text of two or four bytes a character", () => {
  const wide = (text: string, width: 2 | 4, big: boolean) => {
    const data = Buffer.alloc(width * text.length);
    for (const [at, letter] of [...text].entries()) {
      data[width * at + (big ? width - 1 : 0)] = letter.charCodeAt(0) & 0xff;
      data[width * at + (big ? width - 2 : 1)] = letter.charCodeAt(0) >> 8;
    }
    return data;
  };

  it.each([
    [2, false],
    [2, true],
    [4, false],
    [4, true],
  ] as const)("is not appended to in UTF-8: %i bytes, big %s", async (width, big) => {
    const root = workspaceWith({});
    const old = wide("\ufeffold\n", width, big);
    writeFileSync(join(root, "x.txt"), old);
    const workspace = workspaceAt(root);
    const refused = await write(workspace, "x.txt", "new\n", "append").catch((error: unknown) => error);
    expect(refused).toBeInstanceOf(ToolFailure);
    expect(refused).toMatchObject({
      message: "'x.txt' is in UTF-16 or UTF-32, and what is appended would be in UTF-8; nothing was written.",
      hint: "Write the whole file.",
    });
    expect(readFileSync(join(root, "x.txt"))).toEqual(old);
    expect(readdirSync(root)).toEqual(["x.txt"]);
    await write(workspace, "x.txt", "new\n");
    await write(workspace, "x.txt", "newer\n", "append");
    expect(readFileSync(join(root, "x.txt"), "utf8")).toBe("new\nnewer\n");
  });
});

describe("What is never written", () => {
  it.each([
    ...[".git:x/config", ".git::$INDEX_ALLOCATION/x", ".git\u00a0/x", "\uff0egit/x", ".\uff47it/x", "git~2/x"],
    ...["a.so.1", "a.exe:x", "a.pyc", "a.\uff45xe", "a.exe\u00a0", "x.txt/."],
  ])("is known by every spelling the gate knows: %j", async (path) => {
    const root = workspaceWith({});
    const workspace = workspaceAt(root);
    await expect(write(workspace, path)).rejects.toThrow(/never written|names a directory/);
    expect(await workspace.inspectWrite(path)).toMatchObject({ files: [], problem: expect.any(String) });
    expect(readdirSync(root)).toEqual([]);
  });

  it.each(["node_modules/.bin/x.md", "org.acme.lib/x.md", "x.so/y.md"])(
    "is no directory that only ends like a program: %s",
    async (path) => {
      const root = workspaceWith({});
      await write(workspaceAt(root), path);
      expect(readFileSync(join(root, path), "utf8")).toBe("x");
    },
  );
});

describe("A directory that nobody may enter", () => {
  it("is closed to every tool, also where the client is root", async () => {
    const root = workspaceWith({ "closed/a.txt": "inside", "closed/deep/a.txt": "inside", "open/b.txt": "inside" });
    const workspace = workspaceAt(root);
    const closed = join(root, "closed");
    chmodSync(closed, 0);
    try {
      for (const path of ["closed/a.txt", "closed/deep/a.txt"]) {
        await expect(read(workspace, path)).rejects.toThrow("No permission");
        await expect(write(workspace, path)).rejects.toThrow("No permission");
        expect((await workspace.inspectWrite(path)).files).toEqual([]);
      }
      for (const path of ["closed/new.txt", "closed/deep/new.txt", "closed/new/b.txt"]) {
        await expect(write(workspace, path)).rejects.toThrow("No permission");
      }
      for (const path of ["closed", "closed/deep"]) {
        await expect(list(workspace, { path })).rejects.toThrow("No permission");
      }
      expect(await list(workspace, { recursive: true })).toEqual(["closed", "open", "open/b.txt"]);
      chmodSync(closed, 0o111); // to be entered, not to be listed
      expect((await read(workspace, "closed/a.txt")).content).toBe("inside");
      await expect(list(workspace, { path: "closed" })).rejects.toThrow("No permission");
    } finally {
      chmodSync(closed, 0o755);
    }
    expect(readdirSync(closed)).toEqual(["a.txt", "deep"]);
  });

  it.each(["with ripgrep", "without"])("is not searched, nor is what nobody may read: %s", async (how) => {
    const root = workspaceWith({ "locked.txt": "needle\n", "closed/a.txt": "needle\n", "names/a.txt": "needle\n" });
    const workspace = workspaceAt(root, how === "without" ? { ripgrep: false, scanWorker: scanWorker() } : {});
    chmodSync(join(root, "locked.txt"), 0);
    chmodSync(join(root, "closed"), 0);
    chmodSync(join(root, "names"), 0o444); // to be listed, not to be entered
    try {
      expect(await found(search(workspace, "."))).toEqual([]);
      for (const path of ["locked.txt", "closed", "closed/a.txt", "names/a.txt"]) {
        await expect(search(workspace, path)).rejects.toThrow("No permission");
      }
    } finally {
      chmodSync(join(root, "closed"), 0o755);
      chmodSync(join(root, "names"), 0o755);
    }
  });
});

describe("A listing", () => {
  it.each([
    ["*.{py,txt}", ["a.py", "b.txt"]],
    ["{a,b}.*", ["a.py", "b.txt"]],
    ["{.e,a}*", [".eslintrc", "a.py"]],
    ["{a.py}", ["a.py"]],
    ["[ab].*", ["a.py", "b.txt"]],
  ])("may be asked for with braces: %s", async (pattern, names) => {
    const root = workspaceWith({ "a.py": "", "b.txt": "", "c.md": "", ".eslintrc": "" });
    expect(await list(workspaceAt(root), { pattern })).toEqual(names);
  });

  it("of all depths may be asked for with the stars that say so", async () => {
    const workspace = workspaceAt(workspaceWith({ "a.py": "", "src/b.py": "", "src/c.md": "" }));
    expect(await list(workspace, { pattern: "**/*.py", recursive: true })).toEqual(["a.py", "src/b.py"]);
    const refused = "The pattern '**/*.py' is for names and cannot hold a '/'.";
    await expect(list(workspace, { pattern: "**/*.py" })).rejects.toThrow(refused);
    await expect(list(workspace, { pattern: "a/**/*.py", recursive: true })).rejects.toThrow("cannot hold a '/'");
  });

  it.each(["!*.py", "{a", "{a,b}".repeat(20)])("that would fit nothing by mistake is refused: %s", async (pattern) => {
    await expect(list(workspaceAt(workspaceWith({})), { pattern })).rejects.toThrow(/^The glob /);
  });

  it("shows names with fillers so that they can be seen, and none is taken", async () => {
    const fillers = [..."\u115f\u3164\u2800\ufe0f\u034f\uffa0"];
    const workspace = workspaceAt(workspaceWith(Object.fromEntries(fillers.map((filler) => [`a${filler}b`, ""]))));
    expect((await list(workspace, {})).sort()).toEqual(
      fillers.map((filler) => `a\\u${filler.charCodeAt(0).toString(16).padStart(4, "0")}b`).sort(),
    );
    for (const filler of fillers) {
      await expect(read(workspace, `a${filler}b`)).rejects.toThrow(PathValidationError);
      await expect(read(workspace, `a${filler}b`)).rejects.toThrow("no path here may hold");
    }
  });
});

describe("A search", () => {
  it.each(["README.md/", "README.md/."])("in a file that is named like a directory is refused: %s", async (path) => {
    const workspace = workspaceAt(workspaceWith({ "README.md": "needle\n", "src/a.txt": "needle\n" }));
    await expect(search(workspace, path)).rejects.toThrow(`A part of '${path}' is a file, not a directory.`);
    expect(await found(search(workspace, "src/"))).toEqual(["src/a.txt"]);
  });

  it("with a glob that would leave out is refused in words", async () => {
    await expect(search(workspaceAt(workspaceWith({})), ".", { glob: "!*.py" })).rejects.toThrow(
      "The glob '!*.py' would say what to leave out, and it can only say what to take.",
    );
  });

  it.each(["with ripgrep", "without"])("never takes half a rule for a whole one: %s", async (how) => {
    const rules = "src/no.txt\n";
    const filler = `#${"x".repeat(MAX_IGNORE - rules.length - 3)}\n`; // then a rule for everything, were it cut
    const files = { "src/no.txt": "needle\n", "src/a.txt": "needle\n", "src/b.md": "needle\n" };
    const root = workspaceWith({ ...files, ".gitignore": `${rules}${filler}*.md\n` });
    const options = how === "without" ? { ripgrep: false as const, scanWorker: scanWorker() } : {};
    const searcher = new SearchExecutor(new PathValidator(root), options);
    const params = { pattern: "needle", regex: false, glob: null, case_sensitive: true, max_results: 9 };
    expect(await found(searcher.search({ ...params, path: "src" }))).toEqual(["src/a.txt", "src/b.md"]);
    if (how === "without") {
      expect(await found(searcher.search({ ...params, path: "." }))).toEqual(["src/a.txt", "src/b.md"]);
    }
  });

  it("folds the Turkish letters as ripgrep does", async () => {
    const root = workspaceWith({ "a.txt": "\u0130\n\u0131\ni\nI\n" });
    for (const options of [{}, { ripgrep: false as const, scanWorker: scanWorker() }]) {
      const result = await search(workspaceAt(root, options), ".", { pattern: "i", case_sensitive: false });
      const { matches } = result as unknown as { matches: { line_number: number }[] };
      expect(matches.map(({ line_number: line }) => line)).toEqual([3, 4]);
    }
  });
});

describe.runIf(process.platform === "linux")("A workspace that is gone", () => {
  const calls: [string, (workspace: Workspace) => Promise<unknown>][] = [
    ["read_file", (workspace) => read(workspace, "a.txt")],
    ["write_file", (workspace) => write(workspace, "a.txt")],
    ["write_file below it", (workspace) => write(workspace, "new/b.txt")],
    ["list_directory", (workspace) => list(workspace, {})],
    ["search_files", (workspace) => search(workspace, ".")],
  ];

  it.each(calls)("is said at once: %s", async (_, call) => {
    for (const how of ["removed", "moved"]) {
      const root = workspaceWith({ "a.txt": "needle" });
      const workspace = workspaceAt(root);
      how === "moved" ? renameSync(root, `${root}.elsewhere`) : rmSync(root, { recursive: true });
      await expect(call(workspace)).rejects.toThrow("The workspace's directory was moved or removed");
      expect(() => readdirSync(root)).toThrow("ENOENT");
    }
  });
});

describe("What is read", () => {
  it("is text where it only begins like a picture", () => {
    expect(readContent(Buffer.from("BMW;größe\n", "latin1"), "x.csv")).toEqual({
      text: "BMW;größe\n",
      encoding: "latin-1",
    });
    const bitmap = Buffer.concat([Buffer.from("BM"), Buffer.from([70, 0, 0, 0]), Buffer.alloc(64)]);
    expect(readContent(bitmap, "x.bmp").encoding).toBe("base64");
  });

  it("is told of in right numbers, and not at any length", async () => {
    const root = workspaceWith({ "a.txt": "one\n", "b.txt": "one\ntwo\n" });
    mkdirSync(join(root, "src"));
    const workspace = workspaceAt(root);
    const from = (line: number) => ({ start_line: line, end_line: null });
    await expect(read(workspace, "a.txt", from(2))).rejects.toThrow("'a.txt' has 1 line; there is no line 2.");
    await expect(read(workspace, "b.txt", from(3))).rejects.toThrow("'b.txt' has 2 lines; there is no line 3.");
    const refused = (await read(workspace, `${"a/".repeat(1000)}b`).catch((error: unknown) => error)) as Error;
    expect(refused.message).toBe(`There is no '${"a/".repeat(100)}…' in the workspace.`);
  });
});
