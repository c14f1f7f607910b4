// History: what it asks the server for, what a row and a record show, and that the list never moves by itself.

import { act, cleanup, fireEvent, render, screen, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, expect, it, vi } from "vitest";
import { FIRST_PAUSE_MS } from "../src/feed";
import { Copyable } from "../src/pages/facts";
import {
  at,
  choose,
  execution,
  expectAccessible,
  FakeHost,
  grant,
  question,
  refused,
  showPage,
  told,
  toolCall,
  write,
} from "./pages_house";

afterEach(() => {
  cleanup();
  vi.restoreAllMocks();
});

const HISTORY = { page: "history", tool: null } as const;
const DETAIL = { page: "history", tool: "exec_1" } as const;
const page = (executions: unknown[], next: string | null = null, total = executions.length) => ({
  executions,
  total_count: total,
  next_cursor: next,
});
const many = (...rows: Parameters<typeof execution>[0][]) => page(rows.map((row) => execution(row)));

const hostWith = (answer: object) => new FakeHost().on("GET", "/my/tools/history", answer);

it("each row says when, what, how risky, how it ended, by whom and how long", async () => {
  const host = hostWith(
    many(
      {
        tool_id: "exec_3",
        tool_name: "execute_command",
        tool_params: { command: "git", args: ["commit", "-m", "two words"] },
        risk_level: "MEDIUM",
        approved_by: "grant:grant_1",
        execution_time_ms: 2300,
      },
      {
        tool_id: "exec_2",
        tool_name: "write_file",
        tool_params: { path: "a\u202eb.txt" },
        status: "failed",
        error_type: "drifted",
        risk_level: "HIGH",
        approved_by: "person:bob",
        execution_time_ms: null,
      },
      { tool_id: "exec_1", tool_name: "odd_tool", tool_params: {}, approved_by: null, status: "rejected" },
      { tool_id: "exec_0" },
    ),
  );
  const { container, go } = await showPage(HISTORY, host, { grants: [grant()] });
  const rows = screen
    .getAllByRole("row")
    .slice(1)
    .map((row) => row.textContent);
  expect(rows[0]).toContain('git commit -m "two words"');
  expect(rows[0]).toContain("commands that begin with git status");
  expect(rows[0]).toContain("2.3 s");
  expect(rows[1]).toContain("a\\u{202e}b.txt");
  expect(rows[1]).toContain("changed since it was approved");
  expect(rows[1]).toContain("by bob");
  expect(rows[2]).toContain("denied");
  expect(rows[3]).toContain("without asking");
  await expectAccessible(container);
  await userEvent.click(screen.getByRole("link", { name: /README/ }));
  expect(go).toHaveBeenCalledWith({ page: "history", tool: "exec_0" });
});

it("a click that wants a new tab is left to the browser", async () => {
  const { go } = await showPage(HISTORY, hostWith(many({})));
  const user = userEvent.setup({ delay: null, pointerEventsCheck: 0 });
  await user.keyboard("{Control>}");
  await user.click(screen.getByRole("link", { name: /README/ }));
  expect(go).not.toHaveBeenCalled();
});

it("filters are the server's, except for the text", async () => {
  const host = hostWith(many({}, { tool_id: "exec_2", tool_params: { path: "src/app.py" }, error: "No such file." }));
  await showPage(HISTORY, host);
  const user = userEvent.setup({ delay: null, pointerEventsCheck: 0 });
  await choose("Tool", "Write");
  await choose("State", "failed, refused or stopped");
  await choose("Risk", "High");
  await choose("Conversation", "The open one");
  const asked = Object.fromEntries(host.of("/my/tools/history").at(-1)?.query ?? []);
  expect(asked).toEqual({
    project_id: "proj_1",
    session_id: "sess_1",
    tool_name: "write_file",
    status: "failed",
    risk_level: "HIGH",
    limit: "50",
  });
  const before = host.asked.length;
  await write(screen.getByLabelText(/Find in the calls/), "no SUCH");
  expect(host.asked.length).toBe(before);
  expect(screen.getAllByRole("row")).toHaveLength(2);
  expect(screen.getByText(/1 with this text, among 2 of 2 calls/)).toBeTruthy();
  await user.clear(screen.getByLabelText(/Find in the calls/));
  await write(screen.getByLabelText(/Find in the calls/), "nowhere");
  expect(screen.getByText("None of the 2 loaded calls fits the text.")).toBeTruthy();
  await user.click(screen.getByRole("button", { name: "Clear the filters" }));
  expect(screen.getAllByRole("row")).toHaveLength(3);
  expect(host.of("/my/tools/history").at(-1)?.query.get("tool_name")).toBeNull();
});

