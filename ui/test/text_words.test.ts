import type { Grant } from "@protocol";
import { describe, expect, it } from "vitest";
import { lines, oneLine, prose, shortened, visible, whole } from "../src/text/visible";
import {
  advice,
  asker,
  bytes,
  callSummary,
  counted,
  duration,
  letBy,
  moment,
  outcome,
  span,
  theAsker,
  thousands,
  verb,
  whoIs,
} from "../src/text/words";

describe("visible text", () => {
  it("shows controls, bidi marks, zero-width and tag characters as escapes", () => {
    expect(visible("a\u202Eb\u200Bc\u0007d\u{E0041}e\uFEFFf\r")).toBe(
      "a\\u{202e}b\\u{200b}c\\u{7}d\\u{e0041}e\\u{feff}f\\u{d}",
    );
  });
  it("keeps newlines and tabs, which are layout, and writes them out on one line", () => {
    expect(visible("a\n\tb")).toBe("a\n\tb");
    expect(oneLine("a\n\tb\u202E")).toBe("a↵⇥b\\u{202e}");
    // What was written so, or with these very signs, does not look like it.
    expect(oneLine("a\\n\\tb ↵⇥")).toBe("a\\n\\tb \\u{21b5}\\u{21e5}");
  });
  it("leaves joined emoji whole in prose and shows overrides", () => {
    expect(prose("👨‍👩‍👧 \u202Eevil\r\nnext\rlast")).toBe("👨‍👩‍👧 \\u{202e}evil\nnext\nlast");
  });
  it("takes a newline at the end for no further line", () => {
    expect(lines("a\nb\n")).toEqual(["a", "b"]);
    expect(lines("")).toEqual([""]);
  });
  it("never cuts a character in half", () => {
    expect(shortened("a😀b", 3)).toBe("a…");
    expect(shortened("abc", 3)).toBe("abc");
    expect(whole("a😀", 2)).toBe(1);
  });
});

describe("a call in words", () => {
  it("says a command line with quotes where a word could be misread", () => {
    expect(callSummary("execute_command", { command: "git", args: ["commit", "-m", "two words", ""] })).toBe(
      'git commit -m "two words" ""',
    );
    expect(callSummary("execute_command", { command: "ls", args: "no list" })).toBe("ls");
  });
  it("says paths, lines and words looked for", () => {
    expect(callSummary("read_file", { path: "a.txt" })).toBe("a.txt");
    expect(callSummary("read_file", { path: "a.txt", start_line: 3 })).toBe("a.txt, lines 3 to the last");
    expect(callSummary("read_file", { path: "a.txt", end_line: 9 })).toBe("a.txt, lines 1 to 9");
    expect(callSummary("write_file", { path: "a", mode: "append" })).toBe("a (at its end)");
    expect(callSummary("write_file", { path: "a" })).toBe("a");
    expect(callSummary("list_directory", { recursive: true })).toBe(". and all below");
    expect(callSummary("list_directory", { path: "src" })).toBe("src");
    expect(callSummary("search_files", { pattern: "x y" })).toBe('"x y" in .');
    expect(callSummary("search_web", { query: "news" })).toBe("news");
    expect(callSummary("search_web", {})).toBe("");
    expect(callSummary("other", { a: 1 })).toBe('{"a":1}');
    expect(callSummary("other", {})).toBe("");
    expect(callSummary("other", { path: "p" })).toBe("p");
  });
  it("stays on one short line whatever it is given", () => {
    expect(callSummary("read_file", { path: "a\nb\u202E" })).toBe("a↵b\\u{202e}");
    expect(callSummary("execute_command", { command: "x".repeat(10_000), args: [] }).length).toBeLessThanOrEqual(300);
  });
  it("has a verb for each tool and a safe name for any other", () => {
    expect(verb("execute_command")).toBe("Run");
    expect(verb("odd\u202E")).toBe("odd\\u{202e}");
  });
});

