import { screen } from "@testing-library/react";
import { describe, expect, it, vi } from "vitest";
import { Problem } from "../src/api";
import { changed } from "../src/cards/EditPanel";
import { settledWords } from "../src/cards/SettledLine";
import type { Question } from "../src/state/model";
import { more, open, press, user, wait, withoutRealTime } from "./cards_asking";
import { api, button, host, question, writeChange } from "./cards_samples";

withoutRealTime();

const DIGEST = "d".repeat(64);
const call = (parts: object) => ({
  approval_id: "appr_1",
  digest: DIGEST,
  tool_name: "execute_command",
  content: null,
  line: null,
  timeout: null,
  query: null,
  masked: false,
  ...parts,
});
const write = (more: Partial<Question> = {}) =>
  question({ tool_name: "write_file", tool_params: { path: "a.txt", content: "one\n", mode: "write" }, ...more });
const dialog = () => document.querySelector<HTMLElement>(".ui-sheet");
const field = () => document.querySelector<HTMLTextAreaElement>(".card-edit") as HTMLTextAreaElement;
const answered = { approval_id: "appr_2", tool_ids: ["exec_1"], message: "" };

async function editing(functions: object, asked = question()) {
  open({ question: asked, api: api({ change: async () => writeChange(), ...functions }) });
  await wait(700);
  await press(document.querySelector<HTMLElement>(".card-pencil") as HTMLElement);
  await wait(50);
}

async function type(text: string) {
  await user.clear(field());
  await user.type(field(), text);
}

describe("editing before allowing", () => {
  it("sends the line and the time limit that were changed, with the digest and the calls that were shown", async () => {
    const edit = vi.fn(async () => answered);
    const editable = vi.fn(async () => call({ line: "git commit -m hello", timeout: 30 }));
    await editing({ editable, edit }, question({ tool_ids: ["exec_1", "exec_2"] }));
    expect(editable).toHaveBeenCalledWith("appr_1", false);
    expect(field().value).toBe("git commit -m hello");
    expect(document.activeElement).toBe(field());
    await press(button("Review the change"));
    expect(edit).not.toHaveBeenCalled();
    await type("git commit -m bye");
    await user.clear(screen.getByLabelText("Time limit in seconds"));
    await user.type(screen.getByLabelText("Time limit in seconds"), "600");
    expect(screen.getByText("Enter a number from 1 to 300.")).toBeTruthy();
    await press(button("Review the change"));
    expect(edit).not.toHaveBeenCalled();
    await user.clear(screen.getByLabelText("Time limit in seconds"));
    await user.type(screen.getByLabelText("Time limit in seconds"), "60");
    await press(button("Review the change"));
    expect(edit).toHaveBeenCalledWith("proj_1", "appr_1", {
      digest: DIGEST,
      calls: 2,
      line: "git commit -m bye",
      timeout: 60,
    });
    await wait(50);
    expect(dialog()).toBeNull();
  });

  it("says at once why a change is refused, and keeps the text", async () => {
    const edit = vi.fn(async () => {
      throw new Problem("Changed like this it is refused: Command not allowed: rm.", 400, "It waits as it was.");
    });
    await editing({ editable: async () => call({ line: "git commit" }), edit });
    await type("rm -rf x");
    await user.keyboard("{Control>}{Enter}{/Control}");
    await wait(50);
    expect(dialog()?.querySelector("[role=alert]")?.textContent).toContain("Command not allowed: rm.");
    expect(field().value).toBe("rm -rf x");
  });

  it("says why nobody can be asked about the changed call", async () => {
    const edit = async () => ({ ...answered, approval_id: null, message: "Nobody can be asked about it: too long." });
    await editing({ editable: async () => call({ line: "git commit" }), edit });
    await type("git status");
    await press(button("Review the change"));
    expect(dialog()?.textContent).toContain("Nobody can be asked about it: too long.");
  });

  it("shows nothing masked before the person asks for it, and sends no mask", async () => {
    const editable = vi.fn(async (_: string, reveal: boolean) =>
      call({ tool_name: "write_file", content: reveal ? "token = real\n" : null, masked: true }),
    );
    await editing({ editable, edit: vi.fn() }, write());
    expect(document.querySelector(".card-edit")).toBeNull();
    await press(button("Show and edit"));
    await wait(50);
    expect(editable).toHaveBeenLastCalledWith("appr_1", true);
    expect(field().value).toBe("token = real\n");
  });

  it("edits no other call than the one that is shown", async () => {
    await editing({ editable: async () => call({ line: "rm", digest: "e".repeat(64) }), edit: vi.fn() });
    expect(dialog()?.textContent).toContain("What came belongs to another call.");
    expect(document.querySelector(".card-edit")).toBeNull();
  });

  it("has nothing to edit in a call that only reads", async () => {
    open({ question: question({ tool_name: "read_file", tool_params: { path: ".env" } }) });
    expect(document.querySelector(".card-pencil")).toBeNull();
  });

  it.each([
    ["one\r\ntwo\r\n", "one\nthree\n", "one\r\nthree\r\n"],
    ["one\r\ntwo\n", "one\nthree\n", "one\nthree\n"],
    ["one\ntwo", "one\ntwo\n", "one\ntwo\n"],
  ])("keeps the line ends of %j", (before, typed, sent) => {
    const found = changed(write(), call({ tool_name: "write_file", content: before }), typed, "");
    expect(found?.content).toBe(sent);
  });

  it("takes line ends that the field alone changed for no change", () => {
    const given = call({ tool_name: "write_file", content: "one\r\ntwo\n" });
    expect(changed(write(), given, "one\ntwo\n", "")).toBeNull();
    expect(changed(question(), call({ line: "ls", timeout: 30 }), "ls", "30")).toBeNull();
    expect(changed(write(), call({}), "", "")).toBeNull();
  });
});

