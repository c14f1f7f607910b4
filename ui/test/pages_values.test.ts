// The pure parts of the pages: splitting a line, the form of a tool's parameters, names for actors, what is new.

import { describe, expect, it } from "vitest";
import { fieldsOf, paramsOf } from "../src/pages/fields";
import { asProblem } from "../src/pages/loading";
import { asOfNow, newCalls } from "../src/pages/recent";
import { shellWords, splitLine } from "../src/pages/splitting";
import { actionWords, actorWords } from "../src/pages/words";
import { at, execution, question, stateOf, TOOLS, toolCall } from "./pages_house";

describe("a typed line", () => {
  it.each([
    ["git status", ["git", "status"]],
    ["  git\t status  ", ["git", "status"]],
    ['git commit -m "two words"', ["git", "commit", "-m", "two words"]],
    ["echo 'a \"b\" \\c'", ["echo", 'a "b" \\c']],
    ['echo "a \\" \\\\ \\n"', ["echo", 'a " \\ \\n']],
    ["echo a\\ b", ["echo", "a b"]],
    ["echo ''", ["echo", ""]],
    ['--name="x y"z', ["--name=x yz"]],
    ["", []],
  ])("%s is split into its words", (line, words) => {
    expect(splitLine(line)).toEqual({ words, problem: null });
  });

  it.each(["echo 'a", 'echo "a', 'echo "a\\"'])("%s has an unclosed quote and is refused", (line) => {
    expect(splitLine(line).words).toBeNull();
    expect(splitLine(line).problem).toContain("never closed");
  });

  it("that ends in a backslash is refused", () => {
    expect(splitLine("echo \\").problem).toContain("backslash");
  });

  it("names the words a shell would have acted on", () => {
    expect(shellWords(["ls", "|", "wc", "$(id)", "a;", "~", "plain", "$HOME"])).toEqual([
      "|",
      "$(id)",
      "a;",
      "~",
      "$HOME",
    ]);
  });
});

describe("the form of a tool", () => {
  const fields = (name: string) => fieldsOf(TOOLS.find((tool) => tool.name === name)?.parameters ?? {});

  it("follows the schema", () => {
    expect(fields("write_file").map((field) => [field.name, field.kind, field.required])).toEqual([
      ["path", "line", true],
      ["content", "text", true],
      ["mode", "choice", false],
    ]);
    expect(fields("search_files").map((field) => field.kind)).toEqual(["line", "yes", "yes", "number"]);
    expect(fields("read_file")[1]).toMatchObject({ kind: "number", usual: "" });
  });

  it("is empty for a schema without properties, and a line for what is not a schema", () => {
    expect(fieldsOf({})).toEqual([]);
    expect(fieldsOf({ properties: { odd: true } })[0]).toMatchObject({ name: "odd", kind: "line" });
  });

  it("leaves out what was left empty or is as usual", () => {
    expect(paramsOf(fields("search_files"), { pattern: "x", case_sensitive: true, max_results: "" })).toEqual({
      pattern: "x",
    });
  });

  it("sends numbers as numbers, and what is none as text for the gate to refuse", () => {
    const typed = { pattern: "x", case_sensitive: false, max_results: "12" };
    expect(paramsOf(fields("search_files"), typed)).toEqual({ pattern: "x", case_sensitive: false, max_results: 12 });
    expect(paramsOf(fields("search_files"), { max_results: "many" })).toEqual({ max_results: "many" });
  });

  it("keeps an empty text that was typed, because an empty file is a file", () => {
    expect(paramsOf(fields("write_file"), { path: "a", content: "" })).toEqual({ path: "a", content: "" });
  });
});

it.each([
  ["person:alice", "you"],
  ["user:alice", "you"],
  ["person:bob", "bob"],
  ["person:", "a person"],
  ["client:laptop", "machine laptop"],
  ["server", "the server"],
  ["agent:chat", "agent chat"],
  ["odd", "odd"],
  [null, "nobody"],
])("the actor %s is called %s", (actor, words) => {
  expect(actorWords(actor, "alice")).toBe(words);
});

it("an action is read as words", () => {
  expect(actionWords("grant_revoked")).toBe("grant revoked");
});

it("an error nobody expected becomes a problem with something to do", () => {
  expect(asProblem(new TypeError("x")).hint).toContain("Reload");
});

describe("what is new", () => {
  const all = { tool: "", status: "", risk: "", here: false };
  const state = stateOf({ entries: [toolCall()], questions: [question({ session_id: "sess_2" })] });

  it("counts calls of the conversation and what waits in others", () => {
    expect(newCalls(state, [execution()], all)).toBe(2);
    expect(newCalls(state, [], all)).toBe(2);
  });

  it("leaves out what is loaded, what is older, and what does not fit the filters", () => {
    expect(newCalls(state, [execution({ tool_id: "exec_9" })], all)).toBe(1);
    expect(newCalls(state, [execution({ created_at: at(59) })], all)).toBe(0);
    expect(newCalls(state, [], { ...all, tool: "write_file" })).toBe(1);
    expect(newCalls(state, [], { ...all, status: "failed" })).toBe(0);
    expect(newCalls(state, [], { ...all, risk: "HIGH" })).toBe(0);
    expect(newCalls(state, [], { ...all, here: true })).toBe(1);
  });

  it("a row that was loaded while it ran is shown as it stands now, and an ended one as recorded", () => {
    const running = execution({ status: "executing", execution_time_ms: null, approved_by: "person:alice" });
    expect(asOfNow(running, toolCall({ approvedBy: null }))).toMatchObject({
      status: "completed",
      execution_time_ms: 5,
      approved_by: "person:alice",
    });
    expect(asOfNow(running, undefined)).toBe(running);
    const ended = execution();
    expect(asOfNow(ended, toolCall({ status: "failed" }))).toBe(ended);
  });
});