describe("how a call stands", () => {
  it("says the outcome with how long it took", () => {
    expect(outcome("completed", null, 412)).toBe("done in 412 ms");
    expect(outcome("completed", null, null)).toBe("done");
    expect(outcome("failed", "tool_error", 3200)).toBe("failed after 3.2 s");
    expect(outcome("failed", "execution_timeout", 125_000)).toBe("ran too long after 2 min 5 s");
    expect(outcome("failed", "refused", 3)).toBe("refused");
    expect(outcome("failed", null, null)).toBe("failed");
    expect(outcome("executing", null, null)).toBe("running…");
    expect(outcome("NEW" as "pending", null, null)).toBe("NEW");
  });
  it("says what to do about a failure where that helps", () => {
    expect(advice("no_client")).toContain("byleave connect");
    expect(advice("tool_error")).toBeNull();
    expect(advice(null)).toBeNull();
  });
  it("says who let it", () => {
    const grants = [{ id: "g1", text: "all git" } as Grant];
    expect(letBy("person:alice", "alice", grants)).toBe("approved by you");
    expect(letBy("person:bob", "alice", grants)).toBe("approved by bob");
    expect(letBy("grant:g1", "alice", grants)).toBe("allowed by your grant: all git");
    expect(letBy("grant:g2", "alice", grants)).toBe("allowed by grant g2");
    expect(letBy("rule:user:3", "alice", grants)).toBe("allowed by rule user:3");
    expect(letBy("mode:full", "alice", grants)).toBe("allowed by mode full");
    expect(letBy("risk:LOW", "alice", grants)).toBe("");
    expect(letBy(null, null, grants)).toBe("");
  });
  it("names people", () => {
    expect(whoIs("person:alice", "alice")).toBe("you");
    expect(whoIs("person:bob", "alice")).toBe("bob");
    expect(whoIs("user:alice", "alice")).toBe("you"); // as the server names who undid something
    expect(whoIs("bob", "alice")).toBe("bob");
    expect(whoIs(null, "alice")).toBe("");
  });
  it("names who asks, and says what a program without a name is", () => {
    expect(["bot-01", "program", null].map(asker)).toEqual(["bot-01", "a program with your token", "an agent"]);
    expect(["b\u202Et", "program", null].map(theAsker)).toEqual([
      "the agent b\\u{202e}t",
      "a program with your token",
      "the agent of the chat",
    ]);
  });
});

describe("numbers in words", () => {
  it("says spans in the largest unit that says it well", () => {
    expect([span(1), span(59), span(60), span(90), span(3600), span(7200), span(-5)]).toEqual([
      "1 second",
      "59 seconds",
      "1 minute",
      "90 seconds",
      "1 hour",
      "2 hours",
      "0 seconds",
    ]);
  });
  it("says durations and sizes short", () => {
    expect([duration(0), duration(999), duration(1500), duration(59_960), duration(60_000)]).toEqual([
      "0 ms",
      "999 ms",
      "1.5 s",
      "1 min",
      "1 min",
    ]);
    expect([bytes(1), bytes(999), bytes(1234), bytes(54_321), bytes(2_500_000), bytes(1e18)]).toEqual([
      "1 byte",
      "999 bytes",
      "1.2 kB",
      "54 kB",
      "2.5 MB",
      "1000000 TB",
    ]);
    expect([counted(1, "line"), counted(12_000, "line"), thousands(1_234_567)]).toEqual([
      "1 line",
      "12,000 lines",
      "1,234,567",
    ]);
  });
  it("says a moment of today by its time, an older one with its date", () => {
    const today = new Date(2026, 0, 5, 15, 0, 0).getTime();
    expect(moment(new Date(2026, 0, 5, 9, 3, 7).getTime(), today)).toBe("09:03:07");
    expect(moment(new Date(2026, 0, 4, 9, 3, 7).getTime(), today)).toBe("4 Jan, 09:03");
    expect(moment(new Date(2025, 11, 31, 9, 3, 7).toISOString(), today)).toBe("31 Dec 2025, 09:03");
    expect(moment("nonsense\u202E")).toBe("nonsense\\u{202e}");
  });
});
