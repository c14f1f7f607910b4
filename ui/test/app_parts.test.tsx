import { act, cleanup, fireEvent, render, screen } from "@testing-library/react";
import { afterEach, expect, test, vi } from "vitest";
import { Api } from "../src/api";
import { EntryView, undoHref } from "../src/app/EntryView";
import { HowToConnect } from "../src/app/Machines";
import { inOrder, MOST_CARDS, MOST_LINES, Questions, whose } from "../src/app/Questions";
import { readRoute, routeHash } from "../src/app/route";
import { finished, fromExecution } from "../src/state/entries";
import type { Entry, Question, Settled } from "../src/state/model";
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
  expect(undoHref({ ...call, status: "failed" })).toBeNull();
  expect(undoHref({ ...call, status: "executing" })).toBeNull();
  expect(undoHref({ ...call, toolName: "read_file" })).toBeNull();
  const ran = { ...call, toolName: "execute_command", result: null };
  expect(undoHref(ran)).toBeNull();
  expect(undoHref(finished(ran, sample.finished("t", 2, { status: "failed", result: { changed_count: 2 } })))).toBe(
    "#/history/t",
  );
});

test("a question of another session says whose, and one of this session nothing", () => {
  const sessions = [sample.session("x", "Other\u202e")];
  expect(whose(sample.approval("q", 1), "s", sessions)).toBeNull();
  expect(whose(sample.approval("q", 1, { session_id: "x" }), "s", sessions)).toBe(
    "Another conversation: Other\\u{202e}",
  );
  expect(whose(sample.approval("q", 1, { session_id: "y" }), "s", sessions)).toBe("Another conversation");
  expect(whose(sample.approval("q", 1, { session_id: null }), null, sessions)).toBe(
    "Asked outside of any conversation",
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

function panel(
  questions: Parameters<typeof Questions>[0]["questions"],
  settled: Settled[],
  onDismiss = vi.fn(),
  wanted = { id: null as string | null, count: 0 },
) {
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
      active
      wanted={wanted}
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

test("of many only the first are whole cards; the others are lines, in order, that open where they stand", async () => {
  vi.useFakeTimers();
  const focus = vi.spyOn(HTMLElement.prototype, "focus");
  Element.prototype.scrollIntoView = vi.fn();
  const many = Array.from({ length: MOST_CARDS + MOST_LINES + 5 }, (_, number) =>
    sample.approval(`q${String(number).padStart(3, "0")}`, number % 60, { description: `Write ${number}.md` }),
  ).sort((one, other) => one.created_at.localeCompare(other.created_at) || one.id.localeCompare(other.id));
  const { container, rerender } = render(panel(many, []));
  expect(container.querySelectorAll(".card-question")).toHaveLength(MOST_CARDS);
  expect(container.querySelectorAll(".app-question-line")).toHaveLength(MOST_LINES);
  expect(container.textContent).toContain("And 5 more");
  const shown = () =>
    [...container.querySelectorAll("[data-card], [data-line]")].map(
      (each) => each.getAttribute("data-card") ?? each.getAttribute("data-line"),
    );
  const before = shown();
  expect(before).toEqual(many.slice(0, MOST_CARDS + MOST_LINES).map(({ id }) => id));
  const line = container.querySelectorAll<HTMLElement>(".app-question-line")[20] as HTMLElement;
  const id = line.dataset.line ?? "";
  fireEvent.click(line);
  await act(() => vi.advanceTimersByTimeAsync(1));
  const opened = container.querySelector(`[data-card="${id}"] > .card-question`);
  expect(focus.mock.contexts.at(-1)).toBe(opened);
  expect(shown().slice(0, before.length)).toEqual(before);
  // The person is taken to a line, and to the first where none is named.
  rerender(panel(many, [], vi.fn(), { id: many[30]?.id ?? null, count: 1 }));
  await act(() => vi.advanceTimersByTimeAsync(1));
  expect(focus.mock.contexts.at(-1)).toBe(container.querySelector(`[data-card="${many[30]?.id}"] > .card-question`));
  rerender(panel(many, [], vi.fn(), { id: null, count: 2 }));
  await act(() => vi.advanceTimersByTimeAsync(1));
  expect(focus.mock.contexts.at(-1)).toBe(container.querySelector(`[data-card="${many[0]?.id}"] > .card-question`));
  fireEvent.click(screen.getByText("Show the next ↓"));
  await act(() => vi.advanceTimersByTimeAsync(1));
  expect(focus.mock.contexts.at(-1)).toBe(container.querySelector(`[data-card="${many[0]?.id}"] > .card-question`));
});

test("the next is the one after a question that is taller than its place", async () => {
  vi.useFakeTimers();
  const focus = vi.spyOn(HTMLElement.prototype, "focus");
  Element.prototype.scrollIntoView = vi.fn();
  const places: Record<string, DOMRect> = { a: new DOMRect(0, 12, 100, 900), b: new DOMRect(0, 924, 100, 900) };
  vi.spyOn(Element.prototype, "getBoundingClientRect").mockImplementation(function (this: Element) {
    return places[this.getAttribute("data-card") ?? ""] ?? new DOMRect(0, 0, 100, 400);
  });
  const { container } = render(panel([sample.approval("a", 1), sample.approval("b", 2)], []));
  fireEvent.click(screen.getByText("Show the next ↓"));
  await act(() => vi.advanceTimersByTimeAsync(1));
  expect(focus.mock.contexts.at(-1)).toBe(container.querySelector('[data-card="b"] > .card-question'));
});

test("a question that comes keeps the panel as tall as it was, until one goes or the person wants more", () => {
  let tall = 300;
  const grown: (() => void)[] = [];
  vi.stubGlobal(
    "ResizeObserver",
    class {
      constructor(told: () => void) {
        grown.push(told);
      }
      observe() {}
      disconnect() {}
    },
  );
  vi.spyOn(Element.prototype, "getBoundingClientRect").mockImplementation(() => new DOMRect(0, 0, 100, tall));
  Element.prototype.scrollIntoView = vi.fn();
  const [a, b, c] = ["a", "b", "c"].map((id, index) => sample.approval(id, index + 1)) as [
    Question,
    Question,
    Question,
  ];
  const { rerender } = render(panel([a], []));
  const section = screen.getByRole("region", { name: "Waiting for your decision" });
  for (const told of grown) told();
  tall = 500;
  rerender(panel([a, b], []));
  expect(section.style.height).toBe("300px");
  rerender(panel([b], []));
  expect(section.style.height).toBe("");
  for (const told of grown) told();
  rerender(panel([b, c], []));
  expect(section.style.height).toBe("500px");
  fireEvent.click(screen.getByText("Show the next ↓"));
  expect(section.style.height).toBe("");
  vi.unstubAllGlobals();
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

test("who answers one after the other keeps only the last answer in sight: more would hide the next question", () => {
  const dismissed = vi.fn();
  const [first, second, elsewhere] = [settledOf("a", true), settledOf("b", true), settledOf("c", false)];
  const view = render(panel([sample.approval("d", 2)], [elsewhere, first], dismissed));
  expect(dismissed).not.toHaveBeenCalled();
  view.rerender(panel([sample.approval("d", 2)], [elsewhere, first, second], dismissed));
  expect(dismissed.mock.calls).toEqual([["a"]]);
  // Unless the person is at an earlier one.
  dismissed.mockClear();
  act(() => view.container.querySelector<HTMLElement>('[data-card="b"] button')?.focus());
  view.rerender(panel([], [elsewhere, second, settledOf("d", true)], dismissed));
  expect(dismissed).not.toHaveBeenCalled();
});

test("many that are answered elsewhere at once do not hide what still waits", () => {
  const dismissed = vi.fn();
  const many = ["a", "b", "c", "d", "e"].map((id) => settledOf(id, false));
  const folded = (view: HTMLElement) => view.querySelectorAll(".app-card-folded").length;
  const { container, rerender } = render(panel([sample.approval("w", 2)], many.slice(0, 2), dismissed));
  expect(folded(container)).toBe(0);
  rerender(panel([sample.approval("w", 2)], many, dismissed));
  expect(dismissed.mock.calls).toEqual([["a"], ["b"]]);
  expect(folded(container)).toBe(5);
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
  expect(container.textContent).toContain("Byleave: Connect This Folder");
  expect(container.textContent).not.toContain("byleave connect");
});
