import { act, cleanup, fireEvent, screen } from "@testing-library/react";
import { describe, expect, it, vi } from "vitest";
import { settledWords } from "../src/cards/SettledLine";
import { isOff, open, press, user, wait, withoutRealTime } from "./cards_asking";
import { api, button, buttons, question } from "./cards_samples";

withoutRealTime();

describe("what a question shows", () => {
  it("says what will happen, why it asks, with what, and who asks", () => {
    const { container } = open({
      elsewhere: "Another conversation: Fix the\u202E build",
      question: question({
        description: "Run git commit -m hello\nLook twice.",
        tool_ids: ["a", "b"],
        network: true,
        findings: [
          {
            level: "HIGH",
            reason: "It sends things away.",
            rule: "commands.git.push",
            instead: "Use a branch.",
            always_asks: true,
          },
        ],
      }),
    });
    const said = container.textContent ?? "";
    expect(screen.getByRole("heading", { level: 2 }).textContent).toBe("Run git commit -m hello");
    expect(said).toContain("Medium risk");
    expect(container.querySelector(".card-warnings")?.textContent).toContain(
      "It sends things away. Safer: Use a branch.",
    );
    expect(container.querySelector(".card-details")?.textContent).toContain(
      "It sends things away. Rule commands.git.push, asks every time",
    );
    expect(said).toContain("Uses the network");
    // Before anything else of it: somebody else's question is not answered for the one on the screen.
    expect(container.querySelector("header")?.firstElementChild?.textContent).toBe(
      "Another conversation: Fix the\\u{202e} build · Asked by chat",
    );
    expect(container.querySelector(".card-countdown")?.textContent).toBe(
      "Expires in 5:00; nothing runs without your approval.",
    );
    expect(said).toContain("Your answer counts for 2 identical calls.");
    expect(container.querySelector(".card-warnings")?.textContent).toContain("Look twice.");
  });
  it("says how much is masked and shows it when asked", async () => {
    const whole = vi.fn(async () => ({ approval_id: "appr_1", text: "args: '--token' 'aB3xyz99'" }));
    const args = ["--token", "[masked:option, 8 characters]", "x=[masked:key, 1 character]"];
    const { container } = open({ api: api({ whole }), question: question({ tool_params: { command: "git", args } }) });
    expect(container.textContent).toContain("9 characters in 2 places masked: they look secret.");
    await press(button("Show them"));
    expect(whole).toHaveBeenCalledWith("appr_1", true);
    expect(container.textContent).toContain("aB3xyz99");
  });
  it("offers to show what is masked in a file that would run", async () => {
    const whole = vi.fn(async () => ({ approval_id: "appr_1", text: "run.py: TOKEN = aB3xyz99" }));
    const file = { path: "run.py", sha256: "e".repeat(64), text: "TOKEN = [masked:token, 8 characters]" };
    const { container } = open({ api: api({ whole }), question: question({ inspection: { files: [file] } }) });
    expect(container.textContent).toContain("8 characters in 1 place masked: they look secret.");
    await press(button("Show them"));
    expect(whole).toHaveBeenCalledWith("appr_1", true);
    expect(container.textContent).toContain("TOKEN = aB3xyz99");
  });
  it("leaves out of its words what has a place of its own", () => {
    const { container } = open({ question: question({ agent_id: null }) });
    expect(container.textContent?.split("It records changes.").length).toBe(2);
    expect(container.textContent).toContain("No network");
    expect(container.textContent).toContain("Asked by an agent");
    expect(container.querySelector(".card-whose")).toBeNull();
  });
  it("shows each argument in a box of its own, also one that is empty or blank", () => {
    const { container } = open({
      question: question({ tool_params: { command: "git", args: ["a b", "", "  ", " x", "c\u202Ed\n"], timeout: 5 } }),
    });
    expect([...container.querySelectorAll(".card-argv li")].map((each) => each.textContent)).toEqual([
      "git",
      "a b",
      "empty",
      "␣␣",
      "␣x",
      "c\\u{202e}d\\n",
    ]);
    expect(container.textContent).toContain("timeout5");
    expect(container.querySelector(".card-chips")?.textContent).toContain("up to 5 s");
  });
  it("shows what will run, with its digest and what is not known of it", () => {
    const file = {
      path: "run.py",
      sha256: "e".repeat(64),
      size: 12,
      text: "import os\n<b>x</b>\u202E",
      shortened: true,
    };
    const { container } = open({
      question: question({
        inspection: {
          files: [
            { ...file, modified_at: "2026-01-01T00:00:00.000Z" },
            { path: "made.py", sha256: "f".repeat(64), size: 5, text: "1", written_at: "2026-01-01T11:57:00.000Z" },
            { path: "gone.py", sha256: "missing" },
            { path: "empty.py", sha256: "f".repeat(64), size: 0 },
            { path: "bin", sha256: "f".repeat(64), size: 9 },
            { path: "old", role: "replaces", sha256: "f".repeat(64) },
          ],
          problem: "The machine said no.",
        },
      }),
    });
    const said = container.textContent ?? "";
    const details = container.querySelector(".card-details")?.textContent ?? "";
    expect(said).toContain("run.py 12 bytes · changed");
    expect(said).toContain("made.py 5 bytes · written by the agent 3 min ago");
    expect(said).toContain("<b>x</b>\\u{202e}");
    expect(said).toContain("Only its beginning is here.");
    expect(said).toContain("It is empty.");
    expect(said).toContain("Its content is not text.");
    expect(said).toContain("What this runs could not be checked: The machine said no.");
    // A file that is not there runs nothing: it is told under Details.
    expect(details).toContain("gone.pyIt is not there.");
    expect(said.replace(details, "")).not.toContain("gone.py");
    expect(details).toContain(`sha256 ${"e".repeat(64)}`);
    expect(details).toContain("File as it is now: old");
    expect(container.querySelector("b")).toBeNull();
  });
});