it("without an open conversation the record cannot be narrowed to it", async () => {
  await showPage(HISTORY, hostWith(many()), { sessionId: null });
  await userEvent.click(screen.getByRole("combobox", { name: "Conversation" }));
  expect((await screen.findAllByRole("option")).map((option) => option.textContent)).toEqual(["All"]);
  await userEvent.keyboard("{Escape}");
  expect(screen.getByText("No call yet.")).toBeTruthy();
});

it("a filter that fits nothing says so", async () => {
  await showPage(HISTORY, hostWith(many()));
  await choose("Risk", "High");
  expect(screen.getByText("No call fits.")).toBeTruthy();
});

it("older calls are added below", async () => {
  const host = new FakeHost().on("GET", "/my/tools/history", ({ query }) =>
    told(query.get("cursor") ? page([execution({ tool_id: "exec_0" })], null, 2) : page([execution()], "older", 2)),
  );
  await showPage(HISTORY, host);
  await userEvent.click(screen.getByRole("button", { name: "Older" }));
  expect(screen.getAllByRole("row")).toHaveLength(3);
  expect(screen.queryByRole("button", { name: "Older" })).toBeNull();
});

it("a failure says what to do, and trying again works", async () => {
  const host = new FakeHost().on("GET", "/my/tools/history", () => refused(503, "The store is closing.", "Wait."));
  await showPage(HISTORY, host);
  expect(screen.getByRole("alert").textContent).toContain("The store is closing.Wait.");
  host.on("GET", "/my/tools/history", many({}));
  await userEvent.click(screen.getByRole("button", { name: "Try again" }));
  expect(screen.getAllByRole("row")).toHaveLength(2);
  expect(screen.queryByRole("alert")).toBeNull();
});

it("what a server could not give at that moment is asked for again by itself", async () => {
  vi.useFakeTimers({ shouldAdvanceTime: true });
  const host = new FakeHost().on("GET", "/my/tools/history", () => refused(502, "Bad gateway."));
  await showPage(HISTORY, host);
  expect(screen.getByRole("alert").textContent).toContain("Bad gateway.");
  host.on("GET", "/my/tools/history", many({}));
  await act(() => vi.advanceTimersByTimeAsync(FIRST_PAUSE_MS));
  expect(screen.getAllByRole("row")).toHaveLength(2);
  expect(screen.queryByRole("alert")).toBeNull();
  vi.useRealTimers();
});

it("a server that cannot be reached is said so", async () => {
  const host = new FakeHost().on("GET", "/my/tools/history", () => Promise.reject(new TypeError("network")));
  await showPage(HISTORY, host);
  expect(screen.getByRole("alert").textContent).toContain("cannot be reached");
});

it("new calls are counted and shown only when asked for", async () => {
  const host = hostWith(many({}));
  const { heard } = await showPage(HISTORY, host);
  expect(screen.queryByRole("button", { name: /new: show/ })).toBeNull();
  heard({ entries: [toolCall()], questions: [question({ session_id: "sess_2" })] });
  expect(screen.getAllByRole("row")).toHaveLength(2);
  host.on(
    "GET",
    "/my/tools/history",
    many({ tool_id: "exec_8", created_at: at(41) }, { tool_id: "exec_9", created_at: at(30) }, {}),
  );
  await userEvent.click(screen.getByRole("button", { name: "2 new: show" }));
  expect(screen.getAllByRole("row")).toHaveLength(4);
  expect(screen.queryByRole("button", { name: /new: show/ })).toBeNull();
});

it("a call that was running shows how it went on, and one that was undone says so", async () => {
  const { heard } = await showPage(
    HISTORY,
    hostWith(many({ tool_id: "exec_9", status: "executing", execution_time_ms: null })),
  );
  expect(screen.getByText("running…")).toBeTruthy();
  heard({
    entries: [toolCall({ status: "failed", errorType: "cancelled", undone: { by: "person:alice", files: 1 } })],
  });
  expect(screen.getByText("stopped")).toBeTruthy();
  expect(screen.getByText("undone")).toBeTruthy();
});

