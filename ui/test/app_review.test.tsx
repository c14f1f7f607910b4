import { act, cleanup, fireEvent, render, screen } from "@testing-library/react";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { type Api, Problem } from "../src/api";
import { groups, type Held, hold, JOIN_MS, NONE, turnTo } from "../src/app/queue";
import { MOST_LINES, Review, whose } from "../src/app/Review";
import type { Question, Settled } from "../src/state/model";
import { button, buttons } from "./cards_samples";
import * as sample from "./state_samples";
import { TableHost } from "./state_samples";

beforeEach(() => vi.useFakeTimers());
afterEach(() => {
  cleanup();
  vi.useRealTimers();
  vi.restoreAllMocks();
});

const wait = (milliseconds: number) => act(() => vi.advanceTimersByTimeAsync(milliseconds));
const command = (id: string, second: number, more: Partial<Question> = {}) =>
  sample.approval(id, second, { tool_name: "execute_command", tool_params: { command: "npm", args: [id] }, ...more });
const settledOf = (question: Question, here: boolean, more: Partial<Settled> = {}): Settled => ({
  question,
  status: "approved",
  by: "person:alice",
  reason: null,
  here,
  ...more,
});

interface Given {
  questions?: Question[];
  settled?: Settled[];
  wanted?: { id: string | null; count: number };
  api?: Partial<Record<keyof Api, unknown>>;
  onDecided?: (settled: Settled) => void;
  onDismiss?: (id: string) => void;
}

const change = async (id: string) => ({
  approval_id: id,
  digest: "d",
  change: { path: id, kind: "create", before: null, after: "one\ntwo\n" },
  before_sha256: "missing",
  before_size: null,
  seen_at: null,
});

function review(given: Given) {
  return (
    <Review
      questions={given.questions ?? []}
      settled={given.settled ?? []}
      sessions={[sample.session("x", "Other\u202e")]}
      sessionId="s"
      projectId="p"
      api={{ change, ...given.api } as unknown as Api}
      host={new TableHost()}
      now={() => Date.parse(sample.at(2))}
      active
      wanted={given.wanted ?? { id: null, count: 0 }}
      onDecided={given.onDecided ?? (() => {})}
      onDismiss={given.onDismiss ?? (() => {})}
    />
  );
}

const shownCards = (view: HTMLElement) =>
  [...view.querySelectorAll(".card-question")].map((each) => each.getAttribute("aria-label"));
const lines = (view: HTMLElement) =>
  [...view.querySelectorAll(".app-question-line")].map((each) => each.querySelector("bdi")?.textContent);

describe("what is looked at together", () => {
  const write = (id: string, second: number, more: Partial<Question> = {}) => sample.approval(id, second, more);

  test("writes of one conversation are one change set, and everything else stands alone", () => {
    const found = groups([
      write("a", 1),
      command("b", 2),
      write("c", 3),
      write("d", 4, { session_id: "x" }),
      write("e", 5, { session_id: null }),
      write("f", 6, { session_id: null }),
    ]);
    expect(found.map((group) => group.map(({ id }) => id))).toEqual([["a", "c"], ["b"], ["d"], ["e"], ["f"]]);
  });

  test("a write that comes later never joins what a person may be about to answer", () => {
    const [a, b, c] = [write("a", 1), write("b", 2), write("c", 3)];
    const ids = (held: Held) => held.questions.map(({ id }) => id);
    const first = hold(NONE, [a], 0);
    expect(hold(first, [a], 10)).toBe(first);
    const second = hold(first, [a, b], JOIN_MS - 1);
    expect(ids(second)).toEqual(["a", "b"]);
    expect(second.since).toBe(0);
    expect(hold(second, [a, b, c], JOIN_MS)).toBe(second);
    // One that is answered stays in its place until all are.
    expect(ids(hold(second, [b, c], JOIN_MS))).toEqual(["a", "b"]);
    expect(ids(hold(second, [c], 9000))).toEqual(["c"]);
    expect(hold(second, [], 9000)).toBe(second);
  });

  test("one can be looked at by itself, and then nothing joins it", () => {
    const all = [write("a", 1), write("b", 2)];
    const alone = turnTo("b", all, 5, true);
    expect(alone?.questions.map(({ id }) => id)).toEqual(["b"]);
    expect(hold(alone as Held, all, 6)).toBe(alone);
    expect(turnTo("b", all, 5)?.questions).toHaveLength(2);
    expect(turnTo("gone", all, 5)).toBeNull();
  });

  test("what another call joined is asked as it is now", () => {
    const one = command("a", 1);
    const two = { ...one, tool_ids: ["1", "2"] };
    expect(hold(hold(NONE, [one], 0), [two], 9000).questions).toEqual([two]);
  });
});

