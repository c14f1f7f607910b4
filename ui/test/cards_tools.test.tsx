import { act, cleanup, fireEvent, render } from "@testing-library/react";
import type { ComponentProps } from "react";
import { afterEach, describe, expect, it, vi } from "vitest";
import { Problem } from "../src/api";
import { EffectDetails } from "../src/cards/EffectLines";
import { changedLine, isolationFacts, isolationLine, quoted, warnings, weaknesses } from "../src/cards/effects";
import { Parameters } from "../src/cards/Parameters";
import { ending, ResultView } from "../src/cards/ResultView";
import { ToolCard } from "../src/cards/ToolCard";
import { told } from "../src/cards/told";
import { api, button, buttons, call, host, NOW } from "./cards_samples";

// What is large takes its time on a busy machine; that it is bounded is counted, not timed.
vi.setConfig({ testTimeout: 30_000 });

afterEach(() => {
  cleanup();
  vi.useRealTimers();
});

type Props = ComponentProps<typeof ToolCard>;

function open(more: Partial<Props> = {}) {
  const props: Props = {
    call: call(),
    api: api(),
    host: host(),
    userId: "alice",
    grants: [],
    undoHref: null,
    ...more,
  };
  const view = render(<ToolCard {...props} />);
  return { ...view, again: (changed: Partial<Props>) => view.rerender(<ToolCard {...props} {...changed} />) };
}

const toggle = (container: Element) => fireEvent.click(container.querySelector(".card-toggle") as Element);
const result = (toolName: string, value: Record<string, unknown>, params = {}, at = host()) =>
  render(<ResultView toolName={toolName} result={value} host={at} params={params} />).container;

