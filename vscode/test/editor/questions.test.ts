// Questions outside the chat: what each button does, what is shown before anything can be allowed.

import { beforeEach, describe, expect, test, vi } from "vitest";
import { type Api, Problem } from "../../../ui/src/api.js";
import type { Differences } from "../../src/editor/diffs.js";
import { answerInDiff, askNatively, type QuestionPorts, showChange } from "../../src/editor/questions.js";
import type { Asked } from "../../src/tools/ToolHandler.js";
import { answers, reset, shown } from "./fake_vscode.js";

beforeEach(reset);

const asked: Asked = {
  id: "a",
  toolName: "execute_command",
  params: { command: "npm", args: ["test"] },
  risk: "MEDIUM",
  description: "Run npm test",
  reasons: ["npm test runs scripts."],
  network: true,
  digest: "d",
  calls: 1,
  inspected: false,
};
const write: Asked = { ...asked, toolName: "write_file", params: { path: "a.md", content: "x" } };

/** A sentence of the server, which marks commands as a page or a terminal shows them. */
const ODD = 'The token\'s "sub" is odd. Make one with "byleave token".';

function ports(more: Partial<Record<keyof Api, unknown>> = {}) {
  const api = {
    approve: vi.fn(async () => ({})),
    reject: vi.fn(async () => ({})),
    whole: vi.fn(async () => ({ approval_id: "a", text: "Run npm test\u202e exactly" })),
    change: vi.fn(async () => ({ digest: "d", change: { path: "a.md", kind: "change", before: "b", after: "x" } })),
    ...more,
  };
  const show = vi.fn(async () => {});
  const openWaiting = vi.fn();
  const made: QuestionPorts = {
    api: api as unknown as Api,
    projectId: "p",
    differences: { ask: show } as unknown as Differences,
    stillWaits: () => true,
    openWaiting,
  };
  return { made, api, show, openWaiting };
}

