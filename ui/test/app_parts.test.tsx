import { cleanup, render, screen } from "@testing-library/react";
import { afterEach, expect, test, vi } from "vitest";
import { Api } from "../src/api";
import { EntryView, undoHref } from "../src/app/EntryView";
import { HowToConnect } from "../src/app/Machines";
import { readRoute, routeHash } from "../src/app/route";
import { finished, fromExecution } from "../src/state/entries";
import type { Entry } from "../src/state/model";
import * as sample from "./state_samples";
import { TableHost } from "./state_samples";

afterEach(() => {
  cleanup();
  vi.useRealTimers();
  vi.restoreAllMocks();
});

test("routes are read and written, and what is no route of ours is the chat", () => {
  for (const hash of [
    "#/chat",
    "#/chat/s1",
    "#/sessions",
    "#/history",
    "#/history/t1",
    "#/grants",
    "#/policy",
    "#/audit",
    "#/agents",
    "#/review/appr_1",
  ]) {
    expect(routeHash(readRoute(hash))).toBe(hash);
  }
  expect(readRoute("#/chat/<script>")).toEqual({ page: "chat", session: null });
  expect(readRoute("#/elsewhere/x")).toEqual({ page: "chat", session: null });
});

test("only what ended and may have changed files can be undone", () => {
  const call = fromExecution(sample.execution("t", 1, { tool_name: "write_file" }));
  expect(undoHref(call)).toBe("#/history/t");
  expect(undoHref({ ...call, undone: { by: "person:alice", files: 1 } })).toBeNull();
  expect(undoHref({ ...call, status: "failed" })).toBeNull();
  expect(undoHref({ ...call, status: "executing" })).toBeNull();
  expect(undoHref({ ...call, toolName: "read_file" })).toBeNull();
  const ran = { ...call, toolName: "execute_command", result: null };
  expect(undoHref(ran)).toBeNull();
  expect(undoHref(finished(ran, sample.finished("t", 2, { status: "failed", result: { changed_count: 2 } })))).toBe(
    "#/history/t",
  );
});

test("an entry that cannot be drawn does not take the others with it", () => {
  vi.spyOn(console, "error").mockImplementation(() => {});
  const host = new TableHost();
  const broken = { kind: "tool", id: "t" } as unknown as Entry;
  render(<EntryView entry={broken} api={new Api(host)} host={host} userId={null} grants={[]} now={Date.now} />);
  expect(screen.getByText(/could not be shown here/)).toBeTruthy();
});

test("in the editor, who has no machine is told to connect the folder and not to use a terminal", () => {
  const { container } = render(<HowToConnect projectId="p1" kind="vscode" />);
  expect(container.textContent).toContain("Byleave: Connect This Folder");
  expect(container.textContent).not.toContain("byleave connect");
});
