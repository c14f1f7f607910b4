// Words of an agent in notifications and dialogs: they are shown, and never become something to click.

import { beforeEach, expect, test, vi } from "vitest";
import { type Api, Problem } from "../../../ui/src/api.js";
import type { Differences } from "../../src/editor/diffs.js";
import { openFile } from "../../src/editor/files.js";
import { listed, plain } from "../../src/editor/notices.js";
import { askNatively, type QuestionPorts } from "../../src/editor/questions.js";
import type { Asked } from "../../src/host/watch.js";
import { answers, reset, shown } from "../editor/fake_vscode.js";

beforeEach(reset);

/** What the editor makes a link of in a notification; a link may name a command, which a click then runs. */
const LINK = /\[([^\]]+)\]\(((?:https?:\/\/|command:|file:)[^)\s]+)(?: (["'])(.+?)(\3))?\)/i;
const BAIT = "[Show](command:workbench.action.terminal.sendSequence?%7B%7D)";

const asked: Asked = {
  id: "a",
  toolName: "execute_command",
  params: { command: "echo", args: [BAIT] },
  risk: "MEDIUM",
  description: "Run echo",
  reasons: [],
  network: false,
  digest: "d",
  inspected: false,
};

function ports(more: Partial<Record<keyof Api, unknown>> = {}) {
  const api = {
    approve: vi.fn(async () => ({})),
    reject: vi.fn(async () => ({})),
    whole: vi.fn(async () => ({ approval_id: "a", text: "all of it" })),
    ...more,
  };
  const openWaiting = vi.fn();
  const made: QuestionPorts = {
    api: api as unknown as Api,
    projectId: "p",
    differences: { show: vi.fn() } as unknown as Differences,
    stillWaits: () => true,
    openWaiting,
  };
  return { made, api, openWaiting };
}

test("a link in a command is no link in the notification that asks about it", async () => {
  await askNatively(asked, ports().made);
  await askNatively({ ...asked, toolName: "write_file", params: { path: BAIT } }, ports().made);
  expect(shown).toHaveLength(2);
  for (const { text } of shown) {
    expect(text).not.toMatch(LINK);
    expect(text).toContain("command:workbench");
  }
});

test("nor in what the server says of an answer, or in the name of a file that is not there", async () => {
  answers.set("Byleave asks", "Deny");
  answers.set("The agent is told", "x");
  await askNatively(asked, ports({ reject: async () => Promise.reject(new Problem(BAIT, 403)) }).made);
  await openFile("/nowhere", BAIT, null);
  expect(shown.at(-1)?.text).toContain("command:workbench");
  for (const { text } of shown) expect(text).not.toMatch(LINK);
});

test("a call is shown as it is, with every mark in it, also where sentences beside it lose theirs", async () => {
  const params = { command: "echo", args: ["`date`", " `id` "] };
  await askNatively({ ...asked, params }, ports().made);
  expect(shown[0]?.text).toBe('Byleave asks (MEDIUM): echo "`date`" " `id` "');
});

test.each([
  ["Run `byleave link`.", 'Run "byleave link".'],
  ["(`a b`), `c`: d", '("a b"), "c": d'],
  ["'a`b`c' and x`y` stay", "'a`b`c' and x`y` stay"],
  ["'`x`' is a name", "'`x`' is a name"],
  ["one ` alone", "one ` alone"],
])("of a sentence, commands stand in quotes and names stay what they are: %s", (given, said) => {
  expect(plain(given)).toBe(said);
});

test("what cannot be shown whole cannot be allowed by a dialog", async () => {
  const { api, made, openWaiting } = ports({ whole: async () => Promise.reject(new Problem("gone", 500)) });
  answers.set("Byleave asks", "Allow…");
  answers.set("allow this once", "Allow once");
  await askNatively(asked, made);
  expect(api.approve).not.toHaveBeenCalled();
  expect(openWaiting).toHaveBeenCalled();
});

test.each([
  ["many lines", `echo${"\n".repeat(300)}rm`],
  ["many blanks", `echo${" ".repeat(3900)}\nrm`.padEnd(3990, "\n")],
  ["what becomes longer when it is made visible", "\u200b".repeat(3900)],
])("%s do not push the end of a call out of a dialog's sight", async (_, text) => {
  const { api, made, openWaiting } = ports({ whole: async () => ({ approval_id: "a", text }) });
  answers.set("Byleave asks", "Allow…");
  answers.set("allow this once", "Allow once");
  await askNatively(asked, made);
  expect(api.approve).not.toHaveBeenCalled();
  expect(openWaiting).toHaveBeenCalled();
});

/** How the editor reads a label of a list: a picture, unless the dollar is escaped, and then without the backslash. */
function drawn(label: string): string {
  return label.replace(/(\\)?\$\(([A-Za-z0-9-]+(?:~[A-Za-z]+)?)\)/g, (whole, escaped) =>
    escaped ? whole.slice(1) : "<picture>",
  );
}

test.each(["$(check) approved", "\\$(check)", "$$(check)", "$(sync~spin)$(key)", "plain $ (text)"])(
  "a name of a project or a folder (%s) is text in a list, never a picture",
  (name) => {
    expect(drawn(listed(name))).toBe(name);
  },
);
