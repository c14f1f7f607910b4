// However many questions are asked while the chat is hidden, one notification is open, and it says how many wait.

import { beforeEach, describe, expect, test, vi } from "vitest";
import type { Api } from "../../../ui/src/api.js";
import type { Differences } from "../../src/editor/diffs.js";
import { Telling } from "../../src/editor/telling.js";
import type { Asked } from "../../src/tools/ToolHandler.js";
import { until } from "../waiting.js";
import { reset, settings, window } from "./fake_vscode.js";

interface Toast {
  readonly kind: string;
  readonly text: string;
  answer(said?: string): void;
}

let toasts: Toast[];

beforeEach(() => {
  reset();
  vi.restoreAllMocks();
  toasts = [];
  for (const kind of ["showWarningMessage", "showErrorMessage"] as const) {
    vi.spyOn(window, kind).mockImplementation(
      (text: string) => new Promise((answer) => void toasts.push({ kind, text, answer })),
    );
  }
});

function question(id: string, risk: Asked["risk"] = "MEDIUM"): Asked {
  const params = { command: "npm", args: [id] };
  const rest = { description: "", reasons: [], network: false, digest: "d", calls: 1, inspected: false };
  return { id, toolName: "execute_command", params, risk, ...rest };
}

function desk(apartMs = 10_000) {
  const waiting: Asked[] = [];
  const seen = { chat: false };
  const openWaiting = vi.fn();
  const telling = new Telling({
    api: {} as Api,
    projectId: "p",
    differences: {} as Differences,
    stillWaits: (id) => waiting.some((each) => each.id === id),
    openWaiting,
    chatVisible: () => seen.chat,
    waiting: () => waiting,
    apartMs,
  });
  const ask = (id: string, risk?: Asked["risk"]) => {
    const asked = question(id, risk);
    waiting.push(asked);
    telling.asked(asked);
  };
  const over = (id: string) => {
    waiting.splice(
      waiting.findIndex((each) => each.id === id),
      1,
    );
    telling.over(id);
  };
  return { ask, over, seen, telling, openWaiting };
}

const texts = () => toasts.map(({ text }) => text);

describe("a flood of questions", () => {
  test("opens one notification, and the next says how many wait when that one is done with", async () => {
    const { ask, openWaiting } = desk();
    for (let at = 0; at < 100; at++) ask(`q${at}`, at === 7 ? "HIGH" : "MEDIUM");
    expect(texts()).toEqual(["Byleave: the agent wants to run npm q0"]);
    toasts[0]?.answer();
    await until(() => expect(toasts).toHaveLength(2));
    expect(toasts[1]).toMatchObject({
      kind: "showErrorMessage",
      text: "Byleave: 100 to review, 1 of them high risk.",
    });
    toasts[1]?.answer("Review");
    await until(() => expect(openWaiting).toHaveBeenCalledTimes(1));
    expect(toasts).toHaveLength(2);
    ask("late");
    expect(texts().at(-1)).toBe("Byleave: the agent wants to run npm late · 100 more to review");
  });

  test("of two tells the second by itself, and without HIGH only warns", async () => {
    const { ask } = desk();
    ask("a");
    ask("b");
    toasts[0]?.answer();
    await until(() => expect(texts()[1]).toBe("Byleave: the agent wants to run npm b · 1 more to review"));
    ask("c");
    ask("d");
    toasts[1]?.answer();
    await until(() => expect(toasts[2]).toMatchObject({ kind: "showWarningMessage" }));
    expect(texts()[2]).toBe("Byleave: 4 to review.");
  });

  test("that come and go makes a new one only after a while", async () => {
    const { ask, over } = desk(30);
    ask("a");
    over("a");
    ask("b");
    over("b");
    ask("c");
    expect(toasts).toHaveLength(1);
    await until(() => expect(texts()[1]).toBe("Byleave: the agent wants to run npm c"));
    over("c");
    ask("d");
    await until(() => expect(toasts).toHaveLength(3));
    toasts[0]?.answer(); // an old one: it says nothing of the one that is open
    await Promise.resolve();
    ask("e");
    expect(toasts).toHaveLength(3);
  });
});

test("nothing is told while the chat is in sight, where it is not wanted, or after the end", async () => {
  const { ask, seen, telling } = desk();
  seen.chat = true;
  ask("a");
  seen.chat = false;
  settings.set("notifications", false);
  ask("b");
  expect(toasts).toEqual([]);
  settings.set("notifications", true);
  ask("c");
  ask("d");
  seen.chat = true;
  toasts[0]?.answer();
  await new Promise((resolve) => setImmediate(resolve));
  expect(toasts).toHaveLength(1);
  seen.chat = false;
  telling.end();
  ask("e");
  expect(toasts).toHaveLength(1);
});

test("calls that end late are told one at a time too, the rest by their number", async () => {
  const { telling, seen, openWaiting } = desk();
  for (let at = 0; at < 50; at++) telling.late(`Byleave: call ${at} took too long. [x](command:y)`);
  expect(texts()).toEqual(["Byleave: call 0 took too long. [x] (command:y)"]);
  toasts[0]?.answer("Open the chat");
  await until(() => expect(toasts).toHaveLength(2));
  expect(openWaiting).toHaveBeenCalledTimes(1);
  expect(texts()[1]).toBe("Byleave: 49 more ended because nobody answered in time, or they took too long.");
  telling.late("another");
  seen.chat = true;
  toasts[1]?.answer();
  await until(() => {
    telling.late("and one");
    expect(texts().at(-1)).toBe("and one");
  });
  expect(toasts).toHaveLength(3);
});
