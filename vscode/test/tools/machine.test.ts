// Paths, files, the sandbox and commands on the real machine: what the shared results do not reach.

import { createHash } from "node:crypto";
import {
  chownSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  renameSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { type Params, Policy, parsePolicy } from "../../src/gate/index.js";
import { BubblewrapSandbox } from "../../src/tools/bubblewrap.js";
import { ConfigurationError, ExecutionCancelled, PathValidationError } from "../../src/tools/errors.js";
import { FileSystemExecutor } from "../../src/tools/FileSystemExecutor.js";
import { onlyReads, worksInAnother } from "../../src/tools/git_words.js";
import { globFits, ignoreRules, isIgnored } from "../../src/tools/globs.js";
import { masksFor } from "../../src/tools/masking.js";
import { OutputKeeper } from "../../src/tools/output.js";
import { O_PATH, PathValidator } from "../../src/tools/PathValidator.js";
import { outside, pathError } from "../../src/tools/path_errors.js";
import { HeldFiles } from "../../src/tools/pins.js";
import { DEFAULT_SETTINGS, type ToolSettings } from "../../src/tools/ports.js";
import { findProgram, runnerFor } from "../../src/tools/programs.js";
import { NoSandbox } from "../../src/tools/sandbox.js";
import { expressionOf } from "../../src/tools/scan.js";
import { profileFor, SeatbeltSandbox, workingSeatbelt } from "../../src/tools/seatbelt.js";
import { Turns } from "../../src/tools/turns.js";
import { chooseSandbox, Workspace, type WorkspaceOptions, workspaceFolder } from "../../src/tools/Workspace.js";
import { repr, visibleBytes } from "../../src/tools/words.js";
import { FakeClock, settled, until } from "./fakes.js";
import { makeFifo, scanWorker, temporary, workspaceWith } from "./places.js";

const sha = (text: string) => createHash("sha256").update(text).digest("hex");
const denying = (...paths: string[]) =>
  new Policy([parsePolicy(`[[rule]]\naction = "deny"\npaths = ${JSON.stringify(paths)}\n`, "user", "p.toml", true)]);

function workspaceAt(root: string, options: WorkspaceOptions & { more?: Partial<ToolSettings> } = {}): Workspace {
  return new Workspace(root, { ...options, settings: { ...DEFAULT_SETTINGS, ...options.more } });
}

function command(name: string, ...args: string[]): Params {
  return { command: name, args, timeout: 30 };
}

function python(...lines: string[]): Params {
  return command("python", "-c", lines.join("\n"));
}

type Ran = { stdout: string; exit_code: number | null; warnings: string[]; isolation: Record<string, string[]> };

async function ran(workspace: Workspace, params: Params, more: object = {}): Promise<Ran> {
  return (await workspace.run("execute_command", params, more)) as unknown as Ran;
}

describe("The workspace's directory", () => {
  it("cannot be the system, all of it, or nothing", () => {
    for (const root of ["/", "/etc", "/proc/self", "/no/such/place", "/etc/hostname"]) {
      expect(() => new PathValidator(root)).toThrow(ConfigurationError);
    }
  });

  it("is one of the open folders", () => {
    const [one, two] = [temporary(), temporary()];
    expect(workspaceFolder([one])).toBe(one);
    expect(workspaceFolder([one, two], two)).toBe(two);
    expect(() => workspaceFolder([])).toThrow("No folder is open");
    expect(() => workspaceFolder([one, two])).toThrow("Several folders");
    expect(() => workspaceFolder([one], "/no/such")).toThrow("not one of the open folders");
  });

  it("opens nothing once it is closed, and nothing that is swapped for a link", () => {
    const root = workspaceWith({ "d/a.txt": "x" });
    const paths = new PathValidator(root);
    paths.with("d", O_PATH, (opened) => {
      renameSync(join(root, "d"), join(root, "moved"));
      symlinkSync("/etc", join(root, "d"));
      expect(() => paths.child(opened, "missing", 0)).toThrow("ENOENT");
      const child = paths.child(opened, "a.txt", 0);
      expect(child.real).toBe("d/a.txt");
    });
    expect(() => paths.open("d/hostname", 0)).toThrow("EXDEV");
    expect(paths.realName("missing/further")).toBe("missing/further");
    expect(paths.realName("..")).toBeUndefined();
    expect(paths.relative(root)).toBe(".");
    paths.close();
    paths.close();
    expect(() => paths.open("moved", 0)).toThrow("EBADF");
  });

  it("does not cross into other mounts", () => {
    const paths = new PathValidator(workspaceWith({}));
    expect(() => paths.child({ fd: 0, real: ".", base: "/proc" }, "version", 0)).toThrow("EXDEV");
  });

  it("says in a sentence what the system says", () => {
    const say = (code: string) => pathError("x", Object.assign(new Error(), { code })).message;
    expect(say("ENOSPC")).toBe("There is no space left for 'x'.");
    expect(say("EFBIG")).toBe("'x' would be larger than this machine allows.");
    expect(say("ELOOP")).toContain("too many links");
    expect(say("EIO")).toBe("'x' could not be used: i/o error.");
    expect(say("EWHAT")).toBe("'x' could not be used: EWHAT.");
    expect(outside("x")).toBeInstanceOf(PathValidationError);
    expect([repr("a'b"), repr("\n\x01é\u2028\u{1f600}"), repr("a'\"")]).toEqual([
      '"a\'b"',
      "'\\n\\x01é\\u2028😀'",
      "'a\\'\"'",
    ]);
    expect(visibleBytes(Buffer.from([0x61, 0xff, 0xc3, 0xa9]))).toBe("a\\xffé");
  });
});

describe("The file tools", () => {
  it("a cancelled write changes nothing and leaves nothing", async () => {
    const root = workspaceWith({ "a.txt": "old" });
    const files = new FileSystemExecutor(new PathValidator(root));
    const signal = AbortSignal.abort();
    for (const mode of ["write", "append"] as const) {
      const path = mode === "write" ? "a.txt" : "new/b.txt";
      await expect(files.writeFile({ path, content: "x", mode }, { signal })).rejects.toThrow(ExecutionCancelled);
    }
    expect(readdirSync(root)).toEqual(["a.txt"]);
    expect(readFileSync(join(root, "a.txt"), "utf8")).toBe("old");
  });

  it("appends that come at once are all there", async () => {
    const root = workspaceWith({ "a.txt": "" });
    const files = new FileSystemExecutor(new PathValidator(root));
    const all = Array.from({ length: 20 }, (_, number) =>
      files.writeFile({ path: "a.txt", content: `${number}\n`, mode: "append" }),
    );
    await Promise.all(all);
    expect(readFileSync(join(root, "a.txt"), "utf8").split("\n").filter(Boolean)).toHaveLength(20);
  });

  it("what the owner denies is neither read, written, listed nor searched, also behind a link", async () => {
    const root = workspaceWith({ "private/a.txt": "needle", "open.txt": "needle" });
    symlinkSync("private", join(root, "way"));
    const workspace = workspaceAt(root, { policy: denying("private/**", "made.md") });
    const read = { start_line: null, end_line: null };
    await expect(workspace.run("read_file", { path: "way/a.txt", ...read })).rejects.toThrow("denied by rule");
    await expect(workspace.run("write_file", { path: "made.md", content: "", mode: "write" })).rejects.toThrow(
      "denied",
    );
    const list = { path: ".", recursive: true, pattern: "*" };
    const { files } = (await workspace.run("list_directory", list)) as unknown as { files: { path: string }[] };
    expect(files.map((file) => file.path)).toEqual(["open.txt", "way"]);
    const search = { pattern: "needle", path: ".", regex: false, glob: null, case_sensitive: true, max_results: 9 };
    expect(await workspace.run("search_files", search)).toMatchObject({ matches: [{ path: "open.txt" }] });
    await expect(workspace.run("list_directory", { ...list, path: "private" })).rejects.toThrow("denied");
    expect(await workspace.inspectWrite("made.md")).toMatchObject({
      files: [],
      problem: expect.stringMatching(/denied/),
    });
    workspace.close();
  });

  it("search_web and unknown tools say what is wrong", async () => {
    const workspace = workspaceAt(workspaceWith({}));
    await expect(workspace.run("search_web", { query: "x" })).rejects.toThrow("No web search provider is configured");
    await expect(workspace.run("fly", {})).rejects.toThrow("There is no tool 'fly'");
  });
});

describe("The search", () => {
  const params = { pattern: "x", path: ".", regex: false, glob: null, case_sensitive: true, max_results: 9 };

  it("of an expression that would take for ever is ended", async () => {
    const root = workspaceWith({ "a.txt": `${"a".repeat(40)}!\n` });
    const { SearchExecutor } = await import("../../src/tools/SearchExecutor.js");
    const options = { ripgrep: false, scanWorker: scanWorker(), seconds: 0.3 } as const;
    const search = new SearchExecutor(new PathValidator(root), options);
    await expect(search.search({ ...params, pattern: "(a+a+)+$", regex: true })).rejects.toThrow("longer than 0.3 s");
    const stop = new AbortController();
    const slow = new SearchExecutor(new PathValidator(root), { ...options, seconds: 10 });
    const searching = slow.search({ ...params, pattern: "(a+a+)+$", regex: true }, stop.signal);
    await settled();
    stop.abort();
    await expect(searching).rejects.toThrow(ExecutionCancelled);
  });

  it("without ripgrep and without its thread says so; a .gitignore that is a pipe holds nothing up", async () => {
    const root = workspaceWith({ "a.txt": "x\n" });
    makeFifo(join(root, ".gitignore"));
    await expect(workspaceAt(root, { ripgrep: false }).run("search_files", params)).rejects.toThrow("no ripgrep");
    const scanning = workspaceAt(root, { ripgrep: false, scanWorker: scanWorker() });
    expect(await scanning.run("search_files", params)).toMatchObject({ total_count: 1 });
    await expect(scanning.run("search_files", { ...params, pattern: "a\nb" })).rejects.toThrow("newline");
    await expect(
      scanning.run("search_files", { ...params, glob: "{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}" }),
    ).rejects.toThrow("more than 64");
  });

  it("reads expressions as ripgrep does, or not at all", () => {
    expect(expressionOf("(?P<n>a)\\.\\d[^x]{2}")).toBe("(?<n>a)\\x2e\\p{Nd}[^\\ufffdx]{2}");
    for (const odd of ["a(?=b)", "a**", "\\1", "[[:alpha:]]", "a{", "\\Q", "[\\D]"]) {
      expect(() => expressionOf(odd)).toThrow("not supported");
    }
    expect(() => expressionOf("[]")).not.toThrow(RangeError);
  });

  it("ignores what .gitignore names", () => {
    const rules = ignoreRules(Buffer.from("# no\n*.o\n!keep.o\n/top\ndir/\na/**\n\\#x\n{a,b}.c\n[!x]y\n{bad\n"));
    const ignores = [{ rules, strip: "", add: "" }];
    const is = (path: string, directory = false) => isIgnored(path, directory, ignores);
    expect([is("x.o"), is("d/keep.o"), is("top"), is("d/top"), is("dir"), is("dir", true)]).toEqual([
      ...[true, false, true, false, false, true],
    ]);
    expect([is("a/b"), is("a", true), is("#x"), is("b.c"), is("ay"), is("xy")]).toEqual([
      ...[true, false, true, true, true, false],
    ]);
    for (const bad of ["[a", "a}", "{a{b}}", "\\", "[z-a]"]) {
      expect(() => globFits(bad)).toThrow();
    }
    expect(globFits("**/x/**/y{,z}")("a/x/b/c/yz")).toBe(true);
    expect(globFits("a*b*c*d", true)(`${"ab".repeat(100)}c`)).toBe(false);
    expect(globFits("[a-]x\\*")("-x*")).toBe(true);
    expect(globFits("[^a]b")("/b")).toBe(true);
    expect(ignoreRules(Buffer.from([0x61, 10, 0xff, 10, 0x62]))).toHaveLength(1);
  });
});

describe("Commands", () => {
  it("cannot see what the rules deny, and what they make of it is told", async () => {
    const root = workspaceWith({ "private/a.txt": "x", "file.key": "k", "b.txt": "y" });
    symlinkSync("private", join(root, "link"));
    const workspace = workspaceAt(root, { policy: denying("private/**", "*.key", "link", "made/**") });
    const code = ["import os", "for p in ('private/a.txt', 'file.key', 'b.txt'):", "  try: print(open(p).read())"];
    const { isolation, stdout, warnings } = await ran(
      workspace,
      python(...code, "  except OSError as e: print('no')", "os.mkdir('made'); open('made/x', 'w')"),
    );
    expect(stdout).toBe("no\nno\ny\n");
    expect(isolation.masked).toEqual(["file.key", "private"]);
    expect(warnings).toEqual([expect.stringMatching(/It made 'made'/)]);
    expect((await ran(workspace, command("cat", "b.txt"))).stdout).toBe("y");
    const all = workspaceAt(root, { policy: denying("**") });
    await expect(ran(all, command("pwd"))).rejects.toThrow("denies the whole workspace");
  });

  it("are refused where nothing isolates them, unless the owner wants none", async () => {
    const root = workspaceWith({ "a.txt": "x", "no.key": "k" });
    const bare = new NoSandbox(root, "bubblewrap is not installed.");
    await expect(ran(workspaceAt(root, { sandbox: bare }), command("pwd"))).rejects.toThrow(
      "Nothing isolates commands",
    );
    const none = workspaceAt(root, { more: { sandbox: "none" } });
    const { isolation, stdout } = await ran(
      none,
      python(
        "import os, time",
        "if os.fork() == 0:",
        "  os.setsid()",
        "  time.sleep(30)",
        "print(os.environ['HOME'] != '/root')",
      ),
    );
    expect(stdout).toBe("True\n");
    expect(isolation).toMatchObject({ isolated: false, backend: "none", net: "host" });
    const strict = workspaceAt(root, { more: { sandbox: "none" }, policy: denying("*.key") });
    await expect(ran(strict, command("pwd"))).rejects.toThrow("nothing keeps a command from it");
    await expect(chooseSandbox(root, "seatbelt")).rejects.toThrow("does not work on this system");
  });

  it("are ended when they are called off, with everything they started", async () => {
    const root = workspaceWith({});
    const stop = new AbortController();
    const workspace = workspaceAt(root);
    const begun = ran(
      workspace,
      python("import os, time", "os.fork()", "open(f'{os.getpid()}.run', 'w').close()", "time.sleep(60)"),
      { signal: stop.signal },
    );
    await until(() => readdirSync(root).filter((name) => name.endsWith(".run")).length === 2);
    stop.abort();
    await expect(begun).rejects.toThrow(ExecutionCancelled);
    await expect(ran(workspace, command("pwd"), { signal: stop.signal })).rejects.toThrow("before it was started");
  });

  it("that say nothing for too long are ended", async () => {
    const clock = new FakeClock();
    const workspace = workspaceAt(workspaceWith({}), { clock, more: { commandIdleSeconds: 5 } });
    const heard: string[] = [];
    const running = ran(workspace, python("import time", "print('x', flush=True)", "time.sleep(60)"), {
      onOutput: (_: string, text: string) => heard.push(text),
    });
    await until(() => heard.length > 0);
    clock.advance(6_000);
    await expect(running).rejects.toThrow("printed nothing for 5 s");
  });

  it("get the network only when it is granted", async () => {
    const workspace = workspaceAt(workspaceWith({}));
    const { isolation } = await ran(workspace, python("print(1)"), { network: true });
    expect(isolation.net).toBe("host");
  });

  it("find their names as they were: what is protected stays, a link is put back, git makes what it must", async () => {
    const root = workspaceWith({ ".vscode/settings.json": "{}", "shared/x": "1", "dotfiles/bashrc": "alias" });
    symlinkSync("dotfiles/bashrc", join(root, ".bashrc"));
    symlinkSync("/etc/profile", join(root, ".profile"));
    const workspace = workspaceAt(root);
    const first = await ran(
      workspace,
      python("import os", "os.remove('.bashrc')", "open('.bashrc', 'w').write('evil')", "os.remove('.profile')"),
    );
    expect(first.exit_code).toBe(0);
    expect(first.isolation.degraded?.join(" ")).toMatch(/\.bashrc is a link to dotfiles\/bashrc/);
    expect(first.isolation.created).toEqual([expect.stringMatching(/^\.bashrc\.replaced-/)]);
    expect(readlinkSync(join(root, ".bashrc"))).toBe("dotfiles/bashrc");
    expect(readlinkSync(join(root, ".profile"))).toBe("/etc/profile");
    expect(existsSync(join(root, ".git"))).toBe(false);
    const made = await ran(workspace, command("git", "init", "-q"));
    expect([made.exit_code, made.isolation.created]).toEqual([0, []]);
    const hook = await ran(workspace, python("open('.git/hooks/pre-commit', 'w')"));
    expect(hook.exit_code).not.toBe(0);
    const added = await ran(workspace, command("git", "add", "shared"));
    expect([added.exit_code, added.isolation.protected]).toEqual([
      0,
      expect.arrayContaining([".git/hooks", ".git/config"]),
    ]);
    symlinkSync("shared", join(root, ".byleave"));
    await expect(ran(workspace, python("1"))).rejects.toThrow("cannot be protected");
    expect((await ran(workspace, command("git", "log", "--oneline"))).exit_code).toBe(128);
  });

  it("that are bound run the bytes that were shown, and are ended when a name changes under them", async () => {
    const text = "import time\nprint('shown', flush=True)\ntime.sleep(30)\n";
    const root = workspaceWith({ "d/run.py": text, "d/__pycache__/x": "", "other.py": "print('other')\n" });
    const workspace = workspaceAt(root);
    const heard: string[] = [];
    const running = ran(workspace, command("python", "d/run.py"), {
      bound: { "d/run.py": sha(text) },
      onOutput: (_: string, said: string) => heard.push(said),
    });
    await until(() => heard.length > 0);
    const writing = workspace.run("write_file", { path: "d/run.py", content: "print(2)\n", mode: "write" });
    renameSync(join(root, "other.py"), join(root, "d/run.py"));
    await expect(running).rejects.toThrow("'d/run.py' changed after it was shown; it was ended while it started.");
    expect(await writing).toMatchObject({ success: true });
    const stop = new AbortController();
    writeFileSync(join(root, "d/run.py"), text);
    const again = ran(workspace, command("python", "d/run.py"), {
      bound: { "d/run.py": sha(text) },
      signal: stop.signal,
    });
    await settled();
    stop.abort();
    await expect(again).rejects.toThrow(ExecutionCancelled);
  });

  it("run as the owner of the workspace where the client is root", async () => {
    if (process.geteuid?.() !== 0) {
      return;
    }
    const root = workspaceWith({ "a.txt": "x" });
    for (const path of [root, join(root, "a.txt"), join(root, "..")]) {
      chownSync(path, 65534, 65534);
    }
    expect(runnerFor(root)).toEqual({ uid: 65534, gid: 65534 });
    const workspace = workspaceAt(root);
    const { isolation, stdout } = await ran(workspace, python("import os; print(os.getuid())"));
    expect([stdout, isolation.runs_as]).toEqual(["65534\n", "owner"]);
    await workspace.run("write_file", { path: "d/b.md", content: "x", mode: "write" });
    expect([statSync(join(root, "d")).uid, lstatSync(join(root, "d/b.md")).uid]).toEqual([65534, 65534]);
  });

  it("take turns where one could swap what another's mounts follow", async () => {
    const turns = new Turns();
    const order: string[] = [];
    const shared = await turns.take(false);
    const other = await turns.take(false);
    const alone = turns.take(true).then((end) => {
      order.push("alone");
      return end;
    });
    const late = turns.take(false).then((end) => {
      order.push("late");
      return end;
    });
    shared();
    shared();
    await settled();
    expect(order).toEqual([]);
    other();
    (await alone)();
    (await late)();
    expect(order).toEqual(["alone", "late"]);
  });

  it("are found in fixed places only", () => {
    const root = workspaceWith({});
    expect(findProgram("cat", root)).toMatch(/\/bin\/cat$/);
    expect(() => findProgram("/bin/cat", root)).toThrow("not a plain name");
    expect(() => findProgram("nobody-has-this", root)).toThrow("is not installed");
    mkdirSync(join(root, "in/.git"), { recursive: true });
    expect(worksInAnother(root, ["-C", "in", "status"])).toBe(true);
    expect(worksInAnother(root, ["--git-dir=in/.git", "-c", "a=b", "status"])).toBe(true);
    expect(worksInAnother(root, ["--git-dir", ".git", "status"])).toBe(false);
    expect(onlyReads(["/usr/bin/find", ".", "-delete"])).toBe(false);
    expect(() => masksFor(root, ["../x"])).toThrow("no path inside");
    expect(() =>
      masksFor(
        root,
        Array.from({ length: 401 }, (_, at) => `f${at}`),
      ),
    ).toThrow("at most 400");
    symlinkSync(".", join(root, "self"));
    symlinkSync("/etc", join(root, "out"));
    expect(() => masksFor(root, ["self"])).toThrow("workspace itself");
    expect(masksFor(root, ["out", "in", "in/.git"])).toEqual({
      masks: [{ path: "in", isDirectory: true }],
      hidden: ["in", "in/.git", "out"],
    });
  });
});

describe("Isolation", () => {
  it("says what could not be applied", async () => {
    const root = workspaceWith({});
    const weak = new BubblewrapSandbox(root, "", ["owner", "userns", "seccomp"]);
    expect(weak.isolation().seccomp).toBe(false);
    expect(weak.isolation().degraded.join(" ")).toMatch(/System calls are not filtered/);
    expect(await weak.probe()).toBeUndefined();
  });

  it("of macOS is written and marked untested", async () => {
    const root = workspaceWith({});
    const seatbelt = new SeatbeltSandbox(root);
    expect(seatbelt.isolation(true).degraded[0]).toMatch(/never tested/);
    const options = { network: true, masked: ["secret"], pins: [{ path: "x", data: Buffer.alloc(0), mode: 0o600 }] };
    const launch = await seatbelt.launch(["/usr/bin/git", "commit"], options);
    expect(launch.argv[0]).toBe("/usr/bin/sandbox-exec");
    expect(launch.isolation.degraded.at(-1)).toBe("x was checked and watched, not covered.");
    expect(launch.release()).toEqual([]);
    expect(profileFor(root, "/h", ["/bin/cat"], {}).protected).toEqual(["."]);
    expect(await workingSeatbelt(root, "")).toMatch(/Seatbelt did not start/);
  });

  it("keeps output within its bound", () => {
    const passed: string[] = [];
    const keeper = new OutputKeeper(1024, (_, text) => passed.push(text));
    for (let round = 0; round < 40; round += 1) {
      keeper.feed("stdout", Buffer.from(`${round} ${"é".repeat(100)}\n`));
    }
    keeper.feed("stderr", Buffer.from("short"));
    keeper.feed("stderr", Buffer.alloc(0), true);
    const { stderr, stdout, truncated } = keeper.captured();
    expect([truncated, stderr]).toEqual([true, "short"]);
    expect(Buffer.byteLength(stdout)).toBeLessThanOrEqual(1024);
    expect(stdout).toMatch(/bytes left out/);
    expect(stdout).not.toMatch(/\ufffd/);
    expect(passed.at(-1)).toMatch(/more output follows/);
  });

  it("frees a held file when the start is over", async () => {
    const root = workspaceWith({ "a.py": "1" });
    const clock = new FakeClock();
    const held = new HeldFiles(new PathValidator(root), 1000, clock);
    const holding = await held.hold({ "a.py": sha("1") }, true);
    holding.begin(() => {});
    let free = false;
    const waiting = held.free("a.py").then(() => (free = true));
    await settled();
    expect(free).toBe(false);
    clock.advance(10_000);
    await waiting;
    await held.free("missing");
    await expect(held.hold({ "a.py": sha("1"), ".": sha("") }, true)).rejects.toThrow("Nothing was run");
  });
});

describe("Looking before a person is asked", () => {
  it("shows what would run, and says what it cannot see", async () => {
    const files = {
      "run.py": "print(1)\n",
      "package.json": '{"scripts": {"test": "node t.js"}, "main": "x.js"}',
      "bin.py": "a\0b",
      "pkg/package.json": '{"main": "other.js"}',
      "odd/package.json": "[]",
    };
    const root = workspaceWith(files);
    makeFifo(join(root, "pipe"));
    const workspace = workspaceAt(root);
    const look = async (name: string, ...runs: string[]) => workspace.inspect(name, runs);
    expect((await look("python", "run.py")).files).toMatchObject([
      { path: "run.py", role: "runs", sha256: sha("print(1)\n"), text: "print(1)\n" },
    ]);
    expect((await look("npm", "package.json")).files).toMatchObject([{ text: '"test": "node t.js"' }]);
    expect((await look("npm", "odd/package.json")).files).toMatchObject([{ text: "[]" }]);
    expect((await look("python", "bin.py")).files).toMatchObject([{ text: null }]);
    const problems = [
      await look("python", "missing.py"),
      await look("python", "pipe"),
      await look("python", "pkg"),
      await look("node", "pkg", "pkg/package.json", "pkg/index.js"),
      await look("python", "../x"),
    ];
    expect(problems.map(({ problem }) => typeof problem)).toEqual(Array(5).fill("string"));
    expect((await look("node", ".", "package.json", "index.js", "x.js")).problem).toBeNull();
  });

  it("shows what a write would replace, or why not", async () => {
    const root = workspaceWith({
      "a.md": "text",
      ".env": "S=1",
      "b.md": "x\0",
      "c.md": "",
      "big.md": "y".repeat(300_000),
    });
    writeFileSync(join(root, "latin.md"), Buffer.from([0x61, 0xe9]));
    symlinkSync("nothing", join(root, "dead.md"));
    const workspace = workspaceAt(root, { policy: denying("nowhere") });
    const look = async (path: string) => workspace.inspectWrite(path);
    expect((await look("a.md")).files).toMatchObject([
      { role: "replaces", text: "text", shortened: false, note: null },
    ]);
    expect((await look("new/b.md")).files).toMatchObject([{ path: "new/b.md", sha256: "missing" }]);
    expect((await look("c.md")).files).toMatchObject([{ text: "", shortened: false }]);
    for (const path of [".env", "b.md", "latin.md", "big.md"]) {
      expect((await look(path)).files).toMatchObject([{ text: null, shortened: true, note: expect.any(String) }]);
    }
    for (const path of ["dead.md", "../x", "a.md/", "."]) {
      expect((await look(path)).problem).toEqual(expect.any(String));
    }
    const small = workspaceAt(root, { more: { maxFileBytes: 2 } });
    expect((await small.inspectWrite("a.md")).problem).toMatch(/larger than 2 bytes/);
  });
});
