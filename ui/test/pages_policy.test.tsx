// The rules: the check says exactly what would be handed over before it is asked, the answer in the order people ask, and
// the files that are in force.

import type { Finding } from "@protocol";
import { cleanup, screen, within } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { afterEach, describe, expect, it } from "vitest";
import { checkAnswer, choose, expectAccessible, FakeHost, refused, showPage, TOOLS, told, write } from "./pages_house";

afterEach(cleanup);

const POLICY = { page: "policy" } as const;
const CHECK = "/my/projects/proj_1/check";
const RULES = "/my/projects/proj_1/policy";
const CATALOGUE = "/my/projects/proj_1/tools/available";

const layer = (part: object) => ({
  layer: "project",
  source: ".byleave/policy.toml",
  text: "[[rule]]\n",
  trusted: true,
  client_id: null,
  ...part,
});
const houseWith = (answer: object = checkAnswer(), layers: object[] = [], widest_mode = "full") =>
  new FakeHost()
    .on("GET", CATALOGUE, { tools: TOOLS, total_count: TOOLS.length })
    .on("GET", RULES, { layers, widest_mode })
    .on("POST", CHECK, answer);
const line = () => screen.getByLabelText<HTMLInputElement>("Command line");
const button = () => screen.getByRole<HTMLButtonElement>("button", { name: "Check" });
const bodies = (host: FakeHost) => host.of(CHECK).map((asked) => asked.body);

describe("a command", () => {
  it("is shown word by word before it is checked", async () => {
    const host = houseWith();
    const { container } = await showPage(POLICY, host);
    expect(button().disabled).toBe(true);
    await write(line(), 'git commit -m "two words" ""');
    const words = within(screen.getByRole("list", { name: /one box each/ })).getAllByRole("listitem");
    expect(words.map((word) => word.textContent)).toEqual(["git", "commit", "-m", "two words", "(empty)"]);
    await userEvent.click(button());
    expect(bodies(host)).toEqual([
      {
        tool_name: "execute_command",
        tool_params: { command: "git", args: ["commit", "-m", "two words", ""] },
        mode: "sandbox",
        session_id: null,
      },
    ]);
    await expectAccessible(container);
  });

  it("with an unclosed quote cannot be checked", async () => {
    const host = houseWith();
    await showPage(POLICY, host);
    await write(line(), "echo 'a");
    await userEvent.keyboard("{Enter}");
    expect(screen.getByText(/never closed/)).toBeTruthy();
    expect(button().disabled).toBe(true);
    expect(host.of(CHECK)).toHaveLength(0);
  });

  it("with words for a shell says that there is none", async () => {
    await showPage(POLICY, houseWith());
    await write(line(), "ls | wc");
    expect(screen.getByText(/\| would be handed to the program as written/)).toBeTruthy();
  });

  it("is checked in the mode and with the grants that were chosen", async () => {
    const host = houseWith(checkAnswer(), [], "sandbox");
    await showPage(POLICY, host);
    await userEvent.click(screen.getByRole("radio", { name: "full" }));
    expect(screen.getByText(/a message cannot ask for full here/)).toBeTruthy();
    await userEvent.click(screen.getByRole("checkbox", { name: /grants/ }));
    await write(line(), "pwd");
    await userEvent.keyboard("{Enter}");
    expect(bodies(host)[0]).toMatchObject({ mode: "full", session_id: "sess_1" });
    expect(screen.getByText(/in mode full, with the open conversation’s grants/)).toBeTruthy();
    await userEvent.click(screen.getByRole("radio", { name: "sandbox" }));
    expect(screen.queryByText(/a message cannot ask/)).toBeNull();
  });
});