describe("a tool call", () => {
  it("says what, how risky, how it stands and who let it; the rest when opened", () => {
    const { container } = open({
      call: call({ approvedBy: "person:alice", result: { content: "hello\n", total_lines: 1, size: 6 } }),
    });
    expect(container.textContent).toBe("Read src/app.tsdone in 12 msapproved by you");
    expect(container.querySelector(".card-toggle")?.getAttribute("aria-expanded")).toBe("false");
    toggle(container);
    expect(container.textContent).toContain("pathsrc/app.ts");
    expect(container.textContent).toContain("hello");
    toggle(container);
    expect(container.textContent).not.toContain("hello");
  });
  it("stays as the person left it when it leaves the page and comes back", () => {
    const place = host();
    const first = open({ host: place });
    toggle(first.container);
    first.unmount();
    const second = open({ host: place });
    expect(second.container.querySelector(".card-toggle")?.getAttribute("aria-expanded")).toBe("true");
    toggle(second.container);
    second.unmount();
    const third = open({ host: place });
    expect(third.container.querySelector(".card-toggle")?.getAttribute("aria-expanded")).toBe("false");
  });
  it("says who denied it, where that is known", () => {
    const denied = { status: "rejected", errorType: "rejected", approvedBy: null } as const;
    const words = (deniedBy: string | null) => open({ call: call({ ...denied, deniedBy }) }).container.textContent;
    expect(words("person:alice")).toContain("deniedby you");
    expect(words("person:bob")).toContain("deniedby bob");
    expect(words(null)).toMatch(/denied$/);
    const there = call({ ...denied, deniedBy: "person:bob", deniedFrom: "program" });
    expect(open({ call: there }).container.textContent).toContain("by bob, in a terminal or editor");
  });
  it("says of a denial only the reason, and of a failure what to do on its own line", () => {
    const lines = (more: Parameters<typeof call>[0]) =>
      [...open({ call: call(more) }).container.querySelectorAll(".card-trouble p")].map(
        (line) => `${line.className}|${line.textContent}`,
      );
    const denied = { status: "rejected", errorType: "rejected" } as const;
    const error = "Rejected by the user: use tabs.";
    const bob = { ...denied, deniedBy: "person:bob", error };
    expect(lines(bob)).toEqual([]);
    expect(lines({ ...bob, deniedFor: "use tabs" })).toEqual(["card-hint|Reason: use tabs"]);
    // By whom is not known: the error is all there is.
    expect(lines({ ...denied, error })).toEqual([`card-hint|${error}`]);
    const failed = { status: "failed", errorType: "tool_error" } as const;
    expect(lines({ ...failed, error: "There is no 'x'.\nhint: List the directory." })).toEqual([
      "|There is no 'x'.",
      "card-hint|List the directory.",
    ]);
  });
  it("names the unit of a time limit, and leaves out what nobody gave", () => {
    const parameters = (toolName: string, params: Record<string, unknown>) => {
      const { container } = open({ call: call({ toolName, params, status: "executing" }) });
      toggle(container);
      return [...container.querySelectorAll(".card-param")].map((each) => each.textContent);
    };
    expect(parameters("read_file", { path: "a", start_line: null })).toEqual(["patha"]);
    expect(parameters("execute_command", { command: "ls", timeout: 300 })).toEqual([
      "argumentsls",
      "timeout300 seconds",
    ]);
    expect(parameters("execute_command", { command: "ls", timeout: 1 })).toContain("timeout1 second");
    expect(parameters("execute_command", { command: "ls", timeout: "x" })).toContain("timeoutx");
    expect(parameters("other", { timeout: 3 })).toEqual(["timeout3"]);
    expect(button("Stop the command")).toBeTruthy();
  });
  it("shows hidden characters of names and parameters", () => {
    const { container } = open({ call: call({ toolName: "x\u202E", params: { "k\u202E": "v\u202E" } }) });
    toggle(container);
    expect(container.textContent).not.toContain("\u202E");
    expect(container.textContent).toContain("k\\u{202e}");
  });
  it("shows output while it runs, and stays open when it ends", () => {
    const running = call({
      toolName: "execute_command",
      params: { command: "ls" },
      status: "executing",
      milliseconds: null,
      output: [{ stream: "stdout", text: "first\n" }],
    });
    const { container, again } = open({ call: running });
    expect(container.textContent).toContain("Output so farfirst");
    again({ call: { ...running, status: "completed", output: [], result: { stdout: "first\nlast\n", exit_code: 0 } } });
    expect(container.textContent).toContain("last");
    expect(container.textContent).toContain("Exit code 0.");
  });
  it("keeps what a command printed before it was stopped", () => {
    const { container } = open({
      call: call({
        toolName: "execute_command",
        status: "failed",
        errorType: "cancelled",
        error: "It was stopped while it ran; what it did until then stays.",
        result: { success: false, stdout: "before the stop\n", exit_code: null },
      }),
    });
    expect(container.querySelector(".card-state")?.className).toBe("card-state");
    expect(container.querySelector("[data-status=failed]")).toBeNull();
    toggle(container);
    expect(container.textContent).toContain("before the stop");
  });
  it("says that it waits on the machine, and counts from its beginning", () => {
    const running = call({ status: "executing", milliseconds: null });
    const { container, again } = open({ call: { ...running, began: null }, now: () => NOW + 90_000 });
    expect(container.querySelector(".card-state")?.textContent).toBe("waiting for other calls on the machine");
    again({ call: { ...running, began: NOW + 80_000 } });
    expect(container.querySelector(".card-state")?.textContent).toBe("running… 10 s");
  });
  it("says how long it has been running by the server's clock", () => {
    vi.useFakeTimers();
    let now = NOW + 400;
    const { container } = open({ call: call({ status: "executing", milliseconds: null }), now: () => now });
    expect(container.querySelector(".card-state")?.textContent).toBe("running… ");
    now = NOW + 12_000;
    act(() => vi.advanceTimersByTime(1000));
    expect(container.querySelector(".card-state")?.textContent).toBe("running… 12 s");
    now = NOW + 75_000;
    act(() => vi.advanceTimersByTime(1000));
    expect(container.querySelector(".card-state")?.textContent).toBe("running… 1 min 15 s");
  });
  it("can be stopped while it runs, and says when that fails", async () => {
    const stopTool = vi
      .fn()
      .mockRejectedValueOnce(new Problem("Too late.", 409))
      .mockReturnValue(new Promise(() => {}));
    const { container, again } = open({ call: call({ status: "executing" }), api: api({ stopTool }) });
    await act(async () => button("Stop the call").click());
    expect(container.textContent).toContain("Too late.");
    await act(async () => button("Stop the call").click());
    fireEvent.click(button("Stopping…"));
    expect(stopTool).toHaveBeenCalledTimes(2);
    expect(stopTool).toHaveBeenCalledWith("exec_1");
    again({ call: call() });
    expect(buttons(/Stop/).length).toBe(0);
  });
  it("says what went wrong and what to do about it", () => {
    const { container } = open({
      call: call({ status: "failed", error: "No machine\u202E.", errorType: "no_client", milliseconds: null }),
    });
    expect(container.textContent).toContain("no machine was connected");
    expect(container.textContent).toContain("No machine\\u{202e}.");
    expect(container.textContent).toContain("Start byleave connect");
    toggle(container);
    expect(container.textContent).not.toContain("There is no result yet.");
  });
  it("has no result to show before there is one", () => {
    const { container } = open({ call: call({ status: "pending", params: {} }) });
    toggle(container);
    expect(container.textContent).toContain("It was given no parameters.");
    expect(container.textContent).toContain("There is no result yet.");
  });
  it("loads all of a result that was shortened, once asked", async () => {
    const execution = vi
      .fn()
      .mockRejectedValueOnce(new Error("gone"))
      .mockResolvedValueOnce({ result: null })
      .mockResolvedValueOnce({ result: { content: "all of it", total_lines: 1 } });
    const { container } = open({
      call: call({ result: { content: "a part" }, resultShortened: true }),
      api: api({ execution }),
    });
    toggle(container);
    expect(execution).not.toHaveBeenCalled();
    await act(async () => button("Load all").click());
    expect(container.textContent).toContain("gone");
    await act(async () => button("Load all").click());
    expect(container.textContent).toContain("The record holds no result for it.");
    await act(async () => button("Load all").click());
    expect(container.textContent).toContain("all of it");
    expect(buttons("Load all").length).toBe(0);
  });
  it("asks for all of a result only once at a time", async () => {
    const execution = vi.fn(() => new Promise(() => {}));
    const { container } = open({
      call: call({ result: { content: "" }, resultShortened: true }),
      api: api({ execution }),
    });
    toggle(container);
    await act(async () => button("Load all").click());
    fireEvent.click(button("Loading…"));
    expect(execution).toHaveBeenCalledTimes(1);
  });
  it("offers undo for what changed files, and says when it was undone", () => {
    const written = call({ toolName: "write_file", result: { path: "a", size: 1 } });
    const { container, again } = open({ call: written, undoHref: "#/history/exec_1" });
    expect(container.querySelector("a")?.getAttribute("href")).toBe("#/history/exec_1");
    again({ call: { ...written, undone: { by: "person:bob", files: 2 } }, undoHref: "#/x" });
    expect(container.querySelector("a")).toBeNull();
    expect(container.textContent).toContain("undone by bob (2 files)");
    again({
      call: { ...written, toolName: "execute_command", status: "failed", result: { changed_count: 1 } },
      undoHref: "#/x",
    });
    expect(container.querySelector("a")).toBeTruthy();
    for (const other of [
      call({ result: { content: "" } }),
      { ...written, status: "failed" as const },
      { ...written, status: "executing" as const },
      call({ result: null }),
    ]) {
      again({ call: other, undoHref: "#/x" });
      expect(container.querySelector("a")).toBeNull();
    }
  });
});

