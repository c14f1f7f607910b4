// What the vectors cannot say: faults of ours, values that no JSON holds, sizes too large to keep, and that the
// comparison itself would notice a gate that lets more pass.

import { describe, expect, test } from "vitest";
import { judgeValue, KINDS } from "../../src/gate/arguments.js";
import {
  Gate,
  message,
  Policy,
  PolicyError,
  parsePolicy,
  rank,
  secretGlobs,
  secretName,
} from "../../src/gate/index.js";
import { Place } from "../../src/gate/place.js";
import { changesWhatItRuns } from "../../src/gate/scripts.js";
import { joinPath, last, normalPath } from "../../src/gate/strings.js";
import { type CommandTable, commandNames, commandTable, listOf, patternSource } from "../../src/gate/tables.js";
import { strictest } from "../../src/gate/verdicts.js";
import { starFits } from "../../src/gate/wildcards.js";
import { compareCalls } from "./comparing.js";

const HERE = { workspace: "/home/user/ws" };
const gate = new Gate();

function run(judge: Gate, command: string, ...args: string[]) {
  return judge.judge("execute_command", { command, args }, HERE).verdict;
}

describe("a call that is no call", () => {
  test.each([undefined, null, 1, {}, ["read_file"], Symbol("x")])("with the name %s is refused", (name) => {
    expect(gate.judge(name, {}, HERE).verdict).toMatchObject({ level: "REFUSE", errorType: "invalid" });
  });

  test.each([undefined, null, 1, "x", [], () => 1, { path: undefined }, { path: Symbol("x") }])(
    "with the parameters %s is refused",
    (params) => {
      expect(gate.judge("read_file", params, HERE).verdict).toMatchObject({ level: "REFUSE", errorType: "invalid" });
    },
  );

  test("with half a character in its name is refused and the name is shown whole", () => {
    const { toolName, verdict } = gate.judge("read\ud800", {}, HERE);
    expect([toolName, verdict.findings[0]?.rule]).toEqual(["read\ufffd", "tools.unicode"]);
  });

  test("with parameters that hold themselves or are endless is judged all the same", () => {
    const circle: Record<string, unknown> = { path: "a.txt" };
    circle.circle = circle;
    expect(gate.judge("read_file", circle, HERE).verdict.level).toBe("REFUSE");
    const many = { path: Array.from({ length: 20_000 }, () => ({})) };
    expect(gate.judge("read_file", many, HERE).verdict.findings[0]?.rule).toBe("tools.unicode");
  });

  test("that makes the gate itself fail is refused", () => {
    const trap = Object.defineProperty({}, "path", {
      enumerable: true,
      get: () => {
        throw new RangeError("no");
      },
    });
    expect(gate.judge("read_file", trap, HERE).verdict.findings[0]?.reason).toBe(
      "The call could not be judged (RangeError).",
    );
    const odd = Object.defineProperty({}, "path", {
      enumerable: true,
      get: () => {
        throw "no";
      },
    });
    expect(gate.judge("read_file", odd, HERE)).toMatchObject({ toolName: "read_file", verdict: { level: "REFUSE" } });
  });
});

describe("sizes", () => {
  test("a content above 100 MB is refused, one of it is not", () => {
    const write = (content: string) => gate.judge("write_file", { path: "a.md", content }, HERE).verdict;
    expect(write("x".repeat(100 * 1024 * 1024)).level).toBe("MEDIUM");
    expect(write("x".repeat(100 * 1024 * 1024 + 1)).findings[0]?.rule).toBe("sizes.content");
  });

  test("arguments above 128 kB are refused", () => {
    expect(run(gate, "echo", "x".repeat(131_073)).findings[0]?.rule).toBe("commands.amount");
    expect(message(run(gate, "echo", ...Array<string>(257).fill("x")))).toBe("257 arguments are more than 256.");
  });

  test("a policy of too many rules, paths or characters is not read", () => {
    const rule = (path: string) => `[[rule]]\naction = "deny"\npaths = [${path}]\n`;
    const paths = Array.from({ length: 251 }, (_, number) => `"p${number}"`).join();
    for (const text of [rule('"a"').repeat(501), rule(paths).repeat(2), "#".repeat(64 * 1024 + 1)]) {
      expect(() => parsePolicy(text, "user", "policy.toml")).toThrow(PolicyError);
    }
  });

  test("a policy nested beyond reason is not read", () => {
    expect(() => parsePolicy(`x = ${"[".repeat(5000)}`, "user", "policy.toml")).toThrow(PolicyError);
    expect(() => parsePolicy(`x = ${"[".repeat(900)}${"]".repeat(900)}`, "user", "policy.toml")).toThrow(PolicyError);
  });
});

