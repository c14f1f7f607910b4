import { act, cleanup, render, screen } from "@testing-library/react";
import { afterEach, expect, test, vi } from "vitest";
import { Api } from "../src/api";
import { EntryView, undoHref } from "../src/app/EntryView";
import { HowToConnect } from "../src/app/Machines";
import { inOrder, Questions, whose } from "../src/app/Questions";
import { readRoute, routeHash } from "../src/app/route";
import { finished, fromExecution } from "../src/state/entries";
import type { Entry, Settled } from "../src/state/model";
import * as sample from "./state_samples";
import { TableHost } from "./state_samples";

afterEach(() => {
  cleanup();
  vi.useRealTimers();
  vi.restoreAllMocks();
});

const settledOf = (id: string, here: boolean): Settled => ({
  question: sample.approval(id, 1),
  status: "approved",
  by: "person:alice",
  reason: null,
  here,
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
  expect(undoHref({ ...call, status: "FAILED" })).toBeNull();
  expect(undoHref({ ...call, status: "EXECUTING" })).toBeNull();
  expect(undoHref({ ...call, toolName: "read_file" })).toBeNull();
  const ran = { ...call, toolName: "execute_command", result: null };
  expect(undoHref(ran)).toBeNull();
  expect(undoHref(finished(ran, sample.finished("t", 2, { status: "FAILED", result: { changed_count: 2 } })))).toBe(
    "#/history/t",
  );
});

test("a question of another session says whose, and one of this session nothing", () => {
  const sessions = [sample.session("x", "Other\u202e")];
  expect(whose(sample.approval("q", 1), "s", sessions)).toBeNull();
  expect(whose(sample.approval("q", 1, { session_id: "x" }), "s", sessions)).toBe("Other\\u{202e}");
  expect(whose(sample.approval("q", 1, { session_id: "y" }), "s", sessions)).toBe("another conversation");
  expect(whose(sample.approval("q", 1, { session_id: null }), null, sessions)).toBe(
    "a call outside of any conversation",
  );
});

test("questions that came at the same moment keep one order", () => {
  const order = inOrder([sample.approval("b", 1), sample.approval("c", 0)], [settledOf("a", false)]);
  expect(order.map((each) => each.id)).toEqual(["c", "a", "b"]);
});

test("an entry that cannot be drawn does not take the others with it", () => {
  vi.spyOn(console, "error").mockImplementation(() => {});
  const host = new TableHost();
  const broken = { kind: "tool", id: "t" } as unknown as Entry;
  render(<EntryView entry={broken} api={new Api(host)} host={host} userId={null} grants={[]} now={Date.now} />);
  expect(screen.getByText(/could not be shown here/)).toBeTruthy();
});

function panel(questions: Parameters<typeof Questions>[0]["questions"], settled: Settled[], onDismiss = vi.fn()) {
  const host = new TableHost();
  return (
    <Questions
      questions={questions}
      settled={settled}
      sessions={[]}
      sessionId="s"
      projectId="p"
      api={new Api(host)}
      host={host}
      now={() => Date.parse(sample.at(2))}
      onDecided={() => {}}
      onDismiss={onDismiss}
    />
  );
}

test("a question that cannot be drawn says that it cannot be answered here", () => {
  vi.spyOn(console, "error").mockImplementation(() => {});
  render(panel([{ ...sample.approval("q", 1), description: null as unknown as string }], []));
  expect(screen.getByRole("alert").textContent).toContain("cannot be answered here");
});

test("what was answered here is folded, what was answered elsewhere is not", async () => {
  const { container } = render(panel([], [settledOf("a", true), settledOf("b", false)]));
  expect(
    [...container.querySelectorAll(".app-card")].map((each) => each.classList.contains("app-card-folded")),
  ).toEqual([true, false]);
});

test("settled cards leave after a while, but not while the person is at them", async () => {
  vi.useFakeTimers();
  const dismissed = vi.fn();
  const settled = [settledOf("a", true), settledOf("b", false)];
  const { container } = render(panel([], settled, dismissed));
  act(() => container.querySelector<HTMLElement>('[data-card="b"] button')?.focus());
  await act(() => vi.advanceTimersByTimeAsync(12_000));
  expect(dismissed).toHaveBeenCalledWith("a");
  expect(dismissed).not.toHaveBeenCalledWith("b");
});

test("what is answered meanwhile is no reason for an earlier card to stay", async () => {
  vi.useFakeTimers();
  const dismissed = vi.fn();
  const first = settledOf("a", true);
  const view = render(panel([], [first], dismissed));
  await act(() => vi.advanceTimersByTimeAsync(6000));
  view.rerender(panel([], [first, settledOf("b", true)], dismissed));
  await act(() => vi.advanceTimersByTimeAsync(5000));
  expect(new Set(dismissed.mock.calls.flat())).toEqual(new Set(["a"])); // until it is really gone
  view.rerender(panel([], [], dismissed));
});

test("a card that was answered by a click leaves, though the pressed button had the focus", async () => {
  vi.useFakeTimers();
  const dismissed = vi.fn();
  const question = sample.approval("a", 1);
  const view = render(panel([question], [], dismissed));
  act(() => screen.getByText<HTMLElement>("Allow once").focus());
  view.rerender(panel([], [settledOf("a", true)], dismissed));
  expect(document.activeElement).toBe(document.body);
  await act(() => vi.advanceTimersByTimeAsync(11_000));
  expect(dismissed).toHaveBeenCalledWith("a");
});

test("in the editor, who has no machine is told to connect the folder and not to use a terminal", () => {
  const { container } = render(<HowToConnect projectId="p1" kind="vscode" />);
  expect(container.textContent).toContain("Assent: Connect This Folder");
  expect(container.textContent).not.toContain("assent connect");
});
