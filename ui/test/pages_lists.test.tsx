// Conversations, grants, audit and agents: what each says, what can be done there, and what it says when it is empty.

import { act, cleanup, screen, waitFor } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { afterEach, describe, expect, it, vi } from "vitest";
import { RESEND_MS } from "../src/api";
import {
  type Asked,
  agent,
  at,
  auditEntry,
  expectAccessible,
  FakeHost,
  grant,
  question,
  refused,
  session,
  showPage,
  told,
  write,
} from "./pages_house";

afterEach(() => {
  cleanup();
  vi.useRealTimers();
});

describe("pages", () => {
  it("wait for the project to be known", async () => {
    await showPage({ page: "grants" }, new FakeHost(), { projectId: null });
    expect(screen.getByRole("status").textContent).toContain("project");
  });

  it("show nothing for the conversation, which is not one of them", async () => {
    const { container } = await showPage({ page: "chat", session: null }, new FakeHost());
    expect(container.textContent).toBe("");
  });
});

describe("conversations", () => {
  const SESSIONS = { page: "sessions" } as const;

  it("are listed newest first, with what waits in each", async () => {
    const sessions = [
      session(),
      session({ session_id: "sess_3", title: "", created_at: at(5) }),
      session({ session_id: "sess_2", title: "Tidy\u202e up", created_at: at(9) }),
    ];
    const questions = [
      question(),
      question({ id: "b", session_id: "sess_2" }),
      question({ id: "c", session_id: "sess_2" }),
    ];
    const { container, go } = await showPage(SESSIONS, new FakeHost(), { sessions, questions });
    const texts = screen.getAllByRole("listitem").map((item) => item.textContent);
    expect(texts[0]).toMatch(/^Tidy\\u\{202e\} up.*2 to review$/);
    expect(texts[1]).toContain("Untitled");
    expect(texts[2]).toMatch(/open now1 to review$/);
    await expectAccessible(container);
    await userEvent.click(screen.getByRole("link", { name: /Tidy/ }));
    expect(go).toHaveBeenCalledWith({ page: "chat", session: "sess_2" });
    await userEvent.click(screen.getByRole("button", { name: "New conversation" }));
    expect(go).toHaveBeenCalledWith({ page: "chat", session: null });
  });

  it("are found by title and by what was said, with the words marked", async () => {
    const tidy = session({ session_id: "sess_2", title: "Tidy" });
    const host = new FakeHost().on("GET", "/my/projects/proj_1/chat/search", ({ query }: Asked) =>
      told(
        query.get("query") === "TIDY"
          ? {
              found: [
                { session: tidy, messages: 2, excerpt: "…please tidy up the…" },
                { session: session({ session_id: "sess_gone" }), messages: 1, excerpt: "tidy" },
              ],
              complete: false,
            }
          : { found: [], complete: true },
      ),
    );
    const manage = vi.fn();
    const { container } = await showPage(SESSIONS, host, { sessions: [session(), tidy] }, manage);
    const box = screen.getByRole("searchbox");
    await write(box, "TIDY");
    expect(await screen.findByText("1 conversation found; give more words to see others")).toBeTruthy();
    expect(screen.getAllByRole("listitem")).toHaveLength(1);
    expect([...container.querySelectorAll("mark")].map((mark) => mark.textContent)).toEqual(["Tidy", "tidy"]);
    expect(screen.getByText("in 2 messages")).toBeTruthy();
    await expectAccessible(container);
    await userEvent.click(screen.getByRole("button", { name: "Manage Tidy" }));
    await userEvent.click(await screen.findByRole("menuitem", { name: "Rename" }));
    expect(manage).toHaveBeenCalledWith({ what: "rename", session: tidy });
    await write(box, " nothing like it");
    expect(await screen.findByText("No match.")).toBeTruthy();
    await userEvent.click(screen.getByRole("button", { name: "Show all" }));
    await waitFor(() => expect(screen.getAllByRole("listitem")).toHaveLength(2));
  });

  it("say why they could not be searched", async () => {
    const host = new FakeHost().on("GET", "/my/projects/proj_1/chat/search", () => refused(400, "Not so.", "Else."));
    await showPage(SESSIONS, host, { sessions: [session()] });
    await write(screen.getByRole("searchbox"), "x");
    expect((await screen.findByRole("alert")).textContent).toContain("Not so.");
  });

  it("say what to do when there is none", async () => {
    await showPage(SESSIONS, new FakeHost());
    expect(screen.getByText("No conversation yet.")).toBeTruthy();
  });
});