describe("results", () => {
  it("of a read have the file's own line numbers", () => {
    const at = host({ openFile: vi.fn() });
    const page = result(
      "read_file",
      { content: "b\nc\n", start_line: 2, end_line: 3, total_lines: 9, size: 1500 },
      { path: "a b.txt" },
      at,
    );
    expect(page.textContent).toContain("lines 2 to 3 of 9, 1.5 kB");
    expect(page.querySelector(".text-line")?.getAttribute("data-number")).toBe("2");
    fireEvent.click(button("'a b.txt'", page));
    expect(at.openFile).toHaveBeenCalledWith("a b.txt", 2);
    cleanup();
    expect(result("read_file", { content: "" }).textContent).toContain("It is empty.");
    expect(result("read_file", { content: "aGk=", encoding: "base64", size: 2 }).textContent).toContain(
      "2 bytes: the agent has it",
    );
    expect(result("read_file", { content: "aGk=", encoding: "base64" }).textContent).toContain("A picture or a PDF:");
  });
  it("of a listing are a table, in pages", () => {
    const files = Array.from({ length: 150 }, (_, index) => ({ path: `f${index}`, type: "file", size: index }));
    const page = result("list_directory", {
      files: [
        { path: "src", type: "directory", size: 9, modified: "2026-01-01T00:00:00.000Z" },
        { name: "n\u202E" },
        "odd",
        ...files,
      ],
      total_count: 500,
    });
    expect(page.querySelectorAll("tbody tr").length).toBe(100);
    expect(page.querySelector("tbody tr")?.textContent).toMatch(/^src\/directory1 Jan/);
    expect(page.textContent).toContain("the listing was cut at 153 of 500.");
    expect(page.textContent).not.toContain("\u202E");
    fireEvent.click(button("Show more", page));
    expect(page.querySelectorAll("tbody tr").length).toBe(153);
    expect(result("list_directory", { files: [] }).textContent).toBe("It is empty.");
  });
  it("of a listing beyond a page move to the next", () => {
    const page = result("list_directory", { files: Array.from({ length: 605 }, () => ({ path: "f" })) });
    fireEvent.click(button("Show more", page));
    fireEvent.click(button("Show those after", page));
    expect(page.querySelectorAll("tbody tr").length).toBe(105);
  });
  it("of a search are grouped by file with the words marked", () => {
    const matches = [
      { path: "a.ts", line_number: 3, line: "Needle and needle \u202E" },
      { path: "a.ts", line_number: 9, line: "needle" },
      { path: "b.ts", line_number: 1, line: "a needle" },
      "odd",
    ];
    const page = result("search_files", { matches, truncated: true }, { pattern: "needle" });
    expect(page.querySelectorAll(".card-hit-file").length).toBe(3);
    expect([...page.querySelectorAll("mark")].map((each) => each.textContent)).toEqual(["needle", "needle", "needle"]);
    expect(page.querySelector(".text-line")?.getAttribute("data-number")).toBe("3");
    expect(page.textContent).toContain("\\u{202e}");
    expect(page.textContent).toContain("There are more");
    cleanup();
    expect(
      result("search_files", { matches }, { pattern: "NEEDLE", case_sensitive: false }).querySelectorAll("mark").length,
    ).toBe(4);
    cleanup();
    // A pattern is never run here, and where case changes the length nothing can be marked by place.
    expect(result("search_files", { matches }, { pattern: "(a+)+$", regex: true }).querySelector("mark")).toBeNull();
    expect(
      result("search_files", { matches: [{ line: "İx" }] }, { pattern: "x", case_sensitive: false }).querySelector(
        "mark",
      ),
    ).toBeNull();
    expect(result("search_files", { matches: [] }).textContent).toBe("Nothing was found.");
  });
  it("of a search with many hits come in pages, and a line full of them has few marks", () => {
    const matches = Array.from({ length: 600 }, (_, index) => ({
      path: "a",
      line_number: index,
      line: "x".repeat(300),
    }));
    const page = result("search_files", { matches }, { pattern: "x" });
    expect(page.querySelectorAll(".text-line").length).toBe(100);
    expect(page.querySelectorAll("mark").length).toBeLessThanOrEqual(2000);
    cleanup();
    const plain = result("search_files", { matches });
    fireEvent.click(button("Show more", plain));
    fireEvent.click(button("Show those after", plain));
    expect(plain.querySelectorAll(".text-line").length).toBe(100);
  });
  it("of a command say how it ended and what was left out", () => {
    const page = result("execute_command", {
      stdout: "out",
      stderr: "err\n",
      exit_code: 2,
      execution_time: 1.5,
      truncated: true,
    });
    expect(page.querySelector("pre")?.textContent).toBe("out\nerr\n");
    expect(page.textContent).toContain("the middle of its output was left out");
    expect(page.textContent).toContain("Exit code 2 after 1.5 s.");
    expect(result("execute_command", { exit_code: 0 }).textContent).toBe("It printed nothing.Exit code 0.");
    expect(ending({ exit_code: -9 })).toBe("Ended by signal 9 (SIGKILL).");
    expect(ending({ exit_code: -50 })).toBe("Ended by signal 50.");
    expect(ending({ exit_code: null, execution_time: 300 })).toBe(
      "Ended by Byleave after 5 min: there is no exit code.",
    );
  });
  it("of a write and of the web", () => {
    expect(result("write_file", { path: "a", size: 12 }).textContent).toBe("a: 12 bytes now");
    expect(result("write_file", { path: "b" }).textContent).toBe("b");
    const page = result("search_web", {
      results: [
        { title: "T", url: "https://a.example/x", snippet: "<b>s</b>" },
        { title: "", url: "javascript:alert(1)" },
        {},
        ...Array.from({ length: 100 }, () => ({})),
      ],
    });
    expect(page.querySelectorAll("a").length).toBe(1);
    expect(page.querySelector("b")).toBeNull();
    expect(page.textContent).toContain("… and 3 more");
    expect(result("search_web", { results: [] }).textContent).toBe("Nothing was found.");
  });
  it("of anything else are shown as they are", () => {
    expect(result("other", { a: 1 }).textContent).toBe('{"a":1}\n');
    expect(result("read_file", { odd: "x".repeat(100) }).textContent).toContain('"odd"');
    expect(render(<ResultView toolName="x" result={null} host={host()} />).container.textContent).toBe("");
  });
});