describe("the tables", () => {
  test("name no kind of value that is not judged here", () => {
    const kinds = new Set<string>();
    const look = (table: CommandTable) => {
      for (const option of [...table.options.values(), ...table.modules.values()]) {
        kinds.add(option.kind ?? "text").add(option.operands ?? "text");
      }
      for (const kind of [...(table.operands ?? []), table.last ?? "text", table.after ?? "loose"]) {
        kinds.add(kind);
      }
      for (const sub of table.subs.values()) {
        look(sub);
      }
    };
    for (const name of commandNames()) {
      look(commandTable(name) as CommandTable);
    }
    expect([...kinds].filter((kind) => !KINDS.has(kind))).toEqual([]);
    expect(kinds.size).toBeGreaterThan(20);
  });

  test("that are newer than the judges ask rather than let pass", () => {
    const place = new Place(commandTable("ls") as CommandTable, null);
    expect(judgeValue("of tomorrow", "x", place)[0]?.level).toBe("HIGH");
  });

  test("without an entry that is asked for are an error", () => {
    expect(() => listOf("nothing")).toThrow("no nothing");
    expect(() => patternSource("nothing")).toThrow("no pattern nothing");
    expect(commandTable("constructor")).toBeUndefined();
  });
});

describe("the owner's rules", () => {
  const deny =
    '[[rule]]\naction = "deny"\ntool = "search_files"\npaths = ["private/**"]\nmatch = ["search_files private"]\n';
  const everywhere = '[[rule]]\naction = "deny"\npaths = ["*.pem"]\n[[rule]]\naction = "ask"\npaths = ["x"]\n';

  test("that keep a tool from paths are handed to what searches", () => {
    const policy = new Policy([parsePolicy(deny + everywhere, "user", "policy.toml")]);
    expect(policy.pathDenials("search_files").map((rule) => rule.label)).toEqual([
      "user.1: deny search_files in private/**",
      "user.2: deny in *.pem",
    ]);
    expect(policy.pathDenials("read_file").map((rule) => rule.number)).toEqual([2]);
  });

  test("are met by a module under another name, and by a line that no table reads", () => {
    const text = 'commands = ["frobnicate"]\n[[rule]]\naction = "deny"\ncommand = ["frobnicate", "now"]\n';
    const judge = new Gate({ policy: new Policy([parsePolicy(text, "user", "policy.toml")]) });
    expect(run(judge, "frobnicate", "-x", "now").level).toBe("REFUSE");
    expect(run(judge, "frobnicate", "later").level).toBe("HIGH");
  });

  test("may have examples of every tool", () => {
    const web = '[[rule]]\naction = "ask"\ntool = "search_web"\nmatch = ["search_web"]\n';
    expect(parsePolicy(web, "user", "policy.toml").rules).toHaveLength(1);
  });

  test("say what is wrong with them in one sentence and what to do", () => {
    const read = () =>
      parsePolicy('[[rule]]\naction = "ask"\nmode = "full"\ntool = "read_file"', "user", "policy.toml");
    expect(read).toThrow("policy.toml, rule 1: 'mode' is not a key of a rule.");
    expect(read).toThrow(expect.objectContaining({ hint: "write `mode` above the first [[rule]]" }));
  });
});

test("npm install may rewrite what it runs, npm test may not", () => {
  const npm = (...args: string[]) => changesWhatItRuns("npm", args, run(gate, "npm", ...args).understood);
  expect([npm("install"), npm("test"), npm("ci"), changesWhatItRuns("ls", [], null)]).toEqual([
    true,
    false,
    false,
    false,
  ]);
});

test("names of secrets are given to a searcher as globs that mean the same", () => {
  const { directories, files, harmless } = secretGlobs();
  expect(files).toEqual(expect.arrayContaining([".env*", "secrets.yaml", "secret"]));
  expect(harmless).toEqual(expect.arrayContaining([".env.example", "*.pub"]));
  for (const glob of files.filter((one) => !harmless.includes(one))) {
    const name = glob.replaceAll("*", "q");
    expect([glob, secretName(name)]).toEqual([glob, !harmless.some((other) => starFits(other, name))]);
  }
  expect(directories.every((name) => secretName(`${name}/x`))).toBe(true);
});

test("paths and texts are cut as Python cuts them", () => {
  expect([normalPath(""), normalPath("//a/./b/../c"), normalPath("/../a"), normalPath("../a/..")]).toEqual([
    ".",
    "//a/c",
    "/a",
    "..",
  ]);
  expect([joinPath("a", "/b"), joinPath("a/", "b"), joinPath("", "b")]).toEqual(["/b", "a/b", "b"]);
  expect([last("😀ab", 2), last("a😀b", 2), last("a", 2)]).toEqual(["ab", "😀b", "a"]);
  expect([strictest("LOW", "HIGH", "MEDIUM"), rank("REFUSE")]).toEqual(["HIGH", 3]);
});

test("a gate that lets more pass than Python is noticed", () => {
  const calls = { workspace: "/home/user/ws", allowed: null, isolated: true };
  const { other, weaker } = compareCalls({
    ...calls,
    rows: [
      [["ls"], "M  00000000"],
      [["cat", ".env"], "L  00000000"],
      [["ls", "-l"], "L a 00000000"],
    ],
  });
  expect([weaker.length, other.length]).toEqual([2, 1]);
});
