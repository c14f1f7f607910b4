import type { Inspection } from "@protocol";
import { act, cleanup, fireEvent, screen } from "@testing-library/react";
import { describe, expect, it, vi } from "vitest";
import { Problem } from "../src/api";
import { promise } from "../src/cards/asked";
import { WARNING } from "../src/cards/EverythingPanel";
import { choose, isOff, items, more, open, press, user, wait, withoutRealTime } from "./cards_asking";
import { api, button, buttons, question, writeChange } from "./cards_samples";

withoutRealTime();

describe("answers", () => {
  it("allows once what was shown, by its digest", async () => {
    const approve = vi.fn(async () => ({}));
    const { props } = open({ api: api({ approve }) });
    await wait(700);
    await press(button("Allow once"));
    expect(approve).toHaveBeenCalledWith("proj_1", "appr_1", {
      decision: "approved",
      digest: "d".repeat(64),
      calls: 1,
    });
    expect(props.onDecided).toHaveBeenCalledWith({
      question: props.question,
      status: "approved",
      by: "person:alice",
      reason: null,
      here: true,
    });
  });
  it("allows as many identical calls as were shown", async () => {
    const approve = vi.fn(async () => ({}));
    open({ api: api({ approve }), question: question({ tool_ids: ["exec_1", "exec_2"] }) });
    await wait(700);
    await press(button("Allow once"));
    expect(approve).toHaveBeenCalledWith("proj_1", "appr_1", expect.objectContaining({ calls: 2 }));
  });
  it("denies with a reason by Enter in its field, and without one by the button", async () => {
    const reject = vi.fn(async () => ({}));
    const first = open({ api: api({ reject }) });
    await wait(700);
    expect(screen.queryByRole("textbox")).toBeNull();
    await more("Deny with a reason…");
    expect(document.activeElement).toBe(screen.getByRole("textbox"));
    await wait(700);
    await user.type(screen.getByRole("textbox"), "  use tabs ");
    fireEvent.keyDown(screen.getByRole("textbox"), { key: "Enter", repeat: true });
    expect(reject).not.toHaveBeenCalled();
    await user.keyboard("{Enter}");
    expect(reject).toHaveBeenCalledWith("proj_1", "appr_1", "use tabs");
    expect(first.props.onDecided).toHaveBeenCalledWith(
      expect.objectContaining({ status: "rejected", reason: "use tabs" }),
    );
    cleanup();
    open({ api: api({ reject }) });
    await wait(700);
    await press(button("Deny"));
    expect(reject).toHaveBeenLastCalledWith("proj_1", "appr_1", null);
  });
  it("keeps the question when the server cannot be reached, and lets one try again", async () => {
    const approve = vi
      .fn()
      .mockRejectedValueOnce(new Problem("The server cannot be reached.", 0, "See whether it runs."))
      .mockRejectedValueOnce(new Problem("Wrong.", 400))
      .mockRejectedValueOnce(new Error("odd"))
      .mockRejectedValueOnce("odder")
      .mockResolvedValueOnce({});
    const { props } = open({ api: api({ approve }) });
    await wait(700);
    const alert = () => document.querySelector("[role=alert]")?.textContent;
    await press(button("Allow once"));
    expect(alert()).toBe("The server cannot be reached. See whether it runs.");
    expect(props.onDecided).not.toHaveBeenCalled();
    await press(button("Allow once"));
    expect(alert()).toBe("Wrong. ");
    await press(button("Allow once"));
    expect(alert()).toBe("odd Nothing was decided. Try again.");
    await press(button("Allow once"));
    expect(alert()).toContain("The answer could not be sent.");
    await press(button("Allow once"));
    expect(props.onDecided).toHaveBeenCalledTimes(1);
  });
  it("says who was first when an answer came second", async () => {
    const cases = [
      ["This approval was rejected already, by bob.", "rejected", "person:bob"],
      ["This approval was approved already, by grant:g1.", "approved", "grant:g1"],
      ["This approval ran out of time; nothing was run.", "timeout", null],
    ] as const;
    for (const [message, state, by] of cases) {
      const approve = vi.fn().mockRejectedValue(new Problem(message, 409, null, state));
      const { props, again, container } = open({ api: api({ approve }) });
      await wait(700);
      await press(button("Allow once"));
      const settled = { question: props.question, status: state, by, reason: null, here: false, second: message };
      expect(props.onDecided).toHaveBeenCalledWith(settled);
      expect(isOff("Allow once")).toBe(true);
      again({ settled });
      expect(container.textContent).toContain(`Your answer came second: ${message}`);
      cleanup();
    }
  });
  it("is this person's own when the same answer had arrived and nobody said so", async () => {
    const told = "This approval was approved already, by alice.";
    const approve = vi.fn().mockRejectedValue(new Problem(told, 409, null, "approved"));
    const { props } = open({ api: api({ approve }) });
    await wait(700);
    await press(button("Allow once"));
    const settled = { question: props.question, status: "approved", by: "person:alice", reason: null, here: true };
    expect(props.onDecided).toHaveBeenCalledWith(settled);
  });
  it("keeps waiting when what waits is another call than the one shown", async () => {
    const approve = vi.fn().mockRejectedValue(new Problem("Not what was shown.", 409, "Look again.", "pending"));
    const { props } = open({ api: api({ approve }) });
    await wait(700);
    await press(button("Allow once"));
    expect(document.querySelector("[role=alert]")?.textContent).toBe("Not what was shown. Look again.");
    expect(props.onDecided).not.toHaveBeenCalled();
  });
});

