import type { ShownChange } from "@protocol";
import { act, cleanup, fireEvent, render } from "@testing-library/react";
import { afterEach, describe, expect, it, vi } from "vitest";
import { DiffView } from "../src/cards/DiffView";
import { difference, type Row } from "../src/cards/difference";
import { button, buttons, host } from "./cards_samples";

// What is large takes its time on a busy machine; that it is bounded is counted, not timed.
vi.setConfig({ testTimeout: 30_000 });

afterEach(() => {
  cleanup();
  vi.unstubAllGlobals();
});

const all = (before: string, after: string): Row[] => difference(before, after).runs.flatMap((run) => run.rows);
const kinds = (before: string, after: string) => all(before, after).map((row) => row.kind);
const numbered = (count: number, word = "line") =>
  Array.from({ length: count }, (_, index) => `${word} ${index}\n`).join("");

function open(change: Partial<ShownChange>, at = host()) {
  const whole: ShownChange = { path: "a.txt", kind: "change", ...change };
  return render(<DiffView change={whole} host={at} />).container;
}

describe("the difference of two texts", () => {
  it("pairs changed lines and marks their changed words", () => {
    const [first, second] = all("a\nthe old word\n", "a\nthe new word\n");
    expect(first?.kind).toBe("same");
    expect(second).toMatchObject({
      kind: "changed",
      before: {
        number: 2,
        parts: [
          { text: "the ", changed: false },
          { text: "old", changed: true },
          { text: " word", changed: false },
        ],
      },
      after: { number: 2, ended: true },
    });
  });
  it("marks no words where two lines have little in common", () => {
    const [row] = all("abc def ghi\n", "xyz uvw rst q\n");
    expect(row).toMatchObject({ kind: "changed", before: { parts: [{ text: "abc def ghi", changed: false }] } });
    const [spaced] = all(`${"a b c d e f g h i j ".repeat(50)}\n`, `${"k l m n o p q r s t ".repeat(50)}\n`);
    expect(spaced).toMatchObject({ before: { parts: [{ changed: false }] } });
  });
  it("tells a line with another end from one that stays", () => {
    expect(kinds("a\r\n", "a\n")).toEqual(["changed"]);
    expect(kinds("a", "a\n")).toEqual(["changed"]);
    expect(all("a", "a\n")[0]).toMatchObject({ before: { ended: false }, after: { ended: true } });
  });
  it("tells added from removed lines, with their own numbers", () => {
    expect(all("a\nb\nc\n", "a\nc\nd\n")).toMatchObject([
      { kind: "same" },
      { kind: "removed", before: { number: 2 } },
      { kind: "same", before: { number: 3 }, after: { number: 2 } },
      { kind: "added", after: { number: 3 } },
    ]);
    expect(kinds("", "a\n")).toEqual(["added"]);
    expect(kinds("a\n", "")).toEqual(["removed"]);
    expect(kinds("x\ny\n", "x y z\n")).toEqual(["changed", "removed"]);
    expect(kinds("x\n", "x z\ny\n")).toEqual(["changed", "added"]);
  });
  it("folds what is far from a change", () => {
    const before = numbered(100);
    const { runs, added, removed } = difference(before, before.replace("line 50\n", "line fifty\n"));
    expect(runs.map((run) => [run.folded, run.rows.length])).toEqual([
      [true, 47],
      [false, 3],
      [false, 1],
      [false, 3],
      [true, 46],
    ]);
    expect([added, removed]).toEqual([1, 1]);
    const near = difference("a\n1\n2\n3\n4\n5\n6\n7\nb\n", "A\n1\n2\n3\n4\n5\n6\n7\nB\n");
    expect(near.runs.some((run) => run.folded)).toBe(false);
  });
  it("is quick where one line of fifty thousand changes", () => {
    const before = numbered(50_000);
    const found = difference(before, before.replace("line 25000\n", "other\n"));
    expect([found.added, found.removed, found.note]).toEqual([1, 1, null]);
  });
  it("does not match up what is too long or too different, and says so", () => {
    const far = difference(numbered(15_000, "a"), numbered(15_000, "b"));
    expect(far.note).toContain("too long or too different");
    expect([far.added, far.removed]).toEqual([15_000, 15_000]);
    const different = difference(numbered(3000, "a"), numbered(3000, "b"));
    expect(different.note).toContain("too long or too different");
    expect(difference("", numbered(30_000)).note).toBeNull();
  });
  it("shows the ends of what is enormous, with their numbers", () => {
    const found = difference(numbered(120_000), "short\n");
    expect(found.note).toContain("too long to be compared");
    const removed = found.runs.flatMap((run) => run.rows).filter((row) => row.kind === "removed");
    expect(removed.length).toBeLessThan(10_000);
    expect(removed[removed.length - 1]).toMatchObject({
      before: { number: 120_000, parts: [{ text: "line 119999" }] },
    });
    expect(difference("x".repeat(2_000_000), "y").runs[0]?.rows.length).toBeLessThan(10);
  });
});