test("a question of another session says whose, and one of this session nothing", () => {
  const sessions = [sample.session("x", "Other\u202e")];
  expect(whose(sample.approval("q", 1), "s", sessions)).toBeNull();
  expect(whose(sample.approval("q", 1, { session_id: "x" }), "s", sessions)).toBe(
    "Another conversation: Other\\u{202e}",
  );
  expect(whose(sample.approval("q", 1, { session_id: "y" }), "s", sessions)).toBe("Another conversation");
  expect(whose(sample.approval("q", 1, { session_id: null }), null, sessions)).toBe("Outside any conversation");
});

test("a question that cannot be drawn says that it cannot be answered here", () => {
  vi.spyOn(console, "error").mockImplementation(() => {});
  render(review({ questions: [command("q", 1, { description: null as unknown as string })] }));
  expect(screen.getByRole("alert").textContent).toContain("cannot be answered here");
});

test("one is shown whole and the others are lines that open; the keyboard goes to the next and the one before", async () => {
  const many = Array.from({ length: MOST_LINES + 6 }, (_, number) =>
    command(`q${String(number).padStart(3, "0")}`, number % 60),
  ).sort((one, other) => one.created_at.localeCompare(other.created_at) || one.id.localeCompare(other.id));
  const { container, rerender } = render(review({ questions: many }));
  const name = (index: number) => `Question: Run npm ${many.at(index)?.id}`;
  expect(shownCards(container)).toEqual([name(0)]);
  expect(lines(container)).toEqual(many.slice(1, MOST_LINES + 1).map(({ id }) => `Run npm ${id}`));
  expect(container.textContent).toContain("And 5 more");
  expect(container.textContent).toContain(`1 of ${many.length}`);
  const panel = screen.getByRole("region", { name: "Waiting for your decision" });
  const key = async (pressed: string, target: Element = panel) => {
    fireEvent.keyDown(target, { key: pressed });
    await wait(1);
  };
  await key("n");
  expect(shownCards(container)).toEqual([name(1)]);
  expect(document.activeElement).toBe(container.querySelector(".card-question"));
  await key("p");
  await key("p");
  expect(shownCards(container)).toEqual([name(-1)]);
  fireEvent.click(container.querySelector(".app-question-line") as Element);
  await wait(1);
  expect(shownCards(container)).toEqual([name(0)]);
  // Taken to one, and to the first where none is named.
  rerender(review({ questions: many, wanted: { id: many[30]?.id ?? null, count: 1 } }));
  await wait(1);
  expect(shownCards(container)).toEqual([name(30)]);
  rerender(review({ questions: many, wanted: { id: null, count: 2 } }));
  await wait(1);
  expect(shownCards(container)).toEqual([name(0)]);
});

test("a key decides nothing: allow and deny only get the focus, and keys with another or in a field are left alone", async () => {
  const approve = vi.fn(async () => ({}));
  const reject = vi.fn(async () => ({}));
  const { container } = render(review({ questions: [command("a", 1)], api: { approve, reject } }));
  await wait(700);
  const panel = screen.getByRole("region", { name: "Waiting for your decision" });
  for (const key of ["y", "Enter", " "]) fireEvent.keyDown(panel, { key });
  fireEvent.keyDown(panel, { key: "a", ctrlKey: true });
  fireEvent.keyDown(panel, { key: "a", repeat: true });
  expect(document.activeElement).toBe(document.body);
  fireEvent.keyDown(panel, { key: "a" });
  expect(document.activeElement).toBe(button("Allow once"));
  fireEvent.keyDown(panel, { key: "d" });
  expect(document.activeElement).toBe(button("Deny"));
  fireEvent.keyDown(panel, { key: "v" });
  expect(container.querySelector("details")?.open).toBe(true);
  expect([approve.mock.calls.length, reject.mock.calls.length]).toEqual([0, 0]);
});