describe("a call with a warning that its level does not say", () => {
  it("takes a second press too, and sends the reader back to the warning", async () => {
    const approve = vi.fn(async () => ({}));
    const link = question({ description: "Write a.txt\nBehind a link: what is written is 'README.md'." });
    const { container } = open({ question: link, api: api({ approve }) });
    await wait(700);
    await press(button("Allow once…"));
    expect(approve).not.toHaveBeenCalled();
    expect(container.textContent).toContain("Read the warning first.");
    await wait(700);
    await press(button("Yes, allow once"));
    expect(approve).toHaveBeenCalledOnce();
  });
});

describe("a HIGH call", () => {
  const high = question({ risk_level: "HIGH", network: true });

  it("takes a second press, on another button that says what will happen", async () => {
    const approve = vi.fn(async () => ({}));
    const { container } = open({ question: high, api: api({ approve }) });
    await wait(700);
    await user.dblClick(button("Allow once…"));
    expect(approve).not.toHaveBeenCalled();
    expect(container.textContent).toContain("High risk. Runs immediately, with the network. Run git commit -m hello");
    await press(button("Yes, allow once"));
    expect(approve).not.toHaveBeenCalled();
    await wait(700);
    await press(button("Yes, allow once"));
    expect(approve).toHaveBeenCalledWith("proj_1", "appr_1", { decision: "approved", digest: high.digest, calls: 1 });
  });
  it("forgets the first press after ten seconds, on going back, and when the person turns away", async () => {
    open({ question: { ...high, network: false } });
    await wait(700);
    await press(button("Allow once…"));
    await wait(9000);
    expect(buttons("Yes, allow once").length).toBe(1);
    await wait(1100);
    expect(buttons("Yes, allow once").length).toBe(0);
    await press(button("Allow once…"));
    await press(button("Back"));
    expect(buttons("Yes, allow once").length).toBe(0);
    await wait(700);
    await press(button("Allow once…"));
    await user.tab();
    expect(buttons("Yes, allow once").length).toBe(1);
    act(() => (document.activeElement as HTMLElement).blur());
    expect(buttons("Yes, allow once").length).toBe(0);
  });
});

