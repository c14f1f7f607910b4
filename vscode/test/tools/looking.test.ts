// Answers to what a call would do, what counts as an approval, the search that does without ripgrep, and odd places.

import { createHash } from "node:crypto";
import { chmodSync, mkdirSync, readdirSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { Gate, Policy, parsePolicy, type Verdict } from "../../src/gate/index.js";
import { hasApproval } from "../../src/tools/checks.js";
import { CallerError, NotFound, RefusedError, UnreachableError } from "../../src/tools/errors.js";
import { Floor } from "../../src/tools/floor.js";
import { fnmatch } from "../../src/tools/fnmatch.js";
import { Inspector } from "../../src/tools/inspector.js";
import { safeArguments } from "../../src/tools/operands.js";
import { PathValidator } from "../../src/tools/PathValidator.js";
import { sleep } from "../../src/tools/ports.js";
import { AnswerReader } from "../../src/tools/ripgrep.js";
import { Scan, type Work } from "../../src/tools/scan.js";
import { gitIdentity, Workspace } from "../../src/tools/Workspace.js";
import { FakeClock, FakeLink, FakeLog, inspectionOf, PROJECT, settled, signal, until } from "./fakes.js";
import { makeFifo, workspaceWith } from "./places.js";

const rules = (text: string) => new Policy([parsePolicy(text, "user", "p.toml", true)]);
const deny = (...paths: string[]) => rules(`[[rule]]\naction = "deny"\npaths = ${JSON.stringify(paths)}\n`);

describe("The inspector", () => {
  let root: string;
  let link: FakeLink;
  let log: FakeLog;
  let clock: FakeClock;
  let workspace: Workspace;

  beforeEach(() => {
    root = workspaceWith({ "a.md": "text", "run.py": "print(1)\n", "secret/a.md": "x" });
    [link, log, clock] = [new FakeLink(), new FakeLog(), new FakeClock()];
  });

  afterEach(() => workspace.close());

  function inspectorWith(policy = new Policy()): Inspector {
    workspace = new Workspace(root, { policy });
    const gate = new Gate({ policy });
    return new Inspector({ projectId: PROJECT, workspace, gate, link, tries: 2, clock, log });
  }

  it("shows the script of a command, and says what this machine refuses", async () => {
    const inspector = inspectorWith();
    await inspector.request(inspectionOf("execute_command", { command: "python", args: ["run.py"] }));
    await inspector.request(inspectionOf("execute_command", { command: "rm", args: ["-rf"] }));
    await inspector.request(inspectionOf("execute_command", {}));
    expect(link.inspections.map((one) => one.body.problem)).toEqual([
      null,
      "Refused on this machine: Command not allowed: rm",
      expect.stringMatching(/^Refused on this machine/),
    ]);
    expect(link.inspections[0]?.body.files).toMatchObject([{ path: "run.py", text: "print(1)\n" }]);
  });

  it("holds the rules against the real name too", async () => {
    symlinkSync("secret/a.md", join(root, "plain.md"));
    const inspector = inspectorWith(deny("secret/**"));
    await inspector.request(inspectionOf("write_file", { path: "plain.md", content: "" }));
    await inspector.request(inspectionOf("write_file", { path: "a.md", content: "" }));
    expect(link.inspections.map((one) => typeof one.body.problem)).toEqual(["string", "object"]);
  });

  it("tries again, sends less where all of it is too much, and otherwise lets it be", async () => {
    const inspector = inspectorWith();
    const ask = () => inspector.request(inspectionOf("write_file", { path: "a.md", content: "" }));
    link.fail("postInspection", new UnreachableError("gone"));
    const event = inspectionOf("write_file", { path: "a.md", content: "" });
    const asking = inspector.request(event);
    await inspector.request(event); // on its way already
    await until(() => clock.timers.size > 0);
    clock.advance(1_000);
    await asking;
    link.fail("postInspection", new CallerError("too large"));
    await ask();
    link.fail("postInspection", new NotFound("over"));
    await ask();
    link.fail("postInspection", new RefusedError("no scope"));
    await ask();
    link.fail("postInspection", new TypeError("a fault"));
    await ask();
    const texts = link.inspections.map((one) => (one.body.files as { text: string | null }[])[0]?.text);
    expect(texts).toEqual(["text", null]);
    expect(log.said("inspection failed unexpectedly")).toBe(1);
    inspector.close();
    await ask();
    expect(link.inspections).toHaveLength(2);
  });

  it("does not take more than it can answer", async () => {
    const inspector = inspectorWith();
    const asked = Array.from({ length: 70 }, () =>
      inspector.request(inspectionOf("write_file", { path: "a.md", content: "" })),
    );
    await Promise.all(asked);
    expect(log.said("inspection left out")).toBe(6);
  });
});

it("Only what says who allowed it counts as an approval", () => {
  const verdict = (more: Partial<Verdict> = {}): Verdict => {
    const findings = [{ level: "MEDIUM" as const, reason: "", rule: "", alwaysAsks: false }];
    const base = { level: "MEDIUM" as const, findings, network: false, errorType: null, understood: null };
    return { ...base, waivedBy: null, runs: [], ...more };
  };
  const asks = verdict({ findings: [{ level: "MEDIUM", reason: "", rule: "", alwaysAsks: true }] });
  const by = (approved_by: string, more: object = {}) => signal("write_file", {}, { approved_by, ...more });
  const cases: [ReturnType<typeof by>, Verdict, boolean][] = [
    [by("person:alice", { approval_id: "a" }), verdict(), true],
    [by("person:alice"), verdict(), false],
    [by("person:", { approval_id: "a" }), verdict(), false],
    [by("grant:g"), verdict(), true],
    [by("grant:"), verdict(), false],
    [by("grant:g"), asks, false],
    [by("mode:full", { mode: "full" }), verdict(), true],
    [by("mode:full"), verdict(), false],
    [by("rule:user.1"), verdict(), false],
    [by("rule:user.1"), verdict({ waivedBy: "user.1" }), true],
    [by("risk:LOW"), verdict(), false],
    [by("alice"), verdict(), false],
  ];
  for (const [event, found, expected] of cases) {
    expect(hasApproval(event, found), event.approved_by).toBe(expected);
  }
});

describe("The scan", () => {
  const work = (root: string, more: Partial<Work> = {}): Work => ({
    ...{ base: root, isFile: false, above: [], pattern: "needle", regex: false, caseSensitive: true, globs: [] },
    maxCount: 10,
    ...more,
  });
  const found = (one: Work) => [...new Scan(one).run()].map(([path, lines]) => [path, lines.map(([line]) => line)]);

  it("walks in order, without what is ignored, hidden, no text or too deep", () => {
    const root = workspaceWith({
      "b.txt": "needle\nx\nneedle\r\n",
      "a.txt": "needle",
      ".hidden": "needle",
      "bin.dat": "needle\0",
      "ignored.log": "needle",
      ".gitignore": "*.log\n",
      "sub/.git/HEAD": "",
      "sub/x.log": "needle",
      [`${"d/".repeat(66)}deep.txt`]: "needle",
    });
    writeFileSync(join(root, "wide.txt"), Buffer.from("\ufeffneedle", "utf16le"));
    symlinkSync("a.txt", join(root, "link.txt"));
    makeFifo(join(root, "pipe"));
    mkdirSync(join(root, "odd/.gitignore"), { recursive: true });
    expect(found(work(root))).toEqual([
      ["a.txt", [1]],
      ["b.txt", [1, 3]],
      ["sub/x.log", [1]],
      ["wide.txt", [1]],
    ]);
    expect(found(work(root, { maxCount: 1, globs: ["b*"] }))).toEqual([["b.txt", [1]]]);
    expect(found(work(root, { globs: [".hid*"] }))).toEqual([[".hidden", [1]]]);
    expect(found(work(join(root, "a.txt"), { isFile: true }))).toEqual([["file", [1]]]);
    const above = [{ content: Buffer.from("sub/x.log\n").toString("base64"), add: "" }];
    expect(found(work(root, { above, globs: ["x*"] }))).toEqual([["sub/x.log", [1]]]);
    const regex = { regex: true, caseSensitive: false };
    expect(found(work(root, { ...regex, pattern: "^N(?:e+)d\\w[^x]$" }))).toHaveLength(4);
    expect(() => new Scan(work(root, { ...regex, pattern: "a)" }))).toThrow();
    expect(found(work("/no/such/place"))).toEqual([]);
  });

  it("and ripgrep's answer are read the same, whatever names hold", () => {
    const reader = new AnswerReader(1, () => true);
    let enough = false;
    reader.whenEnough = () => (enough = true);
    reader.feed("stderr", Buffer.from("  odd \n words "));
    reader.feed("stdout", Buffer.from("./a\0"));
    reader.feed(
      "stdout",
      Buffer.from("1:x\n./a: binary file matches (found)\n./b\nc\x002:y\n./d\x003:z\n./e\x004:w\n"),
    );
    expect(reader.found().map(({ path }) => path)).toEqual(["d", "e"]);
    reader.feed("stdout", Buffer.from("./f\x005:v\n"));
    expect([enough, reader.said()]).toEqual([true, "odd words"]);
    reader.feed("stdout", Buffer.from("./g\x006:u\n"));
    expect(reader.found()).toHaveLength(3);
  });
});

describe("Odd places", () => {
  it("a floor refuses where it cannot look, and covers what it cannot enter", () => {
    const root = workspaceWith({ "a/key.pem": "x", "b/c": "y" });
    symlinkSync(".", join(root, "self.pem"));
    const paths = new PathValidator(root);
    expect(() => new Floor(deny("*.pem")).masked(paths)).toThrow("links to the whole workspace");
    expect(new Floor(deny("a/*.pem")).masked(paths)).toEqual(["a/key.pem"]);
    expect(new Floor(new Policy()).masked(paths)).toEqual([]);
    const floor = new Floor(rules('[[rule]]\naction = "deny"\npaths = ["b/**"]\nbecause = "Private."\n'));
    expect(() => floor.refuse("b/c", "read_file")).toThrow("'b/c' is denied by rule user.1. Private.");
    mkdirSync(join(root, "many"));
    const here = paths.child.bind(paths);
    paths.child = (parent, name, flags) => {
      if (name === "b") {
        throw new Error("another mount");
      }
      return here(parent, name, flags);
    };
    expect(new Floor(deny("x/**")).masked(paths)).toEqual(["b"]);
  });

  it("a listing stops when it is called off, at its depth, and where it may not look", async () => {
    const root = workspaceWith({ [`${"d/".repeat(70)}x.txt`]: "" });
    const workspace = new Workspace(root);
    const list = { path: ".", recursive: true, pattern: "*" };
    expect(await workspace.run("list_directory", list)).toMatchObject({ truncated: true, total_count: 65 });
    const stopped = await workspace.run("list_directory", list, { signal: AbortSignal.abort() });
    expect(stopped).toMatchObject({ truncated: true, total_count: 0 });
    const many = workspaceWith(Object.fromEntries(Array.from({ length: 1100 }, (_, at) => [`f${at}`, ""])));
    expect(await new Workspace(many).run("list_directory", list)).toMatchObject({ truncated: true, total_count: 1000 });
    expect([fnmatch("[]a]*")("]x"), fnmatch("[!]a]")("b"), fnmatch("a[b-]")("a-")]).toEqual([true, true, true]);
  });

  it("a directory that may not be written, and names that are taken, are told", async () => {
    const root = workspaceWith({ "shut/a.md": "x" });
    chmodSync(join(root, "shut"), 0o555);
    const workspace = new Workspace(root);
    const write = (path: string) => workspace.run("write_file", { path, content: "y", mode: "write" });
    await expect(write("shut/a.md")).rejects.toThrow("No permission");
    await expect(write(`${"n/".repeat(66)}x.md`)).rejects.toThrow("more than 64 new directories");
    await expect(write("missing/../x.md")).rejects.toThrow();
    await expect(write("gone/..")).rejects.toThrow();
    await Promise.all(["p.md", "p.md", "p.md"].map(write));
    expect(readdirSync(root).sort()).toEqual(["p.md", "shut"]);
    chmodSync(join(root, "shut"), 0o755);
  });

  it("safe arguments are added where a command needs them", () => {
    expect(safeArguments("git", ["-C", "x", "diff", "a"])).toEqual(expect.arrayContaining(["--no-ext-diff"]));
    expect(safeArguments("diff", ["a", "b"])[0]).toBe("--no-dereference");
    expect(safeArguments("grep", ["-r", "x", "--", "."])[0]).toMatch(/^--exclude=/);
    expect(safeArguments("grep", ["-r", "x", ".env"])).toEqual(["-r", "x", ".env"]);
    expect(safeArguments("grep", ["--what"])).toEqual(expect.arrayContaining(["--what"]));
    expect(gitIdentity("/")).toMatch(/^\[user\]/);
  });

  it("a link hides nothing from a command, whatever it is called", async () => {
    const root = workspaceWith({ ".env": "S=1" });
    symlinkSync(".env", join(root, "a holds b, or is empty"));
    const workspace = new Workspace(root);
    const cat = { command: "cat", args: ["a holds b, or is empty"], timeout: 30 };
    await expect(workspace.run("execute_command", cat)).rejects.toThrow("which may hold secrets");
  });

  it("what was called off before it began does not begin", async () => {
    const workspace = new Workspace(workspaceWith({ "run.py": "1" }));
    const signal = AbortSignal.abort();
    const search = { pattern: "x", path: ".", regex: false, glob: null, case_sensitive: true, max_results: 9 };
    await expect(workspace.run("search_files", search, { signal })).rejects.toThrow("called off");
    const run = { command: "python", args: ["run.py"], timeout: 30 };
    const bound = { "run.py": createHash("sha256").update("1").digest("hex") };
    await expect(workspace.run("execute_command", run, { signal, bound })).rejects.toThrow("called off");
    const clock = new FakeClock();
    await sleep(clock, 1_000, signal);
    expect(clock.timers.size).toBe(0);
  });

  it("real names of options and links are told", async () => {
    const root = workspaceWith({ "d/a.md": "" });
    symlinkSync("d", join(root, "way"));
    const workspace = new Workspace(root);
    const args = ["way/a.md", "--file=way/a.md", "-x", "--y=", "..", "plain"];
    expect(workspace.underRealNames({ path: "way/a.md", args })).toEqual({
      path: "d/a.md",
      args: ["d/a.md", "--file=d/a.md", "-x", "--y=", "..", "plain"],
    });
    await settled();
  });
});
