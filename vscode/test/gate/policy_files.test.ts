// The rule files of a machine, really on a disk: who may have written them, links, trust, and Byleave's own files.

import { createHash } from "node:crypto";
import {
  chmodSync,
  chownSync,
  mkdirSync,
  mkdtempSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { Gate, loadPolicy, PolicyError } from "../../src/gate/index.js";

const RULES =
  'commands = ["sort"]\n[[rule]]\naction = "deny"\ncommand = ["git", "push"]\n[[rule]]\naction = "allow"\ncommand = ["npm", "test"]\n';
let top: string;
let workspace: string;
let home: string;

beforeEach(() => {
  top = realpathSync(mkdtempSync(join(tmpdir(), "byleave-")));
  workspace = join(top, "ws");
  home = join(top, "home");
  mkdirSync(join(workspace, ".byleave"), { recursive: true });
  mkdirSync(home);
  vi.stubEnv("XDG_CONFIG_HOME", join(top, "config"));
  vi.stubEnv("XDG_DATA_HOME", join(top, "data"));
});

afterEach(() => {
  vi.unstubAllEnvs();
  rmSync(top, { recursive: true, force: true });
});

function written(path: string, text: string | Buffer, mode = 0o644): string {
  mkdirSync(join(path, ".."), { recursive: true });
  writeFileSync(path, text);
  chmodSync(path, mode);
  return path;
}

function load(places: Parameters<typeof loadPolicy>[1] = {}) {
  return loadPolicy(workspace, { devicePolicy: undefined, home, ...places });
}

function level(...line: [string, ...string[]]): string {
  const [command, ...args] = line;
  const { policy } = load();
  return new Gate({ policy }).judge("execute_command", { command, args }, { workspace }).verdict.level;
}

test("without any file nothing is forbidden but what always is", () => {
  const { notes, policy, texts } = load();
  expect([policy.layers, texts, notes, policy.widestMode]).toEqual([[], [], [], "full"]);
});

test("the user's own file counts, and is declared as it stands", () => {
  const file = written(join(top, "config/byleave/policy.toml"), `mode = "sandbox"\n${RULES}`);
  const { policy, texts } = load();
  expect(texts).toEqual([{ layer: "user", source: file, text: `mode = "sandbox"\n${RULES}`, trusted: true }]);
  expect([policy.widestMode, [...policy.commands]]).toEqual(["sandbox", ["sort"]]);
  expect([level("git", "push"), level("sort", "a.txt")]).toEqual(["REFUSE", "LOW"]);
});

test("a project's file tightens at once and loosens only what was trusted", () => {
  written(join(workspace, ".byleave/policy.toml"), RULES);
  expect(load().notes).toEqual([
    "held back until you run `byleave trust`: turns on the command sort",
    "held back until you run `byleave trust`: rule 2: allow npm test",
  ]);
  expect([level("git", "push"), level("sort", "a.txt")]).toEqual(["REFUSE", "REFUSE"]);
  const digest = createHash("sha256").update(RULES).digest("hex");
  written(join(home, "trusted.json"), JSON.stringify({ [workspace]: digest }), 0o600);
  expect([load().notes, level("sort", "a.txt")]).toEqual([[], "LOW"]);
  written(join(workspace, ".byleave/policy.toml"), `${RULES}\n`);
  expect(level("sort", "a.txt")).toBe("REFUSE");
});

test.each(["null", "[]", "not JSON", "{}"])("a list of what was trusted that holds %s trusts nothing", (text) => {
  written(join(workspace, ".byleave/policy.toml"), RULES);
  written(join(home, "trusted.json"), text, 0o600);
  expect(load().texts[0]?.trusted).toBe(false);
});

test("a list of what was trusted that others may change, or that lies in the workspace, trusts nothing", () => {
  written(join(workspace, ".byleave/policy.toml"), RULES);
  const known = JSON.stringify({ [workspace]: createHash("sha256").update(RULES).digest("hex") });
  written(join(home, "trusted.json"), known, 0o622);
  expect(load().texts[0]?.trusted).toBe(false);
  written(join(workspace, "state/trusted.json"), known, 0o600);
  expect(load({ home: join(workspace, "state") }).texts[0]?.trusted).toBe(false);
});

test("a file that others may change is refused", () => {
  const file = written(join(top, "config/byleave/policy.toml"), RULES, 0o666);
  expect(load).toThrow("can be changed by others");
  chmodSync(file, 0o644);
  if (process.geteuid?.() === 0) {
    chownSync(file, 12345, 12345);
    expect(load).toThrow("can be changed by others");
  }
});

test("a project's file behind a link is refused", () => {
  const other = written(join(top, "other/policy.toml"), "");
  symlinkSync(other, join(workspace, ".byleave/policy.toml"));
  expect(load).toThrow(expect.objectContaining({ hint: expect.stringContaining("not a link") }));
  rmSync(join(workspace, ".byleave"), { recursive: true });
  symlinkSync(join(top, "other"), join(workspace, ".byleave"));
  expect(load).toThrow(PolicyError);
});

test("a file that is named and missing, too long, no file, or no text is refused", () => {
  const file = join(top, "mine.toml");
  expect(() => load({ userPolicy: file })).toThrow("There is no policy file");
  written(file, "#".repeat(64 * 1024 + 1));
  expect(() => load({ userPolicy: file })).toThrow("longer than 64 kB");
  written(file, Buffer.from([0xff, 0xfe]));
  expect(() => load({ userPolicy: file })).toThrow("not UTF-8");
  mkdirSync(join(top, "directory"), { mode: 0o700 });
  expect(() => load({ userPolicy: join(top, "directory") })).toThrow("not a regular file");
  expect(() => load({ devicePolicy: written(join(workspace, "rules.toml"), "") })).toThrow("lies in the workspace");
});

test("Byleave's own files in a workspace are denied to every tool", () => {
  const { policy } = load({ home: join(workspace, "State") });
  const gate = new Gate({ policy });
  const read = (path: string) => gate.judge("read_file", { path }, { workspace }).verdict;
  expect(read("state/trusted.json").level).toBe("REFUSE");
  expect(read("state/trusted.json").findings[0]?.rule).toBe("policy.built-in.1");
  expect(read("src/a.py").level).toBe("LOW");
});

test("a workspace in which Byleave keeps its own files is none", () => {
  expect(() => load({ home: workspace })).toThrow("cannot be a workspace");
  mkdirSync(join(top, "clients/x"), { recursive: true });
  expect(() => loadPolicy(join(top, "clients/x"), { home: top })).toThrow("cannot be a workspace");
});