describe("what a call left behind", () => {
  it("names changed files so that one cannot pass for two", () => {
    expect(quoted("a, b'c\n")).toBe("'a, b\\'c↵'");
    const changed = [{ path: "a" }, { path: "b c", change: "deleted" }, { odd: 1 }, "x"];
    expect(changedLine({ changed, changed_count: 9 })).toBe("changed 9 files: a, 'b c' (deleted), 7 more");
    expect(changedLine({})).toBe("");
  });
  it("keeps changed files, warnings and weak isolation in sight", () => {
    const { container } = open({
      call: call({
        toolName: "execute_command",
        params: { command: "x" },
        result: {
          exit_code: 0,
          changed: [
            { path: "a", change: "created" },
            { path: "b", change: "deleted" },
          ],
          changed_count: 3,
          warnings: ["It runs later.", 7],
          isolation: { isolated: false, backend: "none", degraded: ["No walls."] },
        },
      }),
      host: host({ openFile: vi.fn() }),
    });
    expect(container.textContent).toContain("changed 3 files: a (created), b (deleted), 1 more");
    expect(container.textContent).toContain("Warning: It runs later.");
    expect(container.textContent).toContain("It ran without isolation (1 more)");
    toggle(container);
    expect(container.textContent).toContain("… and 1 more");
    // What is gone cannot be opened.
    expect([...container.querySelectorAll(".card-open")].map((each) => each.textContent)).toEqual(["a"]);
  });
  it("says what is weaker than it should be", () => {
    expect(weaknesses({})).toEqual([]);
    expect(weaknesses({ isolation: { isolated: true, backend: "bwrap", degraded: [] } })).toEqual([]);
    expect(isolationLine({})).toBe("");
    const weak = { isolation: { isolated: true, backend: "landlock", net: "host" } };
    expect(isolationLine(weak)).toBe("Isolation is weaker than it should be: It was held by landlock alone");
    expect(isolationFacts(weak)).toBe("held by landlock, with the network");
    expect(isolationFacts({ isolation: { backend: "bwrap", net: "none" } })).toBe("held by bwrap, no network");
    expect(isolationFacts({ isolation: { backend: "bwrap" } })).toBe("held by bwrap");
    expect(isolationFacts({})).toBe("");
    expect(warnings({ warnings: "none" })).toEqual([]);
    expect(render(<EffectDetails result={weak} host={host()} />).container.textContent).toContain(
      "It was held by landlock alone.",
    );
  });
});