describe("a question while the chat is hidden", () => {
  test("is told in one line with three ways on, and allows nothing by itself", async () => {
    const { made, api } = ports();
    await askNatively(asked, made);
    expect(shown).toEqual([
      { kind: "warning", text: "Byleave: the agent wants to run npm test", items: ["Review", "Allow once…", "Deny"] },
    ]);
    expect(api.approve).not.toHaveBeenCalled();
  });

  test("is allowed only in a dialog that says exactly what, with the digest that was shown", async () => {
    const { made, api } = ports();
    answers.set("the agent wants to", "Allow once…");
    answers.set("Allow this once", "Allow once");
    await askNatively(asked, made);
    expect(shown[1]).toEqual({
      kind: "warning",
      text: "Allow this once?",
      detail: "npm test\n\nRun npm test\\u{202e} exactly\n\n• npm test runs scripts.\n\nIt may use the network.",
      items: ["Deny", "Allow once"],
    });
    expect(api.approve).toHaveBeenCalledWith("p", "a", { decision: "approved", digest: "d", calls: 1 });
  });

  test("says how many identical calls its answer allows, and allows no more", async () => {
    const { made, api } = ports();
    answers.set("the agent wants to", "Allow once…");
    answers.set("Allow this once", "Allow once");
    await askNatively({ ...asked, calls: 2 }, made);
    expect(shown[1]?.detail).toContain("2 identical calls wait for this one answer.");
    expect(api.approve).toHaveBeenCalledWith("p", "a", { decision: "approved", digest: "d", calls: 2 });
  });

  test("about files leads to the chat, where they are shown, and cannot be allowed by a dialog", async () => {
    const { made, openWaiting } = ports();
    answers.set("the agent wants to", "Review");
    await askNatively({ ...asked, inspected: true }, made);
    expect(shown[0]?.items).toEqual(["Review", "Deny"]);
    expect(openWaiting).toHaveBeenCalled();
  });

  test("HIGH takes a second step, whose first button does not run it", async () => {
    const { made, api } = ports();
    answers.set("the agent wants to", "Allow once…");
    answers.set("Allow this once", "Allow once");
    await askNatively({ ...asked, risk: "HIGH" }, made);
    expect(shown[0]?.kind).toBe("error");
    expect(shown[2]?.items).toEqual(["Do not run it", "Run it"]);
    expect(api.approve).not.toHaveBeenCalled();
    answers.set("High risk", "Run it");
    await askNatively({ ...asked, risk: "HIGH", reasons: [] }, made);
    expect(api.approve).toHaveBeenCalledTimes(1);
  });

  test("a dialog that is left, or denies, allows nothing", async () => {
    const { made, api } = ports({ whole: async () => ({ approval_id: "a", text: "Run npm test" }) });
    answers.set("the agent wants to", "Allow once…");
    await askNatively({ ...asked, network: false }, made);
    expect(shown[1]?.detail).toBe("npm test\n\nRun npm test\n\n• npm test runs scripts.");
    answers.set("Allow this once", "Deny");
    answers.set("The agent is told", "no thanks");
    await askNatively(asked, made);
    expect(api.approve).not.toHaveBeenCalled();
    expect(api.reject).toHaveBeenCalledWith("p", "a", "no thanks");
  });

  test("too long for a dialog is shown in the chat instead", async () => {
    const { made, api, openWaiting } = ports({ whole: async () => ({ text: "x".repeat(5000) }) });
    answers.set("the agent wants to", "Allow once…");
    await askNatively(asked, made);
    expect(openWaiting).toHaveBeenCalled();
    expect(api.approve).not.toHaveBeenCalled();
  });

  test("says of a command's time what it is measured in, and of nothing else", async () => {
    const text = "execute_command\ncommand: 'x'\nargs (1):\n  1: 'timeout: 1'\ntimeout: 1";
    const { made } = ports({ whole: async () => ({ approval_id: "a", text }) });
    answers.set("the agent wants to", "Allow once…");
    await askNatively({ ...asked, params: { command: "x", args: ["timeout: 1"], timeout: 1 } }, made);
    expect(shown.at(-1)?.detail).toContain("\n  1: 'timeout: 1'\ntimeout: 1 second\n");
  });

  test("is denied with a reason, without one, or not at all after Escape", async () => {
    const { made, api } = ports();
    answers.set("the agent wants to", "Deny");
    await askNatively(asked, made);
    expect(api.reject).not.toHaveBeenCalled();
    answers.set("The agent is told", " ");
    await askNatively(asked, made);
    expect(api.reject).toHaveBeenCalledWith("p", "a", null);
  });

  test("that is over says so and sends nothing", async () => {
    const { made, api } = ports();
    answers.set("the agent wants to", "Deny");
    await askNatively(asked, { ...made, stillWaits: () => false });
    expect(shown[1]?.text).toContain("This question is over");
    expect(api.reject).not.toHaveBeenCalled();
  });

  test.each([
    [new Problem("It is approved.", 409), "Somebody was faster: It is approved."],
    [new Problem("Refused.", 403, "Ask the owner."), "Refused. Ask the owner."],
    [new Problem("Refused.", 403), "Refused."],
    [new Problem("The token's `sub` is odd.", 403, "make one with `byleave token`"), ODD],
  ])("what the server says against it is told whole, and leads to the chat", async (problem, text) => {
    const { made, openWaiting } = ports({ reject: async () => Promise.reject(problem) });
    answers.set("the agent wants to", "Deny");
    answers.set("The agent is told", "x");
    answers.set(text, "Review");
    await askNatively(asked, made);
    expect(shown.at(-1)).toEqual({ kind: "warning", text: `Byleave: ${text}`, items: ["Review"] });
    expect(openWaiting).toHaveBeenCalledTimes(1);
  });

  test("a fault of ours is not hidden", async () => {
    const { made } = ports({ reject: async () => Promise.reject(new TypeError("ours")) });
    answers.set("the agent wants to", "Deny");
    answers.set("The agent is told", "x");
    await expect(askNatively(asked, made)).rejects.toThrow("ours");
  });
});