describe("a difference people read", () => {
  it("is side by side or unified, and remembers which", () => {
    vi.stubGlobal("innerWidth", 1200);
    const at = host();
    const page = open({ before: "a\nb\n", after: "a\nc\nd\n" }, at);
    expect(page.querySelector(".card-split")).toBeTruthy();
    expect(page.textContent).toContain("2 lines added, 1 line removed");
    fireEvent.click(button("Unified", page));
    expect(at.remember).toHaveBeenCalledWith("diff", "unified");
    expect(page.querySelector(".card-split")).toBeNull();
    expect(button("Unified", page).getAttribute("aria-pressed")).toBe("true");
    expect(page.querySelector("table")?.textContent).toContain("removed: badded: c");
    fireEvent.click(button("Side by side", page));
    expect(at.remember).toHaveBeenLastCalledWith("diff", "split");
    cleanup();
    expect(
      open({ before: "a", after: "b" }, host({ recall: () => "unified" })).querySelector(".card-unified"),
    ).toBeTruthy();
  });
  it("is unified where there is no room", () => {
    vi.stubGlobal("innerWidth", 1200);
    let tell: (entries: unknown[]) => void = () => {};
    const disconnect = vi.fn();
    class Watching {
      constructor(listener: (entries: unknown[]) => void) {
        tell = listener;
      }
      observe() {}
      disconnect = disconnect;
    }
    vi.stubGlobal("ResizeObserver", Watching);
    const page = open({ before: "a\n", after: "b\n" });
    expect(page.querySelector(".card-split")).toBeTruthy();
    act(() => tell([{ contentRect: { width: 0 } }]));
    expect(page.querySelector(".card-split")).toBeTruthy();
    act(() => tell([{ contentRect: { width: 999 } }]));
    expect(page.querySelector(".card-split")).toBeNull();
    expect(buttons("Unified", page).length).toBe(0);
    cleanup();
    expect(disconnect).toHaveBeenCalled();
  });
  it("unfolds unchanged lines on asking", () => {
    const before = numbered(60);
    const page = open({ before, after: before.replace("line 30\n", "x\n") });
    expect(page.textContent).not.toContain("line 5\n");
    fireEvent.click(button("Show 27 unchanged lines", page));
    expect(page.querySelectorAll("tr").length).toBe(27 + 3 + 1 + 3 + 1);
  });
  it("marks what would not be seen where it changes", () => {
    const page = open({ before: "\tx\ny \nz\n", after: "\tX\r\ny\u00a0\u202E\nz" });
    const blanks = [...page.querySelectorAll(".card-blank")].map((each) => [
      each.textContent,
      each.getAttribute("title"),
    ]);
    expect(blanks).toContainEqual(["→\t", "tab"]);
    expect(blanks).toContainEqual(["\\r", "carriage return"]);
    expect(blanks).toContainEqual(["·", "blanks"]);
    expect(page.textContent).toContain("no newline at the end");
    expect(page.textContent).toContain("\\u{202e}");
    expect(page.textContent).not.toContain("\u202E");
  });
  it("keeps few nodes for a line full of tabs and one of a megabyte", () => {
    const page = open({ before: "a\n", after: `${"\t".repeat(5000)}\n${"x".repeat(900_000)}\n` });
    expect(page.querySelectorAll("*").length).toBeLessThan(100);
    expect(page.textContent?.length).toBeLessThan(10_000);
  });
  it("keeps few nodes for thousands of changed lines, in pages", () => {
    const page = open({ before: numbered(5000, "a"), after: numbered(5000, "b") }, host({ recall: () => "unified" }));
    expect(page.querySelectorAll("*").length).toBeLessThan(4000);
    expect(page.textContent).toContain("1–500 of 10,000 rows");
    fireEvent.click(button("Show those after", page));
    expect(page.textContent).toContain("501–1,000 of");
    fireEvent.click(button("Show those before", page));
    expect(page.textContent).toContain("1–500 of");
    expect(buttons("Show those before", page).length).toBe(0);
  });
  it("shows a new file, one that goes, one that stays, and one without a text", () => {
    expect(open({ kind: "create", after: "x\n" }).textContent).toContain("new file+1 1 line added, 0 lines removed");
    cleanup();
    expect(open({ kind: "delete", before: "x\n" }).textContent).toContain("deleted −10 lines added, 1 line removed");
    cleanup();
    expect(open({ before: "x", after: "x", note: "Its mode changes.\u202E" }).textContent).toContain(
      "Its mode changes.\\u{202e}Its text stays as it is.",
    );
    cleanup();
    expect(open({ before: "x" }).textContent).toContain("There is no text to show.");
    cleanup();
    expect(open({ note: "It is too large." }).querySelector("table")).toBeNull();
  });
  it("opens in the host's own viewer where it has one", () => {
    const at = host({ showDiff: vi.fn() });
    fireEvent.click(button("Open diff", open({ kind: "create", after: "x" }, at)));
    expect(at.showDiff).toHaveBeenCalledWith("a.txt (new file)", "", "x", null);
    cleanup();
    fireEvent.click(button("Open diff", open({ kind: "delete", before: "x" }, at)));
    expect(at.showDiff).toHaveBeenLastCalledWith("a.txt (deleted)", "x", "", null);
  });
  it("is not shown a second time while the host shows it", () => {
    let isOpen = false;
    let tell = () => {};
    const shownOutside = {
      has: (id: string) => isOpen && id === "q",
      subscribe: (listener: () => void) => {
        tell = listener;
        return () => {};
      },
    };
    const change = { path: "a.txt", kind: "change", before: "x", after: "y" } as const;
    const at = host({ showDiff: vi.fn(), shownOutside });
    const { container } = render(<DiffView change={change} host={at} approvalId="q" />);
    expect(container.querySelector("table")).not.toBeNull();
    isOpen = true;
    act(() => tell());
    expect(container.querySelector("table")).toBeNull();
    expect(container.textContent).toContain("The difference is open in the editor.");
    fireEvent.click(button("Show diff", container));
    expect(at.showDiff).toHaveBeenCalledWith("a.txt (changed)", "x", "y", "q");
    isOpen = false;
    act(() => tell());
    expect(container.querySelector("table")).not.toBeNull();
  });
});
