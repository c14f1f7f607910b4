// How bytes, names and lines are read: encodings, kinds of files, globs, git's words, toolchains. No server, no command.

import { chmodSync, chownSync, closeSync, mkdirSync, openSync, statSync, symlinkSync, truncateSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { afterEach, describe, expect, it } from "vitest";
import { readContent } from "../../src/tools/contents.js";
import { ExecutionTimeout, isCode, kindOf, onlyOs, osError, ToolFailure } from "../../src/tools/errors.js";
import { makesRepository, onlyReads, startsNothing, worksInAnother } from "../../src/tools/git_words.js";
import { globFits, ignoreRules, isIgnored } from "../../src/tools/globs.js";
import { readAll, refuseOddKind } from "../../src/tools/io.js";
import { checkOperands, safeArguments } from "../../src/tools/operands.js";
import { OutputKeeper } from "../../src/tools/output.js";
import { PathValidator } from "../../src/tools/PathValidator.js";
import { runnerFor, toolchains } from "../../src/tools/programs.js";
import { SearchExecutor, type SearchOptions } from "../../src/tools/SearchExecutor.js";
import { makeFifo, scanWorker, temporary, workspaceWith } from "./places.js";

describe("A file's bytes", () => {
  const utf32 = (points: number[], big: boolean) => {
    const data = Buffer.alloc(4 * points.length);
    for (const [at, point] of points.entries()) {
      big ? data.writeUInt32BE(point, 4 * at) : data.writeUInt32LE(point, 4 * at);
    }
    return data;
  };

  it("in UTF-32 are read by their mark, either way round", () => {
    for (const big of [true, false]) {
      expect(readContent(utf32([0xfeff, 0x61, 0x1f600], big), "a.txt")).toEqual({ text: "a😀", encoding: "utf-32" });
    }
  });

  it("that only begin like UTF-32 are no text", () => {
    const broken = [utf32([0xfeff, 0x110000], true), utf32([0xfeff, 0xd800], true)];
    for (const data of [...broken, Buffer.concat([utf32([0xfeff], true), Buffer.from([0, 0, 0])])]) {
      expect(() => readContent(data, "a.txt")).toThrow("'a.txt' is a binary file.");
    }
  });

  it("of pictures are base64, whatever they are called", () => {
    for (const text of ["RIFF\0\0\0\0WEBP", "\0\0\0\x20ftypavif"]) {
      expect(readContent(Buffer.from(text), "a.txt").encoding).toBe("base64");
    }
    expect(() => readContent(Buffer.from("RIFF\0\0\0\0WAVE"), "a.png")).toThrow("is a binary file");
  });

  it("are read to the end where the system tells no size, and never beyond the bound", async () => {
    const fd = openSync("/proc/self/status", "r");
    try {
      expect((await readAll(fd, 1 << 20, () => new Error("too large"))).toString()).toMatch(/^Name:[\s\S]*\n$/);
      await expect(readAll(fd, 10, () => new Error("too large"))).rejects.toThrow("too large");
    } finally {
      closeSync(fd);
    }
  });

  it("are not read where it is no file, and it is said what it is", async () => {
    const root = temporary();
    makeFifo(join(root, "pipe"));
    const server = createServer().listen(join(root, "socket"));
    await new Promise((resolve) => server.once("listening", resolve));
    const refused = (path: string) => () => refuseOddKind(statSync(path), "x");
    try {
      expect(refused(join(root, "pipe"))).toThrow("'x' is a FIFO, not a regular file.");
      expect(refused(join(root, "socket"))).toThrow("'x' is a socket, not a regular file.");
      expect(refused("/dev/null")).toThrow("'x' is a device, not a regular file.");
      expect(refused(root)).toThrow("EISDIR");
    } finally {
      server.close();
    }
  });

  it("of output are cut between characters, however many bytes they have", () => {
    for (const letter of ["é", "€", "😀"]) {
      for (let shift = 0; shift < 4; shift += 1) {
        const keeper = new OutputKeeper(256);
        keeper.feed("stdout", Buffer.from("x".repeat(shift) + letter.repeat(400)));
        keeper.feed("stdout", Buffer.from("end"));
        const { stdout, truncated } = keeper.captured();
        expect(truncated).toBe(true);
        expect(stdout).not.toMatch(/\ufffd/);
        expect(stdout).toMatch(/^x*(?:é|€|😀)[\s\S]*bytes left out[\s\S]*end$/u);
      }
    }
  });
});

describe("An error", () => {
  it("of the system is known by its code, and anything else is not passed over", () => {
    expect([isCode(osError("ENOENT"), "EIO", "ENOENT"), isCode(new Error("ENOENT"), "ENOENT")]).toEqual([true, false]);
    expect([kindOf(new TypeError("x")), kindOf("x")]).toEqual(["TypeError", "string"]);
    expect(() => onlyOs(osError("EIO"))).not.toThrow();
    const bug = new TypeError("x");
    expect(() => onlyOs(bug)).toThrow(bug);
    const ours = new ToolFailure("x");
    expect(() => onlyOs(ours)).toThrow(ours);
  });
});

describe("A glob", () => {
  const cases: [glob: string, fits: string[], not: string[]][] = [
    ["a?c", ["abc"], ["a/c", "ac"]],
    ["**", ["a", "a/b"], []],
    ["**/**", ["a", "a/b"], []],
    ["**a", ["a", "ba"], ["b/a"]],
    ["a**b", ["ab", "axb"], ["a/b"]],
    ["a/**b", ["a/xb"], ["a/x/b"]],
    ["a/**", ["a/b", "a/b/c"], ["a"]],
    ["a/**/b", ["a/b", "a/x/y/b"], ["ab"]],
    ["a/**/**", ["a/b/c"], ["b"]],
    ["a,b", ["a,b"], ["a"]],
    ["a{}b", ["ab"], ["a{}b"]],
    ["{a/**,b}", ["a/x/y", "b"], ["a"]],
    ["{b,a/**}", ["a/x", "b"], ["a"]],
    ["{**x,y}", ["ax", "y"], ["a/x"]],
    ["[a-c]x", ["bx"], ["dx", "-x"]],
  ];

  it.each(cases)("%s fits what ripgrep takes it for", (glob, fits, not) => {
    const isFitting = globFits(glob);
    expect([fits.filter(isFitting), not.filter(isFitting)]).toEqual([fits, []]);
  });

  it("of a .gitignore keeps a blank that is escaped, and counts from where the file lies", () => {
    const rules = ignoreRules(Buffer.from("a\\ \nb  \n/c\n"));
    const is = (path: string, strip = "", add = "") => isIgnored(path, false, [{ rules, strip, add }]);
    expect([is("a "), is("a"), is("b"), is("b  ")]).toEqual([true, false, true, false]);
    expect([is("sub/c", "sub/"), is("c", "sub/"), is("sub/c"), is("c", "", "up/")]).toEqual([true, true, false, false]);
  });
});

describe("The words of a command", () => {
  it("that is none, or git without a subcommand, count as writing", () => {
    expect([onlyReads([]), startsNothing([]), onlyReads(["git"]), onlyReads(["git", "-C"])]).toEqual([
      ...[false, false, false, false],
    ]);
    expect([makesRepository([]), makesRepository(["-c", "a=b", "init"])]).toEqual([false, true]);
    expect([onlyReads(["git", "log"]), onlyReads(["git", "log", "--output=x"])]).toEqual([true, false]);
  });

  it("say whether git works in another repository, however deep", () => {
    const root = workspaceWith({ "sub/.git/HEAD": "", "sub/a/b/c.txt": "", "plain/a/b.txt": "" });
    const another = (...args: string[]) => worksInAnother(root, args);
    expect([another("-C", "sub/a/b", "status"), another("-C", "plain/a", "status"), another("-C")]).toEqual([
      ...[true, false, false],
    ]);
  });

  it("name files that are held against the disk, also as values of options", () => {
    const root = workspaceWith({ "a.txt": "a", ".env": "S=1" });
    symlinkSync("/etc/hostname", join(root, "out"));
    symlinkSync(".env", join(root, "plain.txt"));
    makeFifo(join(root, "pipe"));
    const paths = new PathValidator(root);
    const checked = (command: string, ...args: string[]) => checkOperands(paths, command, args);
    expect(() => checked("cat", "out")).toThrow(/out/);
    expect(() => checked("cat", "plain.txt")).toThrow(/plain\.txt/);
    expect(() => checked("cat", "pipe")).toThrow("a FIFO");
    expect(() => checked("grep", "-f", "plain.txt", "a.txt")).toThrow(/plain\.txt/);
    expect(() => checked("grep", "-e", "plain.txt", "a.txt")).not.toThrow();
    expect(() => checked("grep", "-e", "x", "plain.txt")).toThrow(/plain\.txt/);
    expect(() => checked("cat", "a.txt", "", "missing", "../up")).not.toThrow();
    expect(() => checked("cat", "--no-such-option", "pipe")).toThrow("a FIFO");
  });

  it("of a recursive grep leave out secrets unless they are asked for", () => {
    const safe = (...args: string[]) => safeArguments("grep", args);
    expect(safe("-r", "x", ".")).toContain("--exclude=.env");
    expect(safe("-r", "x", ".").some((one) => one.startsWith("--include="))).toBe(true);
    expect(safe("-r", "--include=*.ts", "x", ".").filter((one) => one.startsWith("--include="))).toEqual([
      "--include=*.ts",
    ]);
    expect(safe("-r", "--include=.env", "x", ".")).toEqual(["-r", "--include=.env", "x", "."]);
    expect(safe("-r", "-e", ".env", ".")).toContain("--exclude=.env");
    expect(safe("-r", "-e", "x", ".env")).toEqual(["-r", "-e", "x", ".env"]);
    expect(safe("--no-such-option")).toEqual(["--no-such-option"]);
    expect(safeArguments("git", []).at(-1)).not.toBe("--no-textconv");
  });
});

describe("A toolchain in the home directory", () => {
  const { HOME } = process.env;
  afterEach(() => {
    process.env.HOME = HOME;
  });

  function home(...versions: string[]): string {
    const made = temporary();
    chmodSync(made, 0o755);
    for (const version of versions) {
      mkdirSync(join(made, ".nvm/versions/node", version, "bin"), { recursive: true, mode: 0o755 });
    }
    process.env.HOME = made;
    return join(made, ".nvm/versions/node");
  }

  it("is the newest by number, not by letter", () => {
    const root = workspaceWith({});
    const nodes = home("v9.11.2", "v10.2.0", "v10.10.0", "v10.10", "system");
    expect(toolchains(root)).toEqual([join(nodes, "v10.10.0")]);
  });

  it("is not used where there is none, where others may write to it, or where it lies in the workspace", () => {
    const root = workspaceWith({});
    expect([home() && toolchains(root)]).toEqual([[]]);
    const empty = home("v1");
    chmodSync(join(empty, "v1/bin"), 0o775);
    expect(toolchains(root)).toEqual([]);
    chmodSync(join(empty, "v1/bin"), 0o755);
    expect(toolchains(root)).toEqual([join(empty, "v1")]);
    expect(toolchains(join(empty, ".."))).toEqual([]);
    const bare = home();
    mkdirSync(bare, { recursive: true });
    expect(toolchains(root)).toEqual([]);
  });
});

describe.runIf(process.geteuid?.() === 0)("The owner of a workspace, where the client is root", () => {
  it("is who runs its commands, never with the group of root", () => {
    const root = workspaceWith({});
    chmodSync(join(root, ".."), 0o755);
    chownSync(root, 54321, 0);
    expect(runnerFor(root)).toEqual({ uid: 54321, gid: 65534 });
    chownSync(root, 54321, 54322);
    expect(runnerFor(root)).toEqual({ uid: 54321, gid: 54322 });
    expect(runnerFor(join(root, "missing"))).toBeUndefined();
  });

  it("that may not enter it is told, and one that cannot reach it runs nothing", () => {
    const root = workspaceWith({ "in/a.txt": "" });
    chmodSync(join(root, ".."), 0o755);
    chownSync(join(root, "in"), 54321, 54322);
    chmodSync(root, 0o700);
    expect(runnerFor(join(root, "in"))).toBeUndefined();
    chownSync(root, 0, 54322);
    chmodSync(root, 0o710);
    expect(runnerFor(join(root, "in"))).toEqual({ uid: 54321, gid: 54322 });
    chmodSync(join(root, "in"), 0o077);
    expect(() => runnerFor(join(root, "in"))).toThrow("may not enter it");
  });
});

describe("A search", () => {
  const params = { pattern: "x", path: ".", regex: false, glob: null, case_sensitive: true, max_results: 9 };
  const at = (root: string, options: SearchOptions) => new SearchExecutor(new PathValidator(root), options);
  const found = async (search: SearchExecutor, more: object) =>
    (await search.search({ ...params, ...more })).matches.map(({ path }) => path);

  it("of what the owner rules out, or of a file that is too large, says so", async () => {
    const root = workspaceWith({ "private/a.txt": "x", "large.txt": "x" });
    truncateSync(join(root, "large.txt"), 200 * 1024 * 1024);
    const search = at(root, { ripgrep: false, scanWorker: scanWorker(), forbidden: (real) => real === "private" });
    await expect(search.search({ ...params, path: "private" })).rejects.toThrow("has ruled out 'private'");
    await expect(search.search({ ...params, path: "large.txt" })).rejects.toThrow(/larger than \d+ MiB/);
  });

  it.each([["with ripgrep"], ["without"]])(
    "%s heeds the .gitignore files above, as far as the repository goes",
    async (how) => {
      const root = workspaceWith({
        ".gitignore": "*.log\n",
        "a/.gitignore": "/b/no.txt\n",
        "a/b/no.txt": "x",
        "a/b/yes.txt": "x",
        "a/b/c.log": "x",
        "own/.git/HEAD": "",
        "own/b/c.log": "x",
        "a/b/.hidden/d.txt": "x",
      });
      const search = at(root, how === "without" ? { ripgrep: false, scanWorker: scanWorker() } : {});
      expect(await found(search, { path: "a/b" })).toEqual(["a/b/yes.txt"]);
      expect(await found(search, { path: "own/b" })).toEqual(["own/b/c.log"]);
      expect(await found(search, { path: "a/b", glob: ".*" })).toEqual([]);
    },
  );

  it("goes on without a ripgrep that does not work", async () => {
    const root = workspaceWith({ "a.txt": "x" });
    const scan = scanWorker();
    expect(await found(at(root, { ripgrep: "/bin/false", scanWorker: scan }), {})).toEqual(["a.txt"]);
    expect(await found(at(root, { ripgrep: "/nowhere/rg", scanWorker: scan }), {})).toEqual(["a.txt"]);
  });

  it("by ripgrep that takes too long is ended", async () => {
    const root = workspaceWith({ "a.txt": "x" });
    await expect(at(root, { seconds: 0 }).search(params)).rejects.toThrow(ExecutionTimeout);
  });
});