test("what is answered leaves after two seconds, and from elsewhere later where the person is at it", async () => {
  const dismissed = vi.fn();
  const [a, b] = [command("a", 1), command("b", 2)];
  const { container } = render(review({ settled: [settledOf(a, true), settledOf(b, false)], onDismiss: dismissed }));
  container.querySelector('[data-card="b"]')?.setAttribute("tabindex", "-1");
  act(() => container.querySelector<HTMLElement>('[data-card="b"]')?.focus());
  vi.spyOn(Element.prototype, "matches").mockImplementation(function (this: Element) {
    return this.getAttribute("data-card") === "b";
  });
  await wait(1700);
  expect(dismissed).not.toHaveBeenCalled();
  await wait(600);
  expect(dismissed).toHaveBeenCalledWith("a");
  expect(dismissed).not.toHaveBeenCalledWith("b");
  await wait(8000);
  expect(dismissed).toHaveBeenCalledWith("b");
});

test("that somebody else was first can be read", async () => {
  const dismissed = vi.fn();
  const second = settledOf(command("a", 1), false, { second: "This approval was rejected already, by bob." });
  const { container } = render(review({ settled: [second], onDismiss: dismissed }));
  await wait(9000);
  expect(container.textContent).toContain("Your answer came second: This approval was rejected already, by bob.");
  expect(dismissed).not.toHaveBeenCalled();
  await wait(1500);
  expect(dismissed).toHaveBeenCalledWith("a");
});

test("what was settled never stands above what still waits", () => {
  const [a, b] = [command("a", 1), command("b", 2)];
  const { container, rerender } = render(review({ questions: [a, b] }));
  rerender(review({ questions: [b], settled: [settledOf(a, false)] }));
  expect(shownCards(container)).toEqual(["Question: Run npm b"]);
  expect(container.querySelector(".app-review")?.lastElementChild?.textContent).toContain("Run npm a");
  // The last one stays where it was, saying how it ended.
  rerender(review({ settled: [settledOf(a, false), settledOf(b, true)] }));
  expect(container.querySelector(".card-question[data-settled=approved]")?.textContent).toContain(
    "Allowed by you here.",
  );
});

describe("a call that the person changed", () => {
  const edit = { edited_by: "person:alice", asked: {} };
  const heir = command("b2", 9, { id: "b2", tool_ids: ["tool-b"], edit });

  test("stays where it was, also while another question waits", () => {
    const [a, b] = [command("a", 1), command("b", 2)];
    const held: Held = { questions: [b], since: 0 };
    const between = hold(held, [a], 10, new Set(["b"]));
    expect(between.questions).toEqual([b]);
    expect(hold(between, [a, heir], 20, new Set(["b"])).questions.map(({ id }) => id)).toEqual(["b2"]);
    // Somebody else's withdrawal leads on to what waits.
    expect(hold(held, [a], 10).questions).toEqual([a]);
  });

  test("keeps its place in a change set", () => {
    const [a, b] = [sample.approval("a", 1), sample.approval("b", 2)];
    const changed = sample.approval("c", 3, { tool_ids: b.tool_ids, edit });
    const held = hold({ questions: [a, b], since: 0 }, [a, changed], 10, new Set(["b"]));
    expect(held.questions.map(({ id }) => id)).toEqual(["a", "c"]);
  });
});