it("the record of one call shows all of it", async () => {
  const row = execution({
    tool_name: "execute_command",
    tool_params: { command: "ls", args: ["-l", ""] },
    result: {
      success: true,
      error: null,
      stdout: "file",
      stderr: "",
      exit_code: 0,
      execution_time: 0.1,
      truncated: false,
      isolation: {},
      changed: [],
      changed_count: 0,
      warnings: [],
    },
    approval_id: "appr_7",
    requires_approval: true,
    approved_by: "person:alice",
    reasons: ["ls lists files.", "It asks here."],
  });
  const host = new FakeHost().on("GET", "/my/tools/exec_1", row);
  const { container, go } = await showPage(DETAIL, host);
  expect(screen.getByRole("heading", { level: 1 }).textContent).toContain("ls -l");
  expect(screen.getByText("ls lists files.")).toBeTruthy();
  for (const id of ["exec_1", "appr_7", "run_1", "proj_1", "laptop", "d".repeat(64)])
    expect(screen.getByText(id)).toBeTruthy();
  expect(screen.getByText("approved by you")).toBeTruthy();
  expect(screen.queryByRole("button", { name: "Undo…" })).toBeNull(); // it changed nothing
  await expectAccessible(container);
  await userEvent.click(screen.getByRole("link", { name: "the one open now" }));
  expect(go).toHaveBeenCalledWith({ page: "chat", session: "sess_1" });
  await userEvent.click(screen.getByRole("link", { name: "← All calls" }));
  expect(go).toHaveBeenCalledWith({ page: "history", tool: null });
});

it("what a command changed and what held it is shown with its result", async () => {
  const result = {
    success: true,
    stdout: "",
    stderr: "",
    exit_code: 0,
    changed: [
      { path: "a\u202eb.txt", change: "created" },
      { path: "old.txt", change: "deleted" },
    ],
    changed_count: 203,
    warnings: ["package.json runs later."],
    isolation: { backend: "landlock", net: "none", degraded: ["No limit on memory."] },
  };
  const row = execution({ tool_name: "execute_command", tool_params: { command: "make", args: [] }, result });
  const { container } = await showPage(DETAIL, new FakeHost().on("GET", "/my/tools/exec_1", row));
  const items = [...container.querySelectorAll(".page-paths li")].map((item) => item.textContent);
  expect(items).toEqual(["'a\\u{202e}b.txt' created", "old.txt deleted", "and 201 more files"]);
  expect(screen.getByText("package.json runs later.")).toBeTruthy();
  expect(screen.getByText("It was held by landlock, no network.")).toBeTruthy();
  expect(screen.getByText("It was held by landlock alone. No limit on memory.")).toBeTruthy();
  await expectAccessible(container);
});

it("a failed call says what went wrong, and a record without much leaves the rest out", async () => {
  const row = execution({
    status: "failed",
    error: "No machine\u0007.",
    error_type: "no_client",
    client_id: null,
    agent_id: null,
    run_id: null,
    reasons: [],
    execution_time_ms: null,
    approved_at: null,
    session_id: "sess_2",
  });
  await showPage(DETAIL, new FakeHost().on("GET", "/my/tools/exec_1", row));
  expect(screen.getByText("No machine\\u{7}.")).toBeTruthy();
  expect(screen.getByText("failed (no_client)")).toBeTruthy();
  expect(screen.getByText(/byleave connect/)).toBeTruthy();
  expect(screen.getByText("No reason is on record.")).toBeTruthy();
  expect(screen.getByRole("link", { name: "open it" })).toBeTruthy();
  expect(screen.queryByText("Machine")).toBeNull();
});

it("a refusal says its reason once, and that it did not run", async () => {
  const row = execution({
    status: "failed",
    error: "Command not allowed: rm\nhint: use one of: cat, ls",
    error_type: "refused",
    reasons: ["Command not allowed: rm"],
  });
  await showPage(DETAIL, new FakeHost().on("GET", "/my/tools/exec_1", row));
  expect(screen.getByRole("heading", { name: "Why it did not run" })).toBeTruthy();
  expect(screen.getAllByText("Command not allowed: rm")).toHaveLength(1);
  expect(screen.getByText("use one of: cat, ls")).toBeTruthy();
});

