// Differences in the editor's own viewer, and Allow and Deny in the title bar of those that belong to a question.

import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { Differences } from "../../src/editor/diffs.js";
import type { Asked } from "../../src/tools/ToolHandler.js";
import { changedTabs, contexts, ran, reset, type TabInputTextDiff, tabs, type Uri } from "./fake_vscode.js";

let differences: Differences;

beforeEach(() => {
  // Only the clock: what was just opened is not read yet.
  vi.useFakeTimers({ toFake: ["Date"] });
  reset();
  differences = new Differences();
});

afterEach(() => {
  differences.dispose();
  vi.useRealTimers();
});

function question(id: string, risk: Asked["risk"] = "MEDIUM"): Asked {
  const rest = { description: "", reasons: [], network: false, digest: "d", calls: 1, inspected: false };
  return { id, toolName: "write_file", params: { path: "a.md" }, risk, ...rest };
}

const ask = (id: string) => differences.ask(question(id), "a.md", "old", "new", true);
const asking = () => contexts.get("byleave.askingDiffs");
/** The right side of the tab that was opened last. */
const right = (at = -1) => (tabs.tabs.at(at) as { input: TabInputTextDiff }).input.modified;
const text = (uri: Uri) => differences.provideTextDocumentContent(uri as never);

test("a difference opens from two documents that nobody can write, and old ones are forgotten", async () => {
  await differences.show("src/a.ts (changed)", "old", "new");
  const [command, left, other, title, options] = ran[0] as [string, Uri, Uri, string, unknown];
  expect(command).toBe("vscode.diff");
  expect(left.scheme).toBe("byleave-change");
  expect(left.path).toMatch(/\/src\/a\.ts$/);
  expect(title).toBe("src/a.ts (changed): current ↔ proposed");
  expect(options).toEqual({ preview: true, preserveFocus: false });
  expect([text(left), text(other)]).toEqual(["old", "new"]);
  expect(asking()).toBeUndefined();
  for (let at = 0; at < 30; at++) await differences.show("b", "x", "y");
  expect(text(left)).toContain("no longer kept");
});

describe("the difference of a question", () => {
  test("is opened once, and told to the chat while it is open", async () => {
    const told: string[][] = [];
    differences.onOpen = (ids) => told.push([...ids]);
    await ask("one");
    await ask("one");
    expect(new Set(ran.filter(([command]) => command === "vscode.diff").map(([, , shown]) => String(shown))).size).toBe(
      1,
    );
    expect(asking()).toHaveLength(1);
    differences.over("one");
    expect(told).toEqual([["one"], []]);
  });

  test("has its answers in its title bar for as long as it waits and is open", async () => {
    await ask("one");
    await ask("two");
    expect(tabs.tabs.map(({ label }) => label)).toEqual(Array(2).fill("a.md: current ↔ proposed (medium risk)"));
    expect(asking()).toEqual([String(right(0)), String(right(1))]);
    const [first] = tabs.tabs;
    if (first) changedTabs.fire({ closed: [first] });
    expect(asking()).toEqual([String(right(1))]);
    changedTabs.fire({ closed: [{ label: "a.txt", input: {} }] });
    expect(asking()).toEqual([String(right(1))]);
    differences.over("two");
    expect(asking()).toEqual([]);
  });

  test("keeps the focus where it was when it opened by itself", async () => {
    await ask("one");
    expect(ran.find(([command]) => command === "vscode.diff")?.[4]).toEqual({ preview: true, preserveFocus: true });
  });

  test("is closed when the question is over, each one of it, and no other tab is", async () => {
    await ask("one");
    await ask("two");
    await ask("one");
    const kept = tabs.tabs[1];
    differences.over("one");
    expect(tabs.tabs).toEqual([kept]);
    differences.over("one");
    differences.over("never asked");
    expect(tabs.tabs).toEqual([kept]);
  });

  test("is found by the address a button gives, else by the tab in sight", async () => {
    await ask("one");
    const one = right();
    expect(differences.questionOf(one as never)).toBeNull(); // it came under the mouse just now
    vi.advanceTimersByTime(500);
    await ask("two");
    expect(differences.questionOf(undefined)).toBeNull();
    vi.advanceTimersByTime(500);
    expect(differences.questionOf(one as never)?.id).toBe("one");
    expect(differences.questionOf(undefined)?.id).toBe("two");
    tabs.activeTab = { label: "a.txt", input: { uri: one } };
    expect(differences.questionOf(undefined)).toBeNull();
    tabs.activeTab = undefined;
    expect(differences.questionOf(undefined)).toBeNull();
    differences.over("one");
    expect(differences.questionOf(one as never)).toBeNull();
  });

  test("cannot be answered any more once its text is forgotten, and the buttons go", async () => {
    await ask("one");
    const one = right();
    for (let at = 0; at < 20; at++) await differences.show("b", "x", "y");
    expect(text(one)).toContain("no longer kept");
    expect(differences.questionOf(one as never)).toBeNull();
    expect(asking()).toEqual([]);
  });
});

test("what a call left behind is shown against what was there, also where nothing is now", async () => {
  await differences.showKept("a.md", "before", "");
  const { input } = tabs.tabs[0] as { input: TabInputTextDiff };
  expect([text(input.original), text(input.modified)]).toEqual(["before", ""]);
  expect(tabs.tabs[0]?.label).toBe("a.md: before the agent ↔ now");
});
