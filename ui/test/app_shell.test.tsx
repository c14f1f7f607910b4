import { act, cleanup, fireEvent, render, screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { Problem } from "../src/api";
import { App } from "../src/app/App";
import { reload } from "../src/app/reload";
import * as sample from "./state_samples";
import { Refusal, TableHost } from "./state_samples";

// jsdom lays nothing out: what is near the screen cannot be known there, so everything is.
vi.mock("virtua", () => ({
  Virtualizer: ({ data, children }: { data: unknown[]; children: (entry: unknown) => React.ReactNode }) => (
    <ol>{data.map((entry) => children(entry))}</ol>
  ),
}));

vi.mock("../src/app/reload", () => ({ reload: vi.fn() }));

function Broken(): never {
  throw new Error("chunk");
}

beforeEach(() => {
  vi.mocked(reload).mockClear();
  Element.prototype.scrollIntoView = () => {}; // jsdom has none
  location.hash = "";
});
afterEach(() => {
  cleanup();
  vi.restoreAllMocks();
});

async function shown(host = new TableHost(), link = "Connected") {
  const user = userEvent.setup({ delay: null, pointerEventsCheck: 0 });
  const view = render(<App host={host} />);
  if (link) await screen.findByText(link);
  await waitFor(() => expect(screen.queryByText("Loading the conversation…")).toBeNull());
  return { host, user, view };
}

const writing = () => screen.getByRole("textbox", { name: "Message" });
const tell = (host: TableHost, ...events: Parameters<TableHost["tell"]>) => act(async () => host.tell(...events));

describe("the frame", () => {
  test("it has its landmarks, one heading, and a way to the content", async () => {
    const { user } = await shown();
    for (const role of ["banner", "main", "navigation"]) expect(screen.getAllByRole(role).length).toBeGreaterThan(0);
    expect(screen.getAllByRole("heading", { level: 1 }).map((each) => each.textContent)).toEqual(["First"]);
    await user.click(screen.getByText("Skip to the content"));
    expect(document.activeElement).toBe(screen.getByRole("main"));
  });

  test("who is not signed in is told how to, and sees nothing else", async () => {
    await shown(new TableHost({ "GET /my/me": new Refusal(401) }, "browser"), "");
    expect(await screen.findByRole("heading", { name: "You are not signed in" })).toBeTruthy();
    expect(document.querySelector(".app-brand")?.textContent).toBe("Byleave");
    expect(screen.getByText("byleave link")).toBeTruthy();
    expect(screen.queryByRole("navigation")).toBeNull();
    expect(screen.queryByText(/keeps nothing for this page/)).toBeNull();
    cleanup();
    const blocked = vi.spyOn(Storage.prototype, "setItem").mockImplementation(() => {
      throw new Error("blocked");
    });
    await shown(new TableHost({ "GET /my/me": new Refusal(401) }, "browser"), "");
    expect(await screen.findByText(/keeps nothing for this page/)).toBeTruthy();
    blocked.mockRestore();
    cleanup();
    await shown(new TableHost({ "GET /my/me": new Refusal(401) }), "");
    expect(await screen.findByText(/must give a new one/)).toBeTruthy();
    fireEvent.click(screen.getByText("Try again"));
    expect(reload).toHaveBeenCalledOnce();
  });

  test("a lost connection is said, and when it is back too", async () => {
    const { host } = await shown();
    await act(async () => host.stream.closed(0));
    expect(screen.getByText("Connection lost. Reconnecting…")).toBeTruthy();
    await screen.findByText("Connected", {}, { timeout: 3000 });
  });

  test("what goes wrong is a notice that can be put away", async () => {
    const { user } = await shown(
      new TableHost({ "GET /my/grants": new Refusal(403, { detail: "Broke.", hint: "Wait." }) }),
    );
    const notice = await screen.findByRole("alert");
    expect(notice.textContent).toContain("Broke.Wait.");
    await user.click(within(notice).getByRole("button", { name: "Dismiss" }));
    expect(screen.queryByRole("alert")).toBeNull();
  });

  test("the menu of a narrow screen opens and closes, also with Escape and beside it", async () => {
    const { user, view } = await shown();
    const button = screen.getByRole("button", { name: "Open the menu" });
    await user.click(button);
    expect(button.getAttribute("aria-expanded")).toBe("true");
    act(() => screen.getByRole("link", { name: "Chat" }).focus());
    await user.keyboard("{Escape}");
    expect(button.getAttribute("aria-expanded")).toBe("false");
    await user.click(button);
    fireEvent.pointerDown(view.container.querySelector(".app-shade") as Element);
    expect(button.getAttribute("aria-expanded")).toBe("false");
  });

  test("pages are reached by their links, the focus goes along, and the address is left alone where it is not ours", async () => {
    const { user } = await shown();
    await user.click(screen.getByRole("link", { name: "Conversations" }));
    expect(await screen.findByRole("heading", { level: 1, name: "Conversations" }, { timeout: 10_000 })).toBeTruthy();
    expect(document.activeElement).toBe(screen.getByRole("main"));
    expect(location.hash).toBe("");
    expect(screen.getByRole("link", { name: "Conversations" }).getAttribute("aria-current")).toBe("page");
    await user.click(screen.getByRole("link", { name: "Chat" }));
    expect(screen.getByRole("heading", { level: 1 }).textContent).toBe("First");
  });

  test("in a browser the address says where one is, and leads there", async () => {
    location.hash = "#/grants";
    const { user } = await shown(new TableHost({}, "browser"));
    expect(screen.getByRole("link", { name: "Grants" }).getAttribute("aria-current")).toBe("page");
    await user.click(screen.getByRole("link", { name: "Chat" }));
    await waitFor(() => expect(location.hash).toBe("#/chat/s"));
    await user.click(screen.getByRole("button", { name: "New conversation" }));
    await screen.findByText("What should the agent do?");
    expect(location.hash).toBe("#/chat");
    location.hash = "#/chat/s";
    await screen.findByRole("heading", { level: 1, name: "First" });
  });

  test("the heading of an agent's own conversation says whose it is", async () => {
    const host = new TableHost();
    const sessions = [sample.session("s", "First"), sample.session("sess_agent_1", "bot-0123456789ab")];
    host.table["GET /my/projects/p/chat/sessions"] = { sessions, total_count: 2 };
    const { user } = await shown(host);
    const title = () => document.querySelector(".app-title")?.textContent;
    expect(title()).toBe("demoFirst");
    await user.click(screen.getByRole("link", { name: "bot-0123456789ab" }));
    await screen.findByRole("heading", { level: 1, name: "bot-0123456789ab" });
    expect(title()).toBe("demo · from outside this chatbot-0123456789ab");
  });

  test("a link with a key held is the browser's business", async () => {
    await shown();
    const link = screen.getByRole("link", { name: "Conversations" });
    fireEvent.click(link, { ctrlKey: true });
    expect(screen.getByRole("link", { name: "Chat" }).getAttribute("aria-current")).toBe("page");
  });

  test("another project opens in place of the first", async () => {
    const host = new TableHost();
    host.table["GET /my/projects"] = {
      projects: [
        { project_id: "p", name: "demo", created_at: sample.at(0) },
        { project_id: "p2", name: "other", created_at: sample.at(0) },
      ],
      total_count: 2,
    };
    host.table["GET /my/projects/p2/chat/sessions"] = { sessions: [], total_count: 0 };
    for (const what of ["agents", "machines"])
      host.table[`GET /my/projects/p2/${what}`] = host.table[`GET /my/projects/p/${what}`];
    const { user } = await shown(host);
    await user.click(screen.getByRole("combobox", { name: "Project" }));
    await user.click(await screen.findByRole("option", { name: "other" }));
    expect(await screen.findByText("What should the agent do?")).toBeTruthy();
  });

  test("signing out goes through the host", async () => {
    const host = new TableHost();
    host.signOut = async () => {};
    const { user } = await shown(host);
    await user.click(screen.getByRole("button", { name: "Sign out alice" }));
    expect(await screen.findByText("You are not signed in")).toBeTruthy();
  });

  test("a page that cannot be loaded says so and offers to reload", async () => {
    vi.spyOn(console, "error").mockImplementation(() => {});
    const { Boundary, PartFailed, EntryFailed } = await import("../src/app/Boundary");
    render(
      <Boundary instead={() => <PartFailed />}>
        <Broken />
      </Boundary>,
    );
    fireEvent.click(screen.getByRole("button", { name: "Reload the page" }));
    expect(reload).toHaveBeenCalledOnce();
    render(<EntryFailed />);
    expect(screen.getByText(/could not be shown here/)).toBeTruthy();
  });
});

describe("machines", () => {
  const machines = (...list: object[]) => ({
    "GET /my/projects/p/machines": { machines: list, total_count: list.length },
  });
  const machine = (isolation: string | null, id = "laptop") => ({
    client_id: id,
    workspace: "/w",
    isolation,
    next: true,
  });

  test("a machine and what isolates it are in sight, with what that means", async () => {
    const { user } = await shown();
    await user.click(screen.getByRole("button", { name: /isolated: bwrap/ }));
    expect(screen.getByText(/Commands can only change files/)).toBeTruthy();
    await user.keyboard("{Escape}");
    await waitFor(() => expect(screen.queryByText(/Commands can only change files/)).toBeNull());
    expect(document.activeElement?.textContent).toContain("isolated");
    await user.keyboard("{Enter}");
    expect(await screen.findByText(/Commands can only change files/)).toBeTruthy();
  });

  test.each([
    ["none", /no isolation/, /anything your account can/],
    [null, /isolation unknown/, /did not say how/],
    ["other", /isolated: other/, /isolated by other/],
  ])("isolation %s is said", async (isolation, label, words) => {
    const { user } = await shown(new TableHost(machines(machine(isolation))));
    await user.click(screen.getByRole("button", { name: label }));
    expect(screen.getByText(words)).toBeTruthy();
    await user.click(document.body);
    await waitFor(() => expect(screen.queryByText(words)).toBeNull());
  });

  test("several are counted, and the next is named", async () => {
    const { user } = await shown(
      new TableHost(machines(machine("bwrap"), { ...machine("none", "b"), next: false, workspace: null })),
    );
    await user.click(screen.getByRole("button", { name: /2 machines, no isolation/ }));
    expect(screen.getByText("next call runs here")).toBeTruthy();
    // A person knows a machine by its directory.
    const bold = [...document.querySelectorAll(".app-machine-list strong")].map((each) => each.textContent);
    expect(bold).toEqual(["/w", "Directory not known"]);
  });

  test("with none it says how to connect one", async () => {
    await shown(new TableHost(machines()));
    expect(screen.getByText(/byleave connect --project p/)).toBeTruthy();
    expect(screen.getByRole("button", { name: "Copy" })).toBeTruthy();
    expect(screen.getByRole("button", { name: /no machine/ })).toBeTruthy();
  });
});

describe("the conversation", () => {
  test("messages, calls and remarks are shown in order, and examples go into the field", async () => {
    const { host, user } = await shown();
    await user.click(screen.getByRole("button", { name: "list src" }));
    expect((writing() as HTMLTextAreaElement).value).toBe("list src");
    expect(document.activeElement).toBe(writing());
    await tell(
      host,
      sample.said("m", 1, { role: "user", content: "do it" }),
      sample.started("t", 2),
      sample.text("I am at it", 3),
      {
        kind: "chat.error",
        session_id: "s",
        run_id: "other",
        message: "Broke.",
        hint: "Again.",
        timestamp: sample.at(4),
      },
    );
    expect(await screen.findByText("I am at it")).toBeTruthy();
    expect(screen.getByText("do it")).toBeTruthy();
    expect(screen.getByText("writing…")).toBeTruthy();
    expect(screen.getByText("Broke.")).toBeTruthy();
    await tell(host, sample.said("a", 5, { content: "It is done." }));
    expect(screen.getByText("The agent says: It is done.")).toBeTruthy();
  });

  test("what was there when the page opened is not announced", async () => {
    const host = new TableHost({
      "GET /my/projects/p/chat/messages": {
        messages: [sample.message("old", 1, { role: "agent" })],
        total_count: 1,
        more: false,
      },
    });
    const { view } = await shown(host);
    expect(view.container.querySelector("[aria-live=polite]")?.textContent).toBe("");
  });

  test("older entries are asked for when the person comes near the first", async () => {
    const pages = [
      { messages: [sample.message("m2", 2)], total_count: 1, more: true },
      { messages: [sample.message("m1", 1)], total_count: 1, more: false },
    ];
    let asked = 0;
    const host = new TableHost({ "GET /my/projects/p/chat/messages": () => pages[asked++] });
    await shown(host);
    await screen.findByText("m1");
    expect(asked).toBe(2);
  });

  test("it follows the newest unless the person went up, and then says that there is more", async () => {
    const { host, user, view } = await shown();
    await tell(host, sample.said("a", 1));
    const scroller = view.container.querySelector("section.app-scroll") as HTMLElement;
    const size = { scrollHeight: 1000, clientHeight: 100 };
    for (const [name, value] of Object.entries(size))
      Object.defineProperty(scroller, name, { value, configurable: true });
    scroller.scrollTop = 900;
    fireEvent.scroll(scroller);
    scroller.scrollTop = 300;
    fireEvent.scroll(scroller);
    expect(screen.getByRole("button", { name: /Latest/ })).toBeTruthy();
    await tell(host, sample.said("b", 2, { run_id: "r2" }));
    expect(scroller.scrollTop).toBe(300);
    await user.click(screen.getByRole("button", { name: /New messages/ }));
    expect(scroller.scrollTop).toBe(1000);
    expect(screen.queryByRole("button", { name: /New messages/ })).toBeNull();
    await tell(host, sample.said("c", 3, { run_id: "r3" }));
    expect(scroller.scrollTop).toBe(1000);
  });
});

test("a reload in the middle of a run shows that it works, and the way to stop it", async () => {
  await shown(
    new TableHost({ "GET /my/projects/p/chat/runs": { runs: [sample.listed("r", "running", 1)], total_count: 1 } }),
  );
  expect(screen.getByText("Working…")).toBeTruthy();
  expect(screen.getByRole("button", { name: "Stop the agent" })).toBeTruthy();
});

describe("what waits", () => {
  test("it is counted, told to the host, and reached from another page", async () => {
    const { host, user } = await shown();
    expect((screen.getByRole("button", { name: "All clear" }) as HTMLButtonElement).disabled).toBe(true);
    await tell(host, sample.asked("a", 1), sample.asked("b", 2, { session_id: "x" }));
    const questions = ["a", "b"].map((id) => ({ id, risk: "MEDIUM" }));
    expect(host.told.at(-1)).toEqual({ count: 2, headline: "Write b", questions });
    expect(screen.getByText("To review: Write b")).toBeTruthy();
    await user.click(screen.getByRole("link", { name: "Conversations" }));
    await user.click(screen.getByRole("button", { name: "2 to review" }));
    const region = screen.getByRole("region", { name: "Waiting for your decision" });
    const card = () => within(region).getByRole("article");
    await waitFor(() => expect(document.activeElement).toBe(card()));
    expect(card().getAttribute("aria-label")).toBe("Question: Write a");
    expect(card().textContent).not.toContain("Another conversation");
    act(() => host.onShowWaiting?.("b"));
    await waitFor(() => expect(card().getAttribute("aria-label")).toBe("Question: Write b"));
    await waitFor(() => expect(document.activeElement).toBe(card()));
    expect(region.textContent).toContain("2 of 2");
    expect(card().textContent).toMatch(/^Another conversation/);
  });

  test("a question takes no focus from who is writing, and the next comes when it is settled", async () => {
    const { host, user } = await shown();
    await user.click(writing());
    await tell(host, sample.asked("a", 1), sample.asked("b", 2, { session_id: "x" }));
    expect(document.activeElement).toBe(writing());
    await tell(host, sample.decided("a"));
    const region = screen.getByRole("region", { name: "Waiting for your decision" });
    expect(within(region).getByRole("article").getAttribute("data-approval")).toBe("b");
    expect(region.querySelector(".app-gone")?.textContent).toContain("Write a");
    expect(screen.getByRole("button", { name: "1 to review" })).toBeTruthy();
    expect(document.activeElement).toBe(writing());
  });

  test("to have been taken to one is no reason to take the focus for the next", async () => {
    const { host, user } = await shown();
    await tell(host, sample.asked("a", 1));
    await user.click(screen.getByRole("button", { name: "1 to review" }));
    const card = () => within(screen.getByRole("region", { name: "Waiting for your decision" })).getByRole("article");
    await waitFor(() => expect(document.activeElement).toBe(card()));
    await user.click(writing());
    await tell(host, sample.decided("a"));
    await waitFor(() => expect(screen.queryByRole("region", { name: "Waiting for your decision" })).toBeNull(), {
      timeout: 6000,
    });
    await tell(host, sample.asked("b", 2));
    await new Promise((done) => setTimeout(done, 50));
    expect(card().getAttribute("data-approval")).toBe("b");
    expect(document.activeElement).toBe(writing());
  });

  test("it takes the main column; the conversation is folded, opens on asking, and comes back at the end", async () => {
    const { host, user, view } = await shown();
    const folded = () => [...view.container.querySelectorAll(".app-fold")].map((each) => each.hasAttribute("inert"));
    expect(folded()).toEqual([false]);
    await tell(host, sample.asked("a", 1));
    expect(folded()).toEqual([true, false]);
    await user.click(screen.getByRole("button", { name: "Show chat" }));
    expect(folded()).toEqual([false, true]);
    await user.click(screen.getByRole("button", { name: "1 to review" }));
    expect(folded()).toEqual([true, false]);
    await user.click(writing());
    await tell(host, sample.decided("a"));
    await waitFor(() => expect(folded()).toEqual([false]), { timeout: 6000 });
  });

  test("what is not known without a connection is not said", async () => {
    const { host } = await shown();
    await act(async () => host.stream.closed(0));
    expect(screen.queryByRole("button", { name: "All clear" })).toBeNull();
    expect(screen.queryByRole("button", { name: /isolated/ })).toBeNull();
    await screen.findByText("Connected", {}, { timeout: 3000 });
  });

  test("that everything is allowed is never out of sight", async () => {
    const { user } = await shown(
      new TableHost({ "GET /my/grants": { grants: [sample.grant("g", { scope: "session" })], total_count: 1 } }),
    );
    expect(screen.getByText("Everything in this conversation is allowed")).toBeTruthy();
    await user.click(screen.getByRole("button", { name: "See and revoke" }));
    expect(screen.getByRole("link", { name: /Grants/ }).getAttribute("aria-current")).toBe("page");
  });
});

describe("the composer", () => {
  const accepted = { message_id: "m", session_id: "s", run_id: "r" };

  test("Enter sends, Shift+Enter begins a line, and keys of an input method send nothing", async () => {
    const { host, user } = await shown(new TableHost({ "POST /my/projects/p/chat/messages": accepted }));
    await user.type(writing(), "one{Shift>}{Enter}{/Shift}two");
    fireEvent.keyDown(writing(), { key: "Enter", isComposing: true });
    fireEvent.keyDown(writing(), { key: "Enter", keyCode: 229 });
    fireEvent.keyDown(writing(), { key: "Enter", repeat: true });
    expect(host.asked.filter((each) => each.method === "POST")).toEqual([]);
    await user.keyboard("{Enter}");
    expect(host.asked.at(-1)?.body).toMatchObject({ content: "one\ntwo" });
    expect((writing() as HTMLTextAreaElement).value).toBe("");
    expect(await screen.findByText("Working…")).toBeTruthy();
    await user.keyboard("{Enter}");
    expect(host.asked.filter((each) => each.method === "POST")).toHaveLength(1);
  });

  test("what was not sent comes back with the reason, before what was typed since", async () => {
    let refuse: (value: unknown) => void = () => {};
    const { user } = await shown(
      new TableHost({ "POST /my/projects/p/chat/messages": () => new Promise((resolve) => (refuse = resolve)) }),
    );
    await user.type(writing(), "first");
    await user.click(screen.getByRole("button", { name: "Send" }));
    await user.type(writing(), "second");
    await act(async () => refuse(new Refusal(413, { detail: "Too long.", hint: "Shorter." })));
    expect((writing() as HTMLTextAreaElement).value).toBe("first\n\nsecond");
    const alert = screen.getByRole("alert");
    expect(alert.textContent).toContain("Not sent: Too long.Shorter.");
    await user.click(within(alert).getByRole("button", { name: "Dismiss" }));
    expect(screen.queryByRole("alert")).toBeNull();
  });

  test("a draft is kept for each session, over a reload too", async () => {
    const host = new TableHost({
      "GET /my/projects/p/chat/sessions": {
        sessions: [sample.session("s", "First"), sample.session("x", "Second")],
        total_count: 2,
      },
    });
    const { user } = await shown(host);
    await user.type(writing(), "for the first");
    await user.click(screen.getByRole("link", { name: "Second" }));
    expect((writing() as HTMLTextAreaElement).value).toBe("");
    await user.type(writing(), "for the second");
    await user.click(screen.getByRole("link", { name: "First" }));
    expect((writing() as HTMLTextAreaElement).value).toBe("for the first");
    cleanup();
    await shown(host);
    expect((writing() as HTMLTextAreaElement).value).toBe("for the first");
  });

  test("what is typed while the first message is on its way goes on in the new session", async () => {
    const host = new TableHost({ "GET /my/projects/p/chat/sessions": { sessions: [], total_count: 0 } });
    let accept: (value: unknown) => void = () => {};
    host.table["POST /my/projects/p/chat/messages"] = () => new Promise((resolve) => (accept = resolve));
    const { user } = await shown(host);
    await user.type(writing(), "hello{Enter}next");
    host.table["GET /my/projects/p/chat/sessions"] = { sessions: [sample.session("s", "hello")], total_count: 1 };
    await act(async () => accept(accepted));
    await screen.findByRole("heading", { level: 1, name: "hello" });
    expect((writing() as HTMLTextAreaElement).value).toBe("next");
    expect(host.kept.get("draft p s")).toBe("next");
    expect(host.kept.has("draft p new")).toBe(false);
  });

  test("nothing can be written before it is known which conversation opens", async () => {
    let answer: (value: unknown) => void = () => {};
    const host = new TableHost({
      "GET /my/projects/p/chat/sessions": () => new Promise((resolve) => (answer = resolve)),
    });
    host.remember("draft p s", "of the first");
    render(<App host={host} />);
    const field = (await screen.findByRole("textbox", { name: "Message" })) as HTMLTextAreaElement;
    expect(field.disabled).toBe(true);
    await act(async () => answer({ sessions: [sample.session("s", "First")], total_count: 1 }));
    await waitFor(() => expect(field.disabled).toBe(false));
    expect(field.value).toBe("of the first");
  });

  test("who goes elsewhere while the first message is on its way mixes nothing up", async () => {
    const host = new TableHost();
    host.remember("draft p s", "of the first");
    let refuse: (value: unknown) => void = () => {};
    host.table["POST /my/projects/p/chat/messages"] = () => new Promise((resolve) => (refuse = resolve));
    const { user } = await shown(host);
    await user.click(screen.getByRole("button", { name: "New conversation" }));
    await user.type(writing(), "hello{Enter}next");
    await user.click(screen.getByRole("link", { name: "First" }));
    expect((writing() as HTMLTextAreaElement).value).toBe("of the first");
    await act(async () => refuse(new Refusal(413, { detail: "Too long.", hint: "Shorter." })));
    expect((writing() as HTMLTextAreaElement).value).toBe("of the first");
    expect(screen.getByRole("alert").textContent).toContain("is kept in the conversation you wrote it in");
    expect(host.kept.get("draft p new")).toBe("hello\n\nnext");
    expect(host.kept.get("draft p s")).toBe("of the first");
  });

  test("stop is there while a run works, here and on other pages", async () => {
    const host = new TableHost({ "POST /my/projects/p/chat/runs/r/cancel": { success: true, message: "" } });
    const { user } = await shown(host);
    await tell(host, sample.run("running"), {
      kind: "chat.usage",
      session_id: "s",
      run_id: "r",
      requests: 1,
      input_tokens: 1200,
      output_tokens: 30,
      cost_usd: null,
      timestamp: sample.at(1),
    });
    expect(screen.getByText(/tokens in/)).toBeTruthy();
    await user.click(screen.getByRole("button", { name: "Stop the agent" }));
    await user.click(screen.getByRole("link", { name: "Conversations" }));
    await user.click(document.querySelector(".app-top .app-stop") as Element);
    // No conversation is what is shown now: none is named above the page.
    expect(document.querySelector(".app-title")?.textContent).toBe("demo");
    expect(host.asked.filter((each) => each.path.endsWith("/cancel"))).toHaveLength(2);
    await user.click(screen.getByRole("link", { name: "Chat" }));
    await tell(host, sample.asked("q", 2));
    // While it is reviewed, the conversation is a button away.
    await user.click(screen.getByRole("button", { name: "Show chat" }));
    expect(screen.getByText("Waiting for you")).toBeTruthy();
  });

  test("a server without agents says that there is nobody to write to", async () => {
    await shown(new TableHost({ "GET /my/me": { ...sample.me, chat: false } }));
    expect(screen.getByText(/no chat agent/)).toBeTruthy();
    expect(screen.queryByRole("textbox", { name: "Message" })).toBeNull();
  });
});

describe("agents and modes", () => {
  const agents = (...list: object[]) => ({ "GET /my/projects/p/agents": { agents: list, total_count: list.length } });

  test("full mode takes a second step that says what it means", async () => {
    const { user } = await shown();
    await user.click(screen.getByRole("button", { name: "Mode: sandbox" }));
    await user.click(screen.getByRole("button", { name: "Switch to full…" }));
    await user.click(screen.getByRole("button", { name: "Stay in sandbox" }));
    await user.click(screen.getByRole("button", { name: "Switch to full…" }));
    expect(screen.getByRole("alert").textContent).toContain("without asking");
    const yes = screen.getByRole("button", { name: "Yes, work in full mode" });
    await user.click(yes); // at once, as the second half of a double click would
    expect(screen.getByRole("button", { name: "Mode: sandbox" })).toBeTruthy();
    await waitFor(() => expect(yes.getAttribute("aria-disabled")).toBe("false"));
    await user.click(yes);
    await user.click(screen.getByRole("button", { name: "Mode: full" }));
    await user.click(screen.getByRole("button", { name: "Back to sandbox" }));
    expect(screen.getByRole("button", { name: "Mode: sandbox" })).toBeTruthy();
  });

  test("it is refused to an agent that may not have it, and to who may not approve", async () => {
    const { user } = await shown(new TableHost(agents({ ...sample.agent, widest_mode: "sandbox" })));
    await user.click(screen.getByRole("button", { name: "Mode: sandbox" }));
    expect(screen.getByText("The agent chat only works in sandbox mode.")).toBeTruthy();
    expect(screen.queryByRole("button", { name: "Switch to full…" })).toBeNull();
    cleanup();
    await shown(new TableHost({ "GET /my/me": { ...sample.me, scopes: ["chat"] } }));
    await user.click(screen.getByRole("button", { name: "Mode: sandbox" }));
    expect(screen.getByText(/a person who may approve/)).toBeTruthy();
  });

  test("one of several agents is picked for the next message", async () => {
    const host = new TableHost({
      ...agents(sample.agent, { ...sample.agent, name: "careful" }),
      "POST /my/projects/p/chat/messages": { message_id: "m", session_id: "s", run_id: "r" },
    });
    const { user } = await shown(host);
    await user.click(screen.getByRole("combobox", { name: "Agent" }));
    await user.click(await screen.findByRole("option", { name: "careful" }));
    await user.type(writing(), "hi{Enter}");
    expect(host.asked.at(-1)?.body).toMatchObject({ agent: "careful", mode: "sandbox" });
  });
});

describe("this browser", () => {
  test("a code for a phone is made only when asked for, and says what it is", async () => {
    const made = {
      url: "http://192.168.1.10:8477/signin?code=abc",
      qr: ["101", "010", "111"],
      expires_in_seconds: 600,
    };
    const host = new TableHost({ "POST /my/signin/phone": made }, "browser");
    const { user } = await shown(host);
    const copied = vi.spyOn(navigator.clipboard, "writeText").mockResolvedValue();
    await user.click(screen.getByRole("button", { name: "Use your phone" }));
    expect(screen.getByText(/The first to open it is in/)).toBeTruthy();
    expect(host.asked.some((each) => each.path.startsWith("/my/signin"))).toBe(false);
    await user.click(screen.getByRole("button", { name: "Show a code" }));
    const link = await screen.findByRole<HTMLInputElement>("textbox", { name: "Sign-in link" });
    expect(link.value).toBe(made.url);
    const [light, dark] = screen.getByRole("img", { name: "Code to scan" }).querySelectorAll("path");
    expect(light?.getAttribute("d")).toBe("M0 0h11v11H0z");
    expect(dark?.getAttribute("d")?.match(/M\d+ \d+/g)).toEqual(["M4 4", "M6 4", "M5 5", "M4 6", "M5 6", "M6 6"]);
    expect(screen.getByText(/Notifications on the phone need https/)).toBeTruthy();
    await user.click(link);
    await user.click(screen.getByRole("button", { name: "Copy" }));
    expect(copied).toHaveBeenCalledWith(link.value);
    expect(await screen.findByText(/Copied/)).toBeTruthy();
    host.table["POST /my/signin/phone"] = new Refusal(500, { detail: "Broke." });
    await user.click(screen.getByRole("button", { name: "Make another" }));
    expect((await screen.findByRole("alert")).textContent).toContain("Broke.");
  });

  test("a server that only its own machine can open says how to change that, and gives a link for here", async () => {
    const refusal = new Refusal(409, { detail: "Only here.", hint: "Set BYLEAVE_PUBLIC_URL.", state: "local" });
    const link = { path: "/signin?code=abc", expires_in_seconds: 600 };
    const host = new TableHost({ "POST /my/signin/phone": refusal, "POST /my/signin": link }, "browser");
    const { user } = await shown(host);
    await user.click(screen.getByRole("button", { name: "Use your phone" }));
    await user.click(screen.getByRole("button", { name: "Show a code" }));
    const said = "Only here. Set BYLEAVE_PUBLIC_URL. The link below works on this machine only.";
    expect((await screen.findByRole("alert")).textContent).toBe(said);
    const field = await screen.findByRole<HTMLInputElement>("textbox", { name: "Sign-in link" });
    expect(field.value).toBe(`${location.origin}/signin?code=abc`);
    expect(screen.queryByRole("img", { name: "Code to scan" })).toBeNull();
  });

  test("notifications and sounds are off until they are turned on, and a refusal is said", async () => {
    const host = new TableHost() as TableHost & { alerts: object };
    const sounds = vi.fn();
    let refusal: string | null = "Not allowed.";
    const off = () => false;
    const setNotifies = async () => refusal;
    host.alerts = { notifies: off, sounds: off, setNotifies, setSounds: sounds, refusal: () => null };
    const { user } = await shown(host);
    expect(screen.queryByRole("checkbox")).toBeNull();
    await user.click(screen.getByRole("button", { name: "Settings" }));
    const notify = screen.getByRole<HTMLInputElement>("checkbox", { name: "Show a notification" });
    const sound = screen.getByRole<HTMLInputElement>("checkbox", { name: "Play a sound" });
    expect([notify.checked, sound.checked]).toEqual([false, false]);
    await user.click(notify);
    expect(await screen.findByText("Not allowed.")).toBeTruthy();
    expect(notify.checked).toBe(false);
    refusal = null;
    await user.click(notify);
    expect(notify.checked).toBe(true);
    await user.click(sound);
    expect(sounds).toHaveBeenCalledWith(true);
  });
});

test("a chat inside another page is mounted and taken away again", async () => {
  const { mountByleave } = await import("../src/embed");
  vi.stubGlobal("fetch", async () => new Response("{}", { status: 401 }));
  const place = document.createElement("div");
  document.body.append(place);
  const unmount = await act(async () => mountByleave(place, { server: "https://a.example/", token: "t" }));
  const again = await act(async () => mountByleave(place, { server: "https://a.example", token: "t", styles: false }));
  await within(place).findAllByText("You are not signed in");
  expect(document.querySelectorAll('link[href="https://a.example/page/byleave.css"]')).toHaveLength(1);
  await act(async () => {
    unmount();
    again();
  });
  expect(place.childElementCount).toBe(0);
  place.remove();
  vi.unstubAllGlobals();
  expect(new Problem("x", 0).hint).toBeNull();
});