describe("allowing similar calls", () => {
  const preview = (more = {}) => ({
    rule: { tool: "execute_command" },
    text: "git commit with anything",
    widest: "any git commit",
    problem: null,
    looked_at: 200,
    covered: 2,
    refused: [],
    examples: [],
    sentence: "It would have covered 2 of your last 200 calls.",
    ...more,
  });

  it("chooses nothing by itself, shows what a rule would have covered, and saves exactly that rule", async () => {
    const approve = vi.fn(async () => ({}));
    const previewGrant = vi.fn(async () => preview());
    open({ api: api({ approve, previewGrant }) });
    const container = document.body;
    await wait(700);
    await more("Allow similar…");
    await wait(700);
    expect(container.querySelectorAll("input[type=radio]:checked").length).toBe(0);
    expect(isOff("Allow this and similar")).toBe(true);
    await press(screen.getAllByRole("radio")[0] as HTMLElement);
    expect(previewGrant).toHaveBeenCalledWith("proj_1", {
      tool: "execute_command",
      command: ["git", "commit"],
      exact: false,
    });
    expect(container.textContent).toContain("It would have covered 2 of your last 200 calls.");
    await choose("For", "30 minutes");
    await user.type(screen.getByLabelText("Number of times"), "3");
    await press(button("Allow this and similar"));
    expect(approve).toHaveBeenCalledWith("proj_1", "appr_1", {
      decision: "approved",
      calls: 1,
      digest: "d".repeat(64),
      scope: "class",
      terms: {
        rule: { tool: "execute_command", command: ["git", "commit"], exact: false },
        expires_in_seconds: 1800,
        max_uses: 3,
      },
    });
  });
  it("has the server read an edited rule before it can be saved, and shows what was refused once", async () => {
    const approve = vi.fn(async () => ({}));
    const call = {
      tool_id: "t1",
      description: "Run git push",
      risk_level: "MEDIUM",
      status: "rejected",
      created_at: "",
    };
    const previewGrant = vi
      .fn()
      .mockResolvedValueOnce(preview())
      .mockResolvedValueOnce(
        preview({
          text: "git exactly",
          refused: [call],
          examples: [{ ...call, tool_id: "t2" }],
          sentence: "Among them 1 you refused.",
        }),
      )
      .mockResolvedValueOnce(preview({ problem: "It is too wide." }))
      .mockRejectedValueOnce(new Problem("No.", 400));
    open({ api: api({ approve, previewGrant }) });
    const container = document.body;
    await wait(700);
    await more("Allow similar…");
    await press(screen.getAllByRole("radio")[0] as HTMLElement);
    const rule = screen.getByLabelText(/^Rule/);
    const edit = (value: string) => fireEvent.change(rule, { target: { value } });
    edit("git 'two words'");
    expect(isOff("Allow this and similar")).toBe(true);
    await wait(350);
    expect(previewGrant).toHaveBeenLastCalledWith("proj_1", {
      tool: "execute_command",
      command: ["git", "two words"],
      exact: true,
    });
    expect(container.textContent).toContain("Changed: git exactly");
    expect(container.textContent).toContain("You denied: Run git push");
    expect(container.textContent).toContain("Calls it would have covered");
    await wait(700);
    expect(isOff("Allow this and similar")).toBe(false);
    edit("git ...");
    await wait(350);
    expect(container.textContent).toContain("This cannot be allowed: It is too wide.");
    expect(isOff("Allow this and similar")).toBe(true);
    edit("git x");
    await wait(350);
    expect(container.textContent).toContain("No.");
    for (const [line, problem] of [
      ["git 'open", "A quotation mark is not closed."],
      ["git a\u202Eb", "The line holds characters that cannot be seen."],
      ["  ", "A rule needs at least one word."],
    ] as const) {
      edit(line);
      await wait(350);
      expect(container.textContent).toContain(problem);
    }
    expect(previewGrant).toHaveBeenCalledTimes(4);
    await user.type(rule, "{Enter}");
    expect(approve).not.toHaveBeenCalled();
  });
  it("counts only the answer to the last question", async () => {
    const answers: ((found: unknown) => void)[] = [];
    const previewGrant = vi.fn(() => new Promise((done) => answers.push(done)));
    open({ api: api({ previewGrant }) });
    const container = document.body;
    await wait(700);
    await more("Allow similar…");
    await press(screen.getAllByRole("radio")[0] as HTMLElement);
    await press(screen.getAllByRole("radio")[1] as HTMLElement);
    expect(container.textContent).toContain("Checking your last calls…");
    await act(async () => answers[1]?.(preview({ sentence: "second" })));
    await act(async () => answers[0]?.(preview({ sentence: "first" })));
    expect(container.textContent).toContain("second");
    expect(container.textContent).not.toContain("first");
  });
  it("opens as a dialog, and goes back to what opened it without deciding anything", async () => {
    const approve = vi.fn(async () => ({}));
    open({ api: api({ approve }) });
    for (const [opener, words] of [
      ["Allow similar…", "Allow similar calls"],
      ["Allow everything in this conversation…", "Allow everything in this conversation"],
    ] as const) {
      await wait(700);
      await more(opener);
      const dialog = screen.getByRole("dialog");
      expect(dialog.querySelector("h2")?.textContent).toBe(words);
      // No button gets the focus by itself.
      expect(document.activeElement).toBe(dialog.querySelector("h2"));
      await press(button("Back"));
      await wait(100);
      expect(screen.queryByRole("dialog")).toBeNull();
      expect(document.activeElement?.className).toContain("card-more");
      // What had the place of another a moment ago takes no press.
      expect(isOff("Allow once")).toBe(true);
    }
    expect(approve).not.toHaveBeenCalled();
  });
  it("takes only a sensible number of uses", async () => {
    open({ api: api({ previewGrant: vi.fn(async () => preview()) }) });
    const container = document.body;
    await wait(700);
    await more("Allow similar…");
    await press(screen.getAllByRole("radio")[1] as HTMLElement);
    await wait(700);
    for (const [typed, off] of [
      ["0", true],
      ["1e3", true],
      ["10001", true],
      ["10000", false],
      ["", false],
    ] as const) {
      fireEvent.change(screen.getByLabelText("Number of times"), { target: { value: typed } });
      expect(isOff("Allow this and similar")).toBe(off);
    }
    expect(container.textContent).not.toContain("Enter a number");
  });
  it("edits patterns of paths, and shows no line for a rule that has none", async () => {
    const previewGrant = vi.fn(async () => preview());
    const suggestions = [
      { rule: { tool: "write_file", paths: ["src/**", "a b"] }, text: "writes below src", widest: "all of src" },
      { rule: { tool: "search_web" }, text: "all searches", widest: "any" },
    ];
    open({ question: question({ suggestions }), api: api({ previewGrant }) });
    await wait(700);
    await more("Allow similar…");
    await press(screen.getAllByRole("radio")[0] as HTMLElement);
    const rule = screen.getByLabelText<HTMLInputElement>(/^Rule/);
    expect(rule.value).toBe("src/** 'a b'");
    fireEvent.change(rule, { target: { value: 'src/*"x y" b' } });
    await wait(350);
    expect(previewGrant).toHaveBeenLastCalledWith("proj_1", { tool: "write_file", paths: ["src/*x y", "b"] });
    await press(screen.getAllByRole("radio")[1] as HTMLElement);
    expect(screen.queryByLabelText(/^Rule/)).toBeNull();
    expect(previewGrant).toHaveBeenLastCalledWith("proj_1", { tool: "search_web" });
  });
  it("is not offered without suggestions, without a session, or for what always asks", async () => {
    const finding = { level: "MEDIUM", reason: "r", rule: "x", instead: null, always_asks: true } as const;
    for (const given of [
      { suggestions: [] },
      { session_id: null },
      { findings: [finding] },
      { risk_level: "HIGH" as const },
    ]) {
      open({ question: question(given) });
      await wait(700);
      await press(document.querySelector<HTMLElement>(".card-more") as HTMLElement);
      await wait(100);
      const everything = "session_id" in given ? [] : ["Allow everything in this conversation…"];
      expect(items().map((each) => each.textContent)).toEqual([...everything, "Deny with a reason…"]);
      cleanup();
    }
  });
});

