import { render } from "@testing-library/react";
import { describe, expect, it, vi } from "vitest";
import { headline, headlineText, runs, timeLimit, unsaid, warnings } from "../src/cards/asked";
import { Headline } from "../src/cards/Headline";
import { host, question } from "./cards_samples";

const command = (command: string, ...args: unknown[]) => question({ tool_params: { command, args } });
const said = (...words: Parameters<typeof command>) => headlineText(headline(command(...words)));

describe("what is asked", () => {
  it("is the command as it would be typed, with quotes only where it could be misread", () => {
    expect(said("npm", "test")).toBe("Run npm test");
    expect(said("git", "commit", "-m", "two words", "")).toBe('Run git commit -m "two words" ""');
    expect(said("python3", "-c", "a\nb\u202e")).toBe('Run python3 -c "a\\nb\\u{202e}"');
    // A newline is not mistaken for a backslash and an n.
    expect(said("echo", "a\\nb")).toBe('Run echo "a\\\\nb"');
  });
  it("is whole, however long", () => {
    expect(said("echo", "x".repeat(9000))).toHaveLength("Run echo ".length + 9000);
  });
  it("counts blanks that would push what follows out of sight", () => {
    const words = headline(command("python", "-c", `1;${" ".repeat(2000)}evil()`));
    const { container } = render(<Headline words={words} />);
    expect(container.textContent).toBe('Run python -c "1;[2,000 blanks]evil()"');
    expect(container.querySelector(".card-blank")).toBeTruthy();
  });
  it("falls back to the server's words where there is no command to be read", () => {
    const odd = question({ tool_params: { withheld: "x" }, description: "A call that cannot be read.\nmore" });
    expect(headlineText(headline(odd))).toBe("A call that cannot be read.");
  });
  it("knows from the machine whether a file is there", () => {
    const write = (sha256?: string) =>
      question({
        tool_name: "write_file",
        tool_params: { path: "src/a b.py", content: "x" },
        inspection: sha256 === undefined ? null : { files: [{ path: "src/a b.py", role: "replaces", sha256 }] },
      });
    expect(headlineText(headline(write("missing")))).toBe("Create src/a b.py");
    expect(headlineText(headline(write("e".repeat(64))))).toBe("Replace src/a b.py");
    expect(headlineText(headline(write()))).toBe("Write src/a b.py");
  });
  it("opens the file where the host can", () => {
    const at = host({ openFile: vi.fn() });
    const { container } = render(<Headline words={{ verb: "Replace", what: "a.md" }} file="a.md" host={at} />);
    container.querySelector("button")?.click();
    expect(at.openFile).toHaveBeenCalledWith("a.md");
  });
});

describe("the facts below it", () => {
  const file = (path: string, text: string, more = {}) =>
    question({ inspection: { files: [{ path, sha256: "e".repeat(64), text, ...more }] } });

  it("name the script that package.json runs, where it can be read", () => {
    expect(runs(file("package.json", '"pretest": "tsc",\n"test": "node --test tests/"'))).toEqual([
      { path: "package.json", script: "tsc && node --test tests/" },
    ]);
    for (const text of ["(no script of this name)", '"a": "1"\n"b": "2"\n"c": "3"\n"d": "4"', '"a": 1'])
      expect(runs(file("package.json", text))[0]?.script).toBeNull();
    expect(runs(file("package.json", '"a": "x"', { shortened: true }))[0]?.script).toBeNull();
    expect(runs(file("run.py", '"a": "x"'))).toEqual([{ path: "run.py", script: null }]);
    expect(runs(file("gone.py", "", { sha256: "missing" }))).toEqual([]);
  });
  it("say how long it may take", () => {
    const limit = (timeout: unknown) => timeLimit(question({ tool_params: { command: "x", timeout } }));
    expect([limit(30), limit(300), limit(90), limit("x")]).toEqual([
      "up to 30 s",
      "up to 5 min",
      "up to 1 min 30 s",
      null,
    ]);
  });
  it("leave nothing of a call unsaid", () => {
    const odd = question({ tool_params: { command: "x", args: "y", timeout: "z", cwd: "/", nothing: null } });
    expect(unsaid(odd)).toEqual({ args: "y", timeout: "z", cwd: "/" });
    const write = question({
      tool_name: "write_file",
      tool_params: { path: "a", content: "b", mode: "odd", owner: 1 },
    });
    expect(unsaid(write)).toEqual({ mode: "odd", owner: 1 });
    const read = { path: "a", start_line: 3, end_line: null, encoding: "x" };
    expect(unsaid(question({ tool_name: "read_file", tool_params: read }))).toEqual({ encoding: "x" });
    expect(unsaid(question({ tool_name: "search_web", tool_params: { query: "a" } }))).toEqual({ query: "a" });
  });
});

describe("warnings", () => {
  const found = (more: object) =>
    warnings(
      question({
        findings: [
          { level: "MEDIUM", reason: "r", rule: "commands.git.commit", instead: null, always_asks: false, ...more },
        ],
      }),
    ).length;
  it("are what says more than the headline", () => {
    expect(found({})).toBe(0);
    expect(found({ rule: "write.text" })).toBe(0);
    expect(found({ level: "LOW", rule: "x" })).toBe(0);
    expect(found({ level: "HIGH" })).toBe(1);
    expect(found({ always_asks: true })).toBe(1);
    expect(found({ instead: "a branch" })).toBe(1);
    expect(found({ rule: "commands.git.commit.--amend" })).toBe(1);
    expect(found({ rule: "project" })).toBe(1);
  });
});