describe("grants", () => {
  const GRANTS = { page: "grants" } as const;
  const REVOKE = "/my/grants/grant_1/revoke";

  it("in force come first with their limits, ended ones are folded away with why", async () => {
    const grants = [
      grant({ id: "g2", status: "revoked", text: "second", revoked_by: "person:bob", revoked_at: at(5), uses: 3 }),
      grant({ id: "g3", status: "revoked", text: "third", revoked_by: null }),
      grant({ id: "g4", status: "used_up", text: "fourth", uses: 2, max_uses: 2 }),
      grant({ id: "g5", text: "fifth", expires_at: at(1) }),
      grant({ text: "first", uses: 1, max_uses: 5, created_by: "person:bob", session_id: "sess_2" }),
    ];
    const { container, go } = await showPage(GRANTS, new FakeHost(), { grants });
    const active = screen.getByRole("list", { name: "In force" }).textContent ?? "";
    expect(active).toContain("first");
    expect(active).toContain("once; 4 of 5 left");
    expect(active).toContain("in 1 hour");
    expect(active).toContain("by bob");
    expect(active).not.toContain("second");
    expect(screen.getByText("Ended: 4")).toBeTruthy();
    const ended = [...container.querySelectorAll(".page-card-over")].map((card) => card.textContent);
    expect(ended[0]).toContain("taken back by bob");
    expect(ended[0]).toContain("3 times; no limit");
    expect(ended[1]).toContain("taken back by nobody");
    expect(ended[2]).toContain("used up");
    expect(ended[3]).toContain("its time was over");
    await expectAccessible(container);
    await userEvent.click(screen.getAllByRole("link", { name: "another conversation" })[0] as HTMLElement);
    expect(go).toHaveBeenCalledWith({ page: "chat", session: "sess_2" });
  });

  it("for everything in a conversation are an alarm", async () => {
    await showPage(GRANTS, new FakeHost(), {
      grants: [grant({ scope: "session", rule: null, text: "everything" })],
      me: null,
    });
    expect(screen.getByText(/Nothing in that conversation asks/)).toBeTruthy();
    expect(screen.queryByText("The rule, exactly")).toBeNull();
  });

  it("are taken back in two presses, and shown as ended at once", async () => {
    vi.useFakeTimers({ shouldAdvanceTime: true });
    const user = userEvent.setup({ advanceTimers: (ms) => vi.advanceTimersByTime(ms) });
    const host = new FakeHost().on("POST", REVOKE, () => refused(503, "Busy."));
    await showPage(GRANTS, host, { grants: [grant()] });
    await user.click(screen.getByRole("button", { name: /^Revoke:/ }));
    await user.click(screen.getByRole("button", { name: "Keep it" }));
    await user.click(screen.getByRole("button", { name: /^Revoke:/ }));
    expect(host.asked).toHaveLength(0);
    await act(async () => void vi.advanceTimersByTime(700));
    await user.click(screen.getByRole("button", { name: "Revoke it" }));
    for (const pause of RESEND_MS) await act(() => vi.advanceTimersByTimeAsync(pause));
    expect(screen.getByRole("alert").textContent).toContain("Busy.");
    expect(host.asked).toHaveLength(1 + RESEND_MS.length);
    host.on("POST", REVOKE, grant({ status: "revoked", revoked_by: "person:alice", revoked_at: at(8) }));
    await user.click(screen.getByRole("button", { name: "Revoke it" }));
    await act(async () => void vi.advanceTimersByTime(10));
    expect(screen.getByText("No grant is in force.")).toBeTruthy();
    expect(document.querySelector(".page-card-over")?.textContent).toContain("taken back by you");
  });

  it("end by themselves when their time is over", async () => {
    vi.useFakeTimers();
    await showPage(GRANTS, new FakeHost(), {
      grants: [grant({ expires_at: new Date(Date.now() + 60_000).toISOString() })],
    });
    expect(screen.getByText(/in 1 minute/)).toBeTruthy();
    await act(async () => void vi.advanceTimersByTime(65_000));
    expect(screen.getByText("No grant is in force.")).toBeTruthy();
  });
});