describe("the answer", () => {
  const ask = async (answer: object) => {
    await showPage(POLICY, houseWith(answer));
    await userEvent.click(screen.getByRole("button", { name: "git status" }));
    return document.querySelector(".page-verdict")?.textContent ?? "";
  };

  it("says the verdict first, then why, how it was read and what would be asked", async () => {
    const shown = await ask(
      checkAnswer({
        always_asks: true,
        network: true,
        layer: "project (.byleave/policy.toml)",
        runs: ["tools/build.py"],
        understood: {
          command: "git",
          options: [["-C", "sub"]],
          operands: ["log"],
          subcommand: { command: "git log", options: [["-3", null]], operands: ["a\u202eb"] },
        },
      }),
    );
    expect(shown).toMatch(/^Medium asks first, 5 minutes to answer/);
    for (const words of [
      "git status is MEDIUM.",
      "in full mode too",
      "commands.git.status",
      "project (.byleave/policy.toml)",
      "tools/build.py",
      "lets it use the network",
      "option -C with the value sub",
      "git log",
      "option -3",
      "operand a\\u{202e}b",
      "What a person would be asked",
    ]) {
      expect(shown).toContain(words);
    }
    expect(shown).not.toContain("operand log");
  });

  it("of a refusal says that it never runs and what to do instead", async () => {
    const finding: Finding = {
      level: "REFUSE",
      reason: "Command not allowed: rm",
      rule: "commands.unknown",
      instead: "Use git clean.",
      always_asks: false,
    };
    const shown = await ask(
      checkAnswer({
        verdict: "REFUSE",
        decision: "refused",
        findings: [finding],
        always_asks: true,
        description: null,
        timeout_seconds: null,
      }),
    );
    expect(shown).toMatch(/^Refused never runs/);
    expect(shown).toContain("Safer: Use git clean.");
    expect(shown).not.toContain("in full mode too");
    expect(shown).not.toContain("What a person would be asked");
  });

  it("of a call that runs says so, and an odd reading breaks nothing", async () => {
    const shown = await ask(
      checkAnswer({ verdict: "LOW", decision: "runs", timeout_seconds: null, understood: { command: "ls" } }),
    );
    expect(shown).toMatch(/^Low runs without asking/);
    expect(shown).toContain("Networknone");
  });

  it("that came late for an earlier call is dropped", async () => {
    const waiting: ((answer: ReturnType<typeof told>) => void)[] = [];
    const host = houseWith().on(
      "POST",
      CHECK,
      () => new Promise<ReturnType<typeof told>>((resolve) => waiting.push(resolve)),
    );
    await showPage(POLICY, host);
    await userEvent.click(screen.getByRole("button", { name: "git status" }));
    await userEvent.click(screen.getByRole("button", { name: "rm -rf build" }));
    await userEvent.click(screen.getByRole("button", { name: "force-push" }));
    waiting[2]?.(told(checkAnswer({ because: "newest" })));
    await screen.findByText("newest");
    waiting[0]?.(told(checkAnswer({ because: "oldest" })));
    waiting[1]?.(refused(500, "Broken."));
    await Promise.resolve();
    expect(screen.queryByText("oldest")).toBeNull();
    expect(screen.queryByRole("alert")).toBeNull();
  });

  it("that is an error is shown as one", async () => {
    await showPage(
      POLICY,
      houseWith().on("POST", CHECK, () => refused(400, "Too long.", "Shorten it.")),
    );
    await userEvent.click(screen.getByRole("button", { name: "read .env" }));
    expect(screen.getByRole("alert").textContent).toContain("Too long.Shorten it.");
    expect(screen.getByLabelText<HTMLInputElement>("path").value).toBe(".env");
  });
});

describe("another tool", () => {
  it("has a field for each of its parameters", async () => {
    const host = houseWith();
    const { container } = await showPage(POLICY, host);
    await choose("Tool", "write_file");
    await write(screen.getByLabelText("path"), "a.sh");
    await write(screen.getByLabelText("content"), "ls");
    await choose(/^mode/, "append");
    await userEvent.click(button());
    expect(bodies(host)[0]).toMatchObject({
      tool_name: "write_file",
      tool_params: { path: "a.sh", content: "ls", mode: "append" },
    });
    await choose("Tool", "search_files");
    await write(screen.getByLabelText("pattern"), "x");
    await userEvent.click(screen.getByRole("checkbox", { name: "case_sensitive" }));
    await write(screen.getByLabelText(/max_results/), "5");
    await userEvent.click(button());
    expect(bodies(host)[1]).toMatchObject({ tool_params: { pattern: "x", case_sensitive: false, max_results: 5 } });
    await expectAccessible(container);
  });

  it("comes from the catalogue, which can be asked again; an empty one offers nothing", async () => {
    const host = houseWith().on("GET", CATALOGUE, () => refused(500, "No catalogue."));
    await showPage(POLICY, host);
    host.on("GET", CATALOGUE, { tools: [], total_count: 0 });
    await userEvent.click(screen.getByRole("button", { name: "Try again" }));
    expect(screen.queryByRole("button", { name: "git status" })).toBeNull();
  });
});

describe("rules in force", () => {
  it("are listed by layer with their file, their text and whether they are trusted", async () => {
    const layers = [
      layer({ trusted: false, client_id: "laptop", text: 'because = "a\u202eb"\n' }),
      layer({ layer: "built-in", source: "Byleave", text: "" }),
    ];
    const { container } = await showPage(POLICY, houseWith(checkAnswer(), layers, "sandbox"));
    const cards = [...container.querySelectorAll(".page-card")].map((card) => card.textContent);
    expect(cards[0]).toContain("not trusted: only what tightens counts");
    expect(cards[0]).toContain("told by machine laptop");
    expect(cards[0]).toContain('because = "a\\u{202e}b"');
    expect(cards[1]).toContain("No text");
    expect(screen.getByText(/held to sandbox/)).toBeTruthy();
    await expectAccessible(container);
  });

  it("say that there are none, and what to do when they cannot be read", async () => {
    const host = houseWith().on("GET", RULES, () => refused(404, "Not there."));
    await showPage(POLICY, host, { sessionId: null });
    expect(screen.getByRole("alert").textContent).toContain("Not there.");
    host.on("GET", RULES, { layers: [], widest_mode: "full" });
    await userEvent.click(screen.getByRole("button", { name: "Try again" }));
    expect(screen.getByText("No rule file is in force.")).toBeTruthy();
    expect(screen.getByText(/A message may ask for full/)).toBeTruthy();
    expect(screen.getByRole<HTMLInputElement>("checkbox", { name: /grants/ }).disabled).toBe(true);
  });
});