it("an unknown call says so, and the record is read again when the call goes on", async () => {
  const host = new FakeHost();
  const { heard } = await showPage(DETAIL, host, { entries: [toolCall({ id: "exec_1", status: "executing" })] });
  expect(screen.getByRole("alert").textContent).toContain("Nothing at");
  host.on("GET", "/my/tools/exec_1", execution({ status: "executing", completed_at: null }));
  await userEvent.click(screen.getByRole("button", { name: "Try again" }));
  expect(screen.getByText("running…")).toBeTruthy();
  host.on("GET", "/my/tools/exec_1", execution());
  await act(async () => heard({ entries: [toolCall({ id: "exec_1", undone: { by: "person:bob", files: 2 } })] }));
  expect(screen.getByText("done in 12 ms")).toBeTruthy();
  expect(screen.getByText("bob").closest("p")?.textContent).toBe("Undone by bob: 2 files.");
});

it("an id is copied, or selected where the clipboard is closed", async () => {
  vi.useFakeTimers();
  const write = vi.fn().mockResolvedValue(undefined);
  vi.stubGlobal("navigator", { ...navigator, clipboard: { writeText: write } });
  render(<Copyable text="exec_1" shown="ex…" name="the id" />);
  const button = screen.getByRole("button", { name: "Copy the id" });
  await act(async () => button.click());
  expect(write).toHaveBeenCalledWith("exec_1");
  expect(button.textContent).toBe("Copied");
  await act(async () => vi.runAllTimers());
  expect(button.textContent).toBe("Copy");
  write.mockRejectedValue(new Error("closed"));
  await act(async () => button.click());
  expect(button.textContent).toContain("Selected");
  expect(String(getSelection())).toBe("ex…");
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

it("what is read of the record stays when it cannot be read again", async () => {
  const host = hostWith(many({}));
  await showPage(HISTORY, host);
  host.on("GET", "/my/tools/history", () => refused(500, "Broken."));
  await userEvent.click(screen.getByRole("button", { name: "Refresh" }));
  expect(within(screen.getByRole("table")).getAllByRole("row")).toHaveLength(2);
  expect(screen.getByRole("alert").textContent).toContain("Broken.");
});

it("an answer that was overtaken by another filter is dropped", async () => {
  const waiting: ((answer: ReturnType<typeof told>) => void)[] = [];
  const host = new FakeHost().on(
    "GET",
    "/my/tools/history",
    () => new Promise<ReturnType<typeof told>>((resolve) => waiting.push(resolve)),
  );
  await showPage(HISTORY, host);
  await choose("Risk", "High");
  await choose("Risk", "Low");
  await act(async () => waiting[2]?.(told(many({}))));
  await act(async () => waiting[0]?.(told(many({}, { tool_id: "exec_2" }))));
  await act(async () => waiting[1]?.(refused(500, "Broken.")));
  expect(screen.getAllByRole("row")).toHaveLength(2);
  expect(screen.queryByRole("alert")).toBeNull();
});

it("the list keeps its filters, its place and the focus while one call is looked at", async () => {
  const host = hostWith(many({})).on("GET", "/my/tools/exec_1", execution());
  const { go, container, move } = await showPage(HISTORY, host);
  await choose("Risk", "Low");
  const frame = container.querySelector(".page-frame") as HTMLElement;
  frame.scrollTop = 120;
  fireEvent.scroll(frame);
  await userEvent.click(screen.getByRole("link", { name: /README/ }));
  expect(go).toHaveBeenCalledOnce();
  (document.activeElement as HTMLElement).blur();
  await move(DETAIL);
  expect(frame.scrollTop).toBe(0);
  expect(screen.queryByRole("table")).toBeNull();
  const asked = host.of("/my/tools/history").length;
  await move(HISTORY);
  expect(frame.scrollTop).toBe(120);
  expect(screen.getByRole("combobox", { name: "Risk" }).textContent).toBe("Low");
  expect(document.activeElement?.textContent).toBe("History");
  expect(host.of("/my/tools/history")).toHaveLength(asked);
});

it("a call that waits is not yet allowed", async () => {
  await showPage(HISTORY, hostWith(many({ status: "awaiting_approval", approved_by: null })));
  expect(screen.getByText("not yet")).toBeTruthy();
});