describe("audit", () => {
  const AUDIT = { page: "audit" } as const;
  const LIST = "/my/projects/proj_1/audit";
  const VERIFY = `${LIST}/verify`;
  const page = (entries: unknown[], next_before: number | null = null) => ({ entries, total_count: 3, next_before });
  const check = (part: object) => ({
    project_id: "proj_1",
    records: 1234,
    head: "e".repeat(64),
    holds: true,
    fault: null,
    checked_at: at(9),
    ...part,
  });

  it("lists links newest first, with who, what and about which call", async () => {
    const host = new FakeHost().on("GET", LIST, ({ query }) =>
      told(
        query.get("before")
          ? page([auditEntry({ seq: 1, tool_id: null, approval_id: null, actor: "server", detail: {} })])
          : page(
              [
                auditEntry(),
                auditEntry({
                  seq: 2,
                  detail: { nested: { a: [1] }, none: null, flag: true, text: "two\nlines", empty: "", list: [] },
                }),
              ],
              2,
            ),
      ),
    );
    const { container, go } = await showPage(AUDIT, host);
    expect(screen.getAllByRole("row")[1]?.textContent).toContain("3");
    expect(screen.getAllByText("grant revoked")).toHaveLength(2);
    expect(screen.getAllByText("you")).toHaveLength(2);
    await expectAccessible(container);
    await userEvent.click(screen.getByRole("button", { name: "Older" }));
    expect(screen.getAllByRole("row")).toHaveLength(4);
    expect(host.of(LIST).at(-1)?.query.get("before")).toBe("2");
    expect(screen.getByText("the project")).toBeTruthy();
    await userEvent.click(screen.getAllByRole("link", { name: "The call exec_1" })[0] as HTMLElement);
    expect(go).toHaveBeenCalledWith({ page: "history", tool: "exec_1" });
  });

  it("says when there is nothing, and when it cannot be read", async () => {
    const host = new FakeHost().on("GET", LIST, page([]));
    await showPage(AUDIT, host, { me: null });
    expect(screen.getByText("Nothing is on record yet.")).toBeTruthy();
    host.on("GET", LIST, () => refused(500, "Unreadable."));
    await userEvent.click(screen.getByRole("button", { name: "Refresh" }));
    expect(screen.getByRole("alert").textContent).toContain("Unreadable.");
  });

  it("that holds says so with its head, and to keep it elsewhere", async () => {
    const host = new FakeHost().on("GET", LIST, page([auditEntry()])).on("GET", VERIFY, () => refused(503, "Later."));
    await showPage(AUDIT, host);
    vi.useFakeTimers({ shouldAdvanceTime: true });
    const user = userEvent.setup({ advanceTimers: (ms) => vi.advanceTimersByTime(ms) });
    await user.click(screen.getByRole("button", { name: "Verify the chain" }));
    for (const pause of RESEND_MS) await act(() => vi.advanceTimersByTimeAsync(pause));
    expect(screen.getByRole("alert").textContent).toContain("Later.");
    host.on("GET", VERIFY, check({}));
    await user.click(screen.getByRole("button", { name: "Try again" }));
    expect(await screen.findByText("Record intact")).toBeTruthy();
    expect(screen.getByText("1,234")).toBeTruthy();
    expect(screen.getByText("e".repeat(64))).toBeTruthy();
    expect(screen.getByText(/Keep the head somewhere else/)).toBeTruthy();
  });

  it.each([
    ["Link 7 does not follow link 6.", "Link 7 does not follow link 6."],
    [null, "The server did not say where."],
  ])("that does not hold is an alarm (%s)", async (fault, words) => {
    const host = new FakeHost().on("GET", LIST, page([])).on("GET", VERIFY, check({ holds: false, fault }));
    await showPage(AUDIT, host);
    await userEvent.click(screen.getByRole("button", { name: "Verify the chain" }));
    const alarm = screen.getByRole("alert").textContent;
    expect(alarm).toContain("Record damaged");
    expect(alarm).toContain(words);
  });
});

describe("agents", () => {
  it("say what they are, what they may, and what the modes mean", async () => {
    const agents = [agent(), agent({ name: "reviewer", description: "", widest_mode: "sandbox", tools: [] })];
    const { container } = await showPage({ page: "agents" }, new FakeHost(), {
      agents,
      agent: "chat",
      modes: { chat: "full" },
    });
    const [first, second] = [...container.querySelectorAll(".page-card")].map((card) => card.textContent);
    expect(first).toContain("active agent");
    expect(first).toContain("Mode nowfull");
    expect(first).toContain("write_file");
    expect(second).toContain("Mode nowsandbox");
    expect(second).toContain("none: it can only talk");
    await expectAccessible(container);
  });

  it("say how to have one when there is none", async () => {
    await showPage({ page: "agents" }, new FakeHost());
    expect(screen.getByText("No agent works on messages here.")).toBeTruthy();
  });
});