describe("allowing everything", () => {
  it("needs the warning to be read", async () => {
    const approve = vi.fn(async () => ({}));
    open({ api: api({ approve }) });
    await wait(700);
    await more("Allow everything in this conversation…");
    expect(screen.getByRole("dialog").textContent).toContain(WARNING);
    await wait(700);
    await press(button("Allow everything"));
    expect(approve).not.toHaveBeenCalled();
    await press(screen.getByRole("checkbox"));
    await choose("For", "2 hours");
    await press(button("Allow everything"));
    expect(approve).toHaveBeenCalledWith("proj_1", "appr_1", {
      decision: "approved",
      calls: 1,
      digest: "d".repeat(64),
      scope: "session",
      terms: { warned: true, expires_in_seconds: 7200 },
    });
  });
});

describe("a write that waits", () => {
  const write = question({
    tool_name: "write_file",
    tool_params: { path: "a.txt", content: "one\nthree\n" },
    description: "Write a.txt",
    inspection: { files: [{ path: "a.txt", role: "replaces", sha256: "a".repeat(64), size: 8 }] },
  });

  it("shows the difference against the file as it is, and locks the buttons while that appears", async () => {
    let give: (change: unknown) => void = () => {};
    const change = vi.fn(() => new Promise((done) => (give = done)));
    const { container } = open({ question: write, api: api({ change }) });
    expect(container.textContent).toContain("Comparing with your file…");
    await wait(700);
    expect(isOff("Allow once")).toBe(false);
    await act(async () => give(writeChange()));
    expect(isOff("Allow once")).toBe(true);
    expect(container.querySelector(".card-diff")?.textContent).toContain("removed: two");
    expect(container.querySelector(".card-details")?.textContent).toMatch(
      /Compared with the file at .*\. If it changes before this runs, nothing is written\./,
    );
    expect(container.textContent).toContain("shown above");
  });
  it("says each thing once, and knows whether there is a file", async () => {
    const missing: Inspection = { files: [{ path: "a.txt", role: "replaces", sha256: "missing" }] };
    const shown = async (more: Partial<typeof write>, answer: unknown) => {
      cleanup();
      const description = "Write a.txt\nBehind a link: what is written is 'c'.";
      const change = answer instanceof Error ? vi.fn().mockRejectedValue(answer) : async () => answer;
      const { container } = open({ question: { ...write, description, ...more }, api: api({ change }) });
      await wait(700);
      return container;
    };
    const old = await shown({ risk_level: "HIGH" }, writeChange());
    expect(old.querySelector("h2")?.textContent).toBe("Replace a.txt");
    expect(old.querySelector(".card-chips")?.textContent).toContain("1 line added, 1 line removed");
    // A warning is seen before the difference, and everything else is under Details.
    const parts = [...(old.querySelector(".card-question-body")?.children ?? [])].map((each) => each.className);
    expect(parts).toEqual(["card-warnings", "card-diff", "card-details"]);
    expect(old.querySelector(".card-warnings")?.textContent).toContain("Behind a link");
    expect(old.querySelector(".card-details")?.textContent).toContain("Raw parameters");
    expect(old.textContent).not.toContain("network");
    await press(button("Allow once…"));
    expect(old.querySelector(".card-armed")?.textContent).toContain("High risk. Written immediately. Replace a.txt");
    const fresh = await shown({ inspection: missing }, writeChange({ before_sha256: "missing" }));
    expect(fresh.querySelector("h2")?.textContent).toBe("Create a.txt");
    // What is not known is not left out.
    for (const answer of [writeChange({ before_sha256: null }), new Error("gone")]) {
      const unknown = await shown({ findings: [], inspection: null }, answer);
      expect(unknown.querySelector("h2")?.textContent).toBe("Write a.txt");
    }
    const more = await shown({ tool_params: { ...write.tool_params, owner: "root" } }, writeChange());
    expect(more.querySelector(".card-question-body > .card-params")?.textContent).toBe("ownerroot");
    const appends = await shown({ tool_params: { ...write.tool_params, mode: "append" } }, writeChange());
    expect(appends.querySelector("h2")?.textContent).toBe("Append to a.txt");
  });
  it("falls back to all of the content when there is no difference to be had", async () => {
    const change = vi.fn().mockRejectedValue(new Problem("No machine is connected.", 503, "Connect one."));
    const { container } = open({ question: write, api: api({ change }) });
    await wait(0);
    expect(container.textContent).toContain("The difference cannot be shown: No machine is connected. Connect one.");
    expect(container.querySelector("pre")?.textContent).toBe("one\nthree\n");
  });
  it("never shows the difference of another call", async () => {
    const { container } = open({ question: write, api: api({ change: async () => writeChange({ digest: "x" }) }) });
    await wait(0);
    expect(container.querySelector(".card-diff")).toBeNull();
    expect(container.textContent).toContain("belongs to another call");
  });
  it("loads all of a content that was shortened, and says when that fails", async () => {
    const whole = vi.fn().mockRejectedValueOnce(new Error("gone")).mockResolvedValueOnce({ text: "all of it" });
    const change = { path: "a.txt", kind: "change", before: "x", after: null, note: "It is too large." } as const;
    const long = { ...write, tool_params: { path: "a.txt", content: "one …", content_size: 99_999 } };
    const { container } = open({ question: long, api: api({ change: async () => writeChange({ change }), whole }) });
    await wait(700);
    expect(container.textContent).toContain("It is too large.");
    await press(button("Show all of it"));
    expect(container.textContent).toContain("gone");
    await press(button("Show all of it"));
    expect(container.textContent).toContain("all of it");
    expect(buttons("Show all of it").length).toBe(0);
  });
  it("says when the question does not hold the content", async () => {
    const bare = { ...write, tool_params: { path: "a.txt" } };
    const { container } = open({ question: bare, api: api({ change: vi.fn().mockRejectedValue("x") }) });
    await wait(0);
    expect(container.textContent).toContain("It did not work.");
    expect(container.textContent).toContain("It is not here yet.");
  });
  it("does nothing with a difference that comes when the card is gone", async () => {
    let give: (change: unknown) => void = () => {};
    const { unmount } = open({ question: write, api: api({ change: () => new Promise((done) => (give = done)) }) });
    unmount();
    await act(async () => give(writeChange()));
    expect(document.body.textContent).toBe("");
  });
  it("shows what would be written where no machine has looked", async () => {
    const note = "No machine has looked at the file.";
    const unseen = { ...write, description: `Write a.txt\n${note}`, inspection: null };
    const answer = writeChange({
      before_sha256: null,
      change: { path: "a.txt", kind: "change", after: "one\nthree\n" },
    });
    const { container } = open({ question: unseen, api: api({ change: async () => answer }) });
    await wait(700);
    expect(container.textContent?.split(note).length).toBe(2);
    expect(container.querySelector(".card-warnings")?.textContent).toBe(note);
    expect(container.querySelector(".card-diff")).toBeNull();
    expect(container.querySelector(".card-question-body")?.textContent).toContain("Content to writeone\nthree");
  });
  it("says what the answer is bound to", () => {
    const files = (path: string, role: "runs" | "replaces", sha256: string): Inspection => ({
      files: [{ path, role, sha256 }],
    });
    expect(promise(question({ inspection: null }))).toBeNull();
    expect(promise({ ...write, inspection: files("a.txt", "replaces", "missing") })).toMatch(
      /^New file: there was none at .*\. Cancelled if it appears first\.$/,
    );
    expect(promise(question({ inspection: files("x.py", "runs", "a".repeat(64)) }))).toMatch(
      /^Compared with the files at .*\. If one changes first, nothing runs\.$/,
    );
  });
});