describe("the difference of a write", () => {
  test("opens beside the chat when it is asked for", async () => {
    const { made, show, openWaiting } = ports();
    answers.set("the agent wants to", "Review");
    await askNatively(write, made);
    expect(openWaiting).toHaveBeenCalled();
    expect(show).toHaveBeenCalledWith(write, "a.md", "b", "x", true);
  });

  test("is not shown when it belongs to another question, has no text, or cannot be had", async () => {
    const { show, made } = ports({
      change: async () => ({ digest: "other", change: { path: "a", before: "", after: "" } }),
    });
    await showChange(write, made, false);
    await showChange(write, ports({ change: async () => Promise.reject(new Problem("no", 404)) }).made, false);
    await showChange(
      write,
      ports({ change: async () => ({ digest: "d", change: { path: "a", before: null, after: null } }) }).made,
      false,
    );
    expect(await showChange(asked, made, false)).toBe(false);
    const over = { ...ports().made, stillWaits: () => false };
    expect(await showChange(write, over, false)).toBe(false);
    expect(show).not.toHaveBeenCalled();
  });

  test.each([
    ["what would be written is too long", { kind: "change", before: "b", after: null, note: null }],
    ["what is there now is too long", { kind: "change", before: null, after: "x", note: null }],
    [
      "there is something to say beside it",
      { kind: "change", before: "b", after: "x", note: "What changes is masked." },
    ],
    [
      "the viewer would pass over the change",
      { kind: "change", before: "if a:\n  b()\n", after: "if a:\nb()\n", note: null },
    ],
  ])("is asked in the chat where %s", async (_, change) => {
    const { show, made } = ports({ change: async () => ({ digest: "d", change: { path: "a.py", ...change } }) });
    expect(await showChange(write, made, false)).toBe(false);
    expect(show).not.toHaveBeenCalled();
  });

  test("of a new file begins with nothing", async () => {
    const { show, made } = ports({
      change: async () => ({
        digest: "d",
        change: { path: "a", kind: "create", before: null, after: "x", note: null },
      }),
    });
    expect(await showChange(write, made, false)).toBe(true);
    expect(show).toHaveBeenCalledWith(write, "a", "", "x", false);
  });
});

describe("an answer in the difference of a write", () => {
  test("allows MEDIUM at once, with the digest of what was shown", async () => {
    const { made, api } = ports();
    await answerInDiff(write, made, true);
    expect(shown).toEqual([]);
    expect(api.approve).toHaveBeenCalledWith("p", "a", { decision: "approved", digest: "d", calls: 1 });
  });

  test("asks a second time for HIGH, and what is not said then is not allowed", async () => {
    const { made, api } = ports();
    await answerInDiff({ ...write, risk: "HIGH" }, made, true);
    expect(shown).toMatchObject([{ text: "High risk. Runs immediately.", items: ["Do not run it", "Run it"] }]);
    answers.set("High risk", "Do not run it");
    await answerInDiff({ ...write, risk: "HIGH" }, made, true);
    expect(api.approve).not.toHaveBeenCalled();
    answers.set("High risk", "Run it");
    await answerInDiff({ ...write, risk: "HIGH" }, made, true);
    expect(api.approve).toHaveBeenCalledTimes(1);
  });

  test("denies with a reason, and not at all after Escape", async () => {
    const { made, api } = ports();
    await answerInDiff(write, made, false);
    expect(api.reject).not.toHaveBeenCalled();
    answers.set("The agent is told", "not that file");
    await answerInDiff(write, made, false);
    expect(api.reject).toHaveBeenCalledWith("p", "a", "not that file");
  });

  test("that was given elsewhere meanwhile says so and sends nothing", async () => {
    const { made, api } = ports();
    for (const allows of [true, false]) await answerInDiff(write, { ...made, stillWaits: () => false }, allows);
    expect(shown.map(({ text }) => text)).toEqual(Array(2).fill(expect.stringContaining("This question is over")));
    for (const sent of [api.approve, api.reject]) expect(sent).not.toHaveBeenCalled();
  });

  test("that the server does not take says why", async () => {
    const { made } = ports({ approve: async () => Promise.reject(new Problem("It is rejected.", 409)) });
    await answerInDiff(write, made, true);
    expect(shown.at(-1)?.text).toBe("Byleave: Somebody was faster: It is rejected.");
  });
});