describe("time to answer", () => {
  it("never has more than its whole time, whatever the clocks say", () => {
    const { container } = open({ now: () => Date.parse("2026-01-01T11:59:57.000Z") });
    expect(container.querySelector(".card-left")?.textContent).toBe("Expires in 5:00");
  });
  it("counts down by the server's clock and is said aloud at 60 and 10 seconds only", async () => {
    const { container } = open();
    const aloud = () => container.querySelector(".card-countdown [role=status]")?.textContent;
    expect(container.querySelector(".card-left")?.textContent).toBe("Expires in 5:00");
    await wait(239_000);
    expect(aloud()).toBe("");
    await wait(1000);
    expect(aloud()).toBe("1 minute left to answer.");
    await wait(30_000);
    expect(container.querySelector("[data-soon]")).toBeTruthy();
    expect(aloud()).toBe("1 minute left to answer.");
    await wait(20_000);
    expect(aloud()).toBe("10 seconds left to answer.");
  });
  it("ends with the deadline: it says so and nothing can be answered", async () => {
    const approve = vi.fn();
    const reject = vi.fn();
    const { container } = open({ api: api({ approve, reject }) });
    await wait(300_500);
    expect(container.querySelector(".card-left")?.textContent).toBe("Time is up. Nothing ran.");
    await press(button("Allow once"));
    await press(button("Deny"));
    await press(document.querySelector<HTMLElement>(".card-more") as HTMLElement);
    expect(document.querySelector("[role=menu]")).toBeNull();
    expect([approve.mock.calls.length, reject.mock.calls.length]).toEqual([0, 0]);
  });
  it("is over at once when the deadline cannot be read", () => {
    const { container } = open({ question: question({ deadline: "never" }) });
    expect(container.textContent).toContain("Time is up");
  });
});