describe("parameters", () => {
  it("show what is no list of arguments as it is", () => {
    const { container } = render(<Parameters toolName="execute_command" params={{ command: "x", args: "y" }} />);
    expect(container.textContent).toBe("commandxargsy");
  });
  it("show empty, long, and odd values", () => {
    const { container } = render(
      <Parameters toolName="t" params={{ e: "", l: "a\nb", n: { a: 1 }, u: undefined, x: "y".repeat(5000) }} />,
    );
    expect(container.textContent).toContain("eempty");
    expect(container.textContent).toContain('n{"a":1}');
    expect(container.textContent?.length).toBeLessThan(3000);
  });
  it("show very many and very long arguments within bounds", () => {
    const args = [...Array.from({ length: 2000 }, () => "a"), 5];
    const { container } = render(
      <Parameters toolName="execute_command" params={{ command: "z".repeat(9000), args }} />,
    );
    expect(container.querySelectorAll(".card-argv li").length).toBe(500);
    expect(container.querySelectorAll("*").length).toBeLessThan(1500);
  });
});

describe("why a request did not work", () => {
  it("is said with what to do", () => {
    expect(told(new Problem("a\u202E", 500, "b"))).toBe("a\\u{202e} b");
    expect(told(new Problem("a", 500))).toBe("a");
    expect(told(new Error("c"))).toBe("c");
    expect(told(null)).toBe("It did not work.");
  });
});