describe("a change set", () => {
  const set = (...more: Partial<Question>[]) =>
    ["a.md", "b.md", "c.md"].map((id, index) => sample.approval(id, index + 1, { tool_ids: ["t"], ...more[index] }));

  test("lists its files with what comes and goes, and allows all, each by its own digest", async () => {
    const approve = vi.fn(async () => ({}));
    const decided = vi.fn();
    const questions = set({ digest: "d" }, {}, { tool_ids: ["t", "u"] });
    const { container } = render(review({ questions, api: { approve }, onDecided: decided }));
    await wait(0);
    expect(screen.getByRole("heading", { level: 2 }).textContent).toBe("Change 3 files");
    expect([...container.querySelectorAll(".card-set-head")].map((each) => each.textContent)).toEqual(
      ["a.md", "b.md", "c.md"].map((path) => `Create ${path}+2 2 lines added, 0 lines removedDenyAllow`),
    );
    expect(container.querySelector(".card-chips")?.textContent).toContain("6 lines added");
    fireEvent.click(button("Allow all 3"));
    expect(approve).not.toHaveBeenCalled();
    await wait(700);
    fireEvent.click(button("Allow all 3"));
    await wait(0);
    expect(approve.mock.calls).toEqual([
      ["p", "a.md", { decision: "approved", digest: "d", calls: 1 }],
      ["p", "b.md", { decision: "approved", digest: "d", calls: 1 }],
      ["p", "c.md", { decision: "approved", digest: "d", calls: 2 }],
    ]);
    expect(decided).toHaveBeenCalledTimes(3);
  });

  test("each file has an answer of its own, and what fails is said at its file", async () => {
    const approve = vi
      .fn()
      .mockResolvedValueOnce({})
      .mockRejectedValueOnce(new Problem("Not what was shown.", 409, "Look again.", "pending"))
      .mockResolvedValueOnce({});
    const reject = vi.fn(async () => ({}));
    const decided = vi.fn();
    const questions = set();
    const view = render(review({ questions, api: { approve, reject }, onDecided: decided }));
    await wait(700);
    fireEvent.click(button("Allow all 3"));
    await wait(0);
    expect(decided.mock.calls.map(([{ question }]) => question.id)).toEqual(["a.md", "c.md"]);
    const rest = [questions[1] as Question];
    const ended = [settledOf(questions[0] as Question, true), settledOf(questions[2] as Question, true)];
    view.rerender(review({ questions: rest, settled: ended, api: { approve, reject }, onDecided: decided }));
    const files = [...view.container.querySelectorAll(".card-set-file")].map((each) => each.textContent ?? "");
    expect(files[0]).toContain("Allowed by you here.");
    expect(files[1]).toContain("Not what was shown. Look again.");
    expect(view.container.textContent).toContain("1 answer could not be sent; see the file above.");
    await wait(700);
    fireEvent.click(screen.getByRole("button", { name: "Deny b.md" }));
    await wait(0);
    expect(reject).toHaveBeenCalledWith("p", "b.md", null);
  });

  test("a HIGH one takes a second press for all, and for itself", async () => {
    const approve = vi.fn(async () => ({}));
    const { container } = render(review({ questions: set({}, { risk_level: "HIGH" }), api: { approve } }));
    await wait(700);
    fireEvent.click(button("Allow all 3…"));
    expect(container.textContent).toContain("High risk: b.md. Written immediately.");
    fireEvent.click(button("Yes, allow all 3"));
    expect(approve).not.toHaveBeenCalled();
    fireEvent.click(button("Back"));
    await wait(700);
    fireEvent.click(screen.getByRole("button", { name: "Allow b.md…" }));
    await wait(700);
    fireEvent.click(button("Yes, allow b.md"));
    await wait(0);
    expect(approve.mock.calls).toEqual([["p", "b.md", { decision: "approved", digest: "d", calls: 1 }]]);
  });

  test("a file folds and unfolds, and its warning stays in sight", async () => {
    const finding = {
      level: "HIGH",
      reason: "Runs later.",
      rule: "write.x",
      instead: null,
      always_asks: true,
    } as const;
    const { container } = render(review({ questions: set({ findings: [finding] }) }));
    await wait(0);
    expect(container.querySelectorAll(".card-diff")).toHaveLength(3);
    fireEvent.click(container.querySelector(".card-set-toggle") as Element);
    expect(container.querySelectorAll(".card-diff")).toHaveLength(2);
    expect(container.querySelector(".card-set-file")?.textContent).toContain("Runs later.");
  });

  test("one that comes while the set is looked at waits its turn", async () => {
    const questions = set();
    const view = render(review({ questions: questions.slice(0, 2) }));
    await wait(JOIN_MS + 100);
    view.rerender(review({ questions }));
    expect(buttons("Allow all 2")).toHaveLength(1);
    expect(lines(view.container)).toEqual(["Write c.md"]);
  });

  test("all are denied with one reason", async () => {
    const reject = vi.fn(async () => ({}));
    render(review({ questions: set().slice(0, 2), api: { reject } }));
    await wait(700);
    const trigger = document.querySelector<HTMLElement>(".card-answers .card-more") as HTMLElement;
    fireEvent.mouseDown(trigger);
    fireEvent.click(trigger);
    await wait(100);
    fireEvent.click(screen.getByRole("menuitem", { name: "Deny all with a reason…" }));
    await wait(700);
    fireEvent.change(screen.getByRole("textbox"), { target: { value: "no" } });
    fireEvent.click(button("Deny all"));
    await wait(0);
    expect(reject.mock.calls).toEqual([
      ["p", "a.md", "no"],
      ["p", "b.md", "no"],
    ]);
  });
});