describe("presses that do not count", () => {
  it("takes no focus when it appears", () => {
    open();
    expect(document.activeElement).toBe(document.body);
  });
  it("ignores every press until it has stood still for a moment", async () => {
    const approve = vi.fn(async () => ({}));
    open({ api: api({ approve }) });
    expect(isOff("Allow once")).toBe(true);
    await press(button("Allow once"));
    await wait(500);
    await press(button("Allow once"));
    expect(approve).not.toHaveBeenCalled();
    await wait(150);
    expect(isOff("Allow once")).toBe(false);
    await press(button("Allow once"));
    expect(approve).toHaveBeenCalledTimes(1);
  });
  it("ignores a key that is held, and one that was pressed elsewhere", async () => {
    const approve = vi.fn(async () => ({}));
    open({ api: api({ approve }) });
    await wait(700);
    const allow = button("Allow once");
    allow.focus();
    // Held: the browser sends repeats, whose click is prevented.
    expect(fireEvent.keyDown(allow, { key: "Enter", repeat: true })).toBe(false);
    expect(fireEvent.keyDown(allow, { key: "x", repeat: true })).toBe(true);
    // Pressed in another field and still down while the focus is here.
    fireEvent.keyDown(document.body, { key: "Enter" });
    fireEvent.click(allow, { detail: 0 });
    expect(fireEvent.keyUp(allow, { key: " " })).toBe(false);
    expect(approve).not.toHaveBeenCalled();
    await user.keyboard("{Enter}");
    expect(approve).toHaveBeenCalledTimes(1);
  });
  it("takes a press without a key again once the window was left with one down", async () => {
    const approve = vi.fn(async () => ({}));
    open({ api: api({ approve }) });
    await wait(700);
    fireEvent.keyDown(document.body, { key: "Enter" });
    fireEvent.blur(window);
    // As a screen reader presses it.
    fireEvent.click(button("Allow once"), { detail: 0 });
    expect(approve).toHaveBeenCalledTimes(1);
  });
  it("ignores a click after it moved under a resting pointer, and takes one of a pointer that came", async () => {
    const approve = vi.fn(async () => ({}));
    open({ api: api({ approve }) });
    await wait(700);
    const allow = button("Allow once");
    const at = { screenX: 50, screenY: 60 };
    const pointer = (type: string, target: Element, where = at) =>
      fireEvent(target, Object.assign(new MouseEvent(type, { bubbles: true, ...where }), { pointerType: "mouse" }));
    pointer("pointermove", document.body);
    pointer("pointerover", allow);
    fireEvent.click(allow, { detail: 1 });
    expect(approve).not.toHaveBeenCalled();
    await wait(700);
    pointer("pointerout", allow);
    pointer("pointerover", allow, { screenX: 51, screenY: 60 });
    fireEvent.click(allow, { detail: 1 });
    expect(approve).toHaveBeenCalledTimes(1);
  });
  it("sends one answer for two presses", async () => {
    const approve = vi.fn(() => new Promise(() => {}));
    open({ api: api({ approve }) });
    await wait(700);
    const allow = button("Allow once");
    act(() => {
      allow.click();
      allow.click();
    });
    expect(approve).toHaveBeenCalledTimes(1);
    expect(button("Sending…").getAttribute("aria-disabled")).toBe("true");
    expect(isOff("Deny")).toBe(true);
  });
});

describe("a question that is settled", () => {
  const base = { question: question(), reason: null, here: false } as const;

  it("says by whom and where", () => {
    expect(settledWords({ ...base, status: "approved", by: "person:alice", here: true })).toBe("Allowed by you here.");
    expect(settledWords({ ...base, status: "approved", by: "person:alice" })).toBe(
      "Allowed by you, in the terminal or elsewhere.",
    );
    expect(settledWords({ ...base, status: "rejected", by: "person:bob" })).toBe(
      "Denied by bob, in the terminal or elsewhere.",
    );
    expect(settledWords({ ...base, status: "rejected", by: "person:bob", from: "page" })).toBe(
      "Denied by bob, in a browser.",
    );
    expect(settledWords({ ...base, status: "approved", by: "grant:g1" })).toBe("Allowed by grant g1.");
    expect(settledWords({ ...base, status: "approved", by: null })).toBe("Allowed, elsewhere.");
    expect(settledWords({ ...base, status: "approved", by: "server" })).toBe("Allowed by server, elsewhere.");
    expect(settledWords({ ...base, status: "timeout", by: null })).toBe("Nobody answered in time. Nothing ran.");
    expect(settledWords({ ...base, status: "cancelled", by: null })).toContain("Withdrawn");
  });
  it("stays where it was with its reason, and has no buttons to answer", () => {
    const settled = { ...base, status: "rejected", by: "person:bob", reason: "no\u202E" } as const;
    const { container } = open({ settled });
    expect(container.textContent).toContain("Reason: no\\u{202e}");
    expect(buttons(/Allow|Deny/).length).toBe(0);
    expect(container.querySelector(".card-countdown")).toBeNull();
  });
  it("takes the keyboard along when it was in what went away, and leaves a pointer's alone", async () => {
    const settled = { ...base, status: "approved", by: "person:alice", here: true } as const;
    const first = open({ api: api({ approve: vi.fn(async () => ({})) }) });
    await wait(700);
    button("Allow once").focus();
    await user.keyboard("{Enter}");
    first.again({ settled });
    expect((document.activeElement as HTMLElement).className).toBe("card-settled");
    cleanup();
    const second = open({ api: api({ approve: vi.fn(async () => ({})) }) });
    await wait(700);
    await press(button("Allow once"));
    second.again({ settled });
    expect(document.activeElement).toBe(document.body);
  });
});