describe("a call that was changed", () => {
  const edit = (asked: Record<string, unknown>) => ({ edited_by: "person:alice", asked });

  it("shows the command as asked and as changed, and says whose change it is once", async () => {
    const params = { command: "npm", args: ["run", "unit"], timeout: 60 };
    const asked = edit({ command: "npm", args: ["test"], timeout: 30 });
    const description = "Run npm run unit · up to 1 min\nChanged by alice. The agent asked: Run npm test · up to 30 s";
    open({ question: question({ tool_params: params, edit: asked, description }) });
    const shown = document.querySelector(".card-edits")?.textContent ?? "";
    expect(shown).toContain("npm test · up to 30 s");
    expect(shown).toContain("npm run unit · up to 1 min");
    expect(document.querySelector(".card-asker")?.textContent).toBe("Asked by chat · changed by you");
    expect(document.body.textContent).not.toContain("The agent asked: Run");
  });

  it("shows what became of the content, beside what becomes of the file", async () => {
    const change = writeChange({ asked: "one\nasked\n" });
    open({ question: write({ edit: edit({ content: "one\nasked\n" }) }), api: api({ change: async () => change }) });
    await wait(50);
    const changed_ = document.querySelector(".card-edited")?.textContent ?? "";
    expect(changed_).toContain("asked");
    expect(changed_).toContain("three");
    expect(document.body.textContent).toContain("The file as it would change");
  });

  it("says of content that cannot be compared that it is not the agent's", async () => {
    open({
      question: write({ edit: edit({ content: "x" }) }),
      api: api({ change: async () => writeChange({ asked: null }) }),
      host: host(),
    });
    await wait(50);
    expect(document.querySelector(".card-edited")?.textContent).toContain("The content is not the agent's.");
  });

  it("says of the question before that it was changed, not withdrawn", () => {
    const settled = { question: question(), status: "cancelled", reason: null, here: false } as const;
    expect(settledWords({ ...settled, by: "person:alice" })).toBe("Changed by you. It is asked again.");
    expect(settledWords({ ...settled, by: null })).toBe("Withdrawn by the agent.");
  });
});

describe("allowing for the project", () => {
  const exact = {
    rule: { tool: "execute_command", command: ["npm", "test"], exact: true, paths: [], files: {} },
    text: "Run exactly npm test.",
    widest: "This very line.",
  };
  const preview = async (_: string, rule: object) => ({
    rule,
    text: exact.text,
    widest: exact.widest,
    problem: null,
    looked_at: 1,
    covered: 1,
    refused: [],
    examples: [],
    sentence: "It would have covered 1 of your last 1 call.",
  });

  it("saves exactly the rule that was chosen, for a week, and names the agent", async () => {
    const approve = vi.fn(async () => ({}));
    open({ question: question({ suggestions: [exact] }), api: api({ approve, previewGrant: preview }) });
    await wait(700);
    await more("Always allow exactly this in this project…");
    await wait(700);
    expect(dialog()?.textContent).toContain("Only for the agent chat, in all its conversations of this project");
    expect(document.querySelector(".card-rule")).toBeNull();
    await press(button("Always allow this"));
    expect(approve).toHaveBeenCalledWith("proj_1", "appr_1", {
      decision: "approved",
      digest: DIGEST,
      calls: 1,
      scope: "project",
      terms: { rule: exact.rule, expires_in_seconds: 7 * 24 * 3600, max_uses: null },
    });
  });

  it("is not offered where no exact line may be granted", async () => {
    open();
    await wait(700);
    await press(document.querySelector<HTMLElement>(".card-more") as HTMLElement);
    await wait(100);
    expect(document.body.textContent).not.toContain("Always allow exactly this");
  });
});
