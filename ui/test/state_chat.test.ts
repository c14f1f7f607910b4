// @vitest-environment node
import type { ExecutionPage, MessageList } from "@protocol";
import { afterEach, describe, expect, test, vi } from "vitest";
import { Problem } from "../src/api";
import { FIRST_PAUSE_MS } from "../src/feed";
import { Chat } from "../src/state/chat";
import { PAGE } from "../src/state/record";
import { GATHER_MS } from "../src/state/store";
import * as sample from "./state_samples";
import { Refusal, TableHost } from "./state_samples";

const noWake = () => () => {};
afterEach(() => void vi.useRealTimers());

async function open(host: TableHost, session: string | null | undefined = undefined) {
  const chat = new Chat(host, noWake);
  await chat.start(null, session);
  return chat;
}

const state = (chat: Chat) => chat.store.get();
const ids = (chat: Chat) => state(chat).entries.map((entry) => entry.id);
const settled = () => new Promise((resolve) => setTimeout(resolve, 0));

describe("opening", () => {
  test("the newest session opens, with everything around it", async () => {
    const host = new TableHost({
      "GET /my/projects/p/chat/messages": { messages: [sample.message("m", 1)], total_count: 1, more: false },
      "GET /my/tools/history": { executions: [sample.execution("t", 2)], total_count: 1, next_cursor: null },
      "GET /my/approvals": { approvals: [sample.approval("q", 3)], total_count: 1 },
      "GET /my/grants": { grants: [sample.grant("g")], total_count: 1 },
    });
    const chat = await open(host);
    expect(state(chat)).toMatchObject({ link: "up", projectId: "p", sessionId: "s", loading: false, agent: "chat" });
    expect(ids(chat)).toEqual(["m", "t"]);
    expect(state(chat).questions).toHaveLength(1);
    expect(state(chat).grants).toHaveLength(1);
    expect(state(chat).machines).toHaveLength(1);
    chat.close();
    expect(host.streams[0]?.closed).toBe(true);
  });

  test("the session that was open before a reload opens again", async () => {
    const host = new TableHost({
      "GET /my/projects/p/chat/sessions": { sessions: [sample.session("new"), sample.session("old")], total_count: 2 },
    });
    host.remember("session p", "old");
    expect(state(await open(host)).sessionId).toBe("old");
    expect(state(await open(host, "new")).sessionId).toBe("new");
    expect(state(await open(host, null)).sessionId).toBeNull();
  });

  test("an agent's own session opens only when it is chosen", async () => {
    const own = sample.session("sess_agent_1", "bot-0123456789ab");
    const sessions = { sessions: [own, sample.session("s")], total_count: 2 };
    const host = new TableHost({ "GET /my/projects/p/chat/sessions": sessions });
    expect(state(await open(host)).sessionId).toBe("s");
    // Read once is not chosen for good: what is written next must not land in it.
    const chosen = await open(host, own.session_id);
    expect([state(chosen).sessionId, host.recall("session p")]).toEqual([own.session_id, own.session_id]);
    expect(state(await open(host)).sessionId).toBe("s");
    host.table["GET /my/projects/p/chat/sessions"] = { sessions: [own], total_count: 1 };
    expect(state(await open(host))).toMatchObject({ sessionId: null, loading: false, sessions: [own] });
  });

  test("without a session there is room for a new one, and without a project one is made", async () => {
    const host = new TableHost({
      "GET /my/projects": { projects: [], total_count: 0 },
      "POST /my/projects": { project_id: "p", name: "default", created_at: sample.at(0) },
      "GET /my/projects/p/chat/sessions": { sessions: [], total_count: 0 },
    });
    const chat = await open(host);
    expect(state(chat)).toMatchObject({ sessionId: null, loading: false, projectId: "p" });
  });

  test("events that come while the record loads are told after it", async () => {
    const host = new TableHost({
      "GET /my/tools/history": async () => {
        host.tell(sample.finished("t", 3), sample.said("answer", 4), sample.asked("q", 5));
        return {
          executions: [sample.execution("t", 2, { status: "executing", result: null })],
          total_count: 1,
          next_cursor: null,
        };
      },
    });
    const chat = await open(host);
    expect(ids(chat)).toEqual(["t", "answer"]);
    expect(state(chat).entries[0]).toMatchObject({ status: "completed" });
    expect(state(chat).questions).toHaveLength(1);
  });

  test("a reload while an agent works shows that it works, and how the last one ended when none does", async () => {
    const host = new TableHost({
      "GET /my/projects/p/chat/runs": { runs: [sample.listed("r", "waiting", 1)], total_count: 1 },
    });
    expect(state(await open(host)).runId).toBe("r");
    host.table["GET /my/projects/p/chat/runs"] = { runs: [sample.listed("r", "failed", 1, "Broke.")], total_count: 1 };
    const over = state(await open(host));
    expect(over.runId).toBeNull();
    expect(over.entries).toMatchObject([{ kind: "remark", text: "Broke." }]);
    // A server that does not tell is no reason to show nothing.
    host.table["GET /my/projects/p/chat/runs"] = new Refusal(404);
    expect(state(await open(host))).toMatchObject({ runId: null, notices: [], loading: false });
  });

  test("an event newer than the list of runs wins", async () => {
    const host = new TableHost({
      "GET /my/projects/p/chat/runs": async () => {
        host.tell(sample.run("done"));
        return { runs: [sample.listed("r", "running", 1)], total_count: 1 };
      },
    });
    expect(state(await open(host)).runId).toBeNull();
    host.table["GET /my/projects/p/chat/runs"] = async () => {
      host.tell(sample.run("running"));
      return { runs: [], total_count: 0 };
    };
    expect(state(await open(host)).runId).toBe("r");
  });

  test("what cannot be loaded is said, and the rest is there", async () => {
    const host = new TableHost({
      "GET /my/projects/p/agents": new Refusal(503, { detail: "No agent.", hint: "Install one." }),
    });
    const chat = await open(host);
    expect(state(chat)).toMatchObject({ notices: [], trouble: "No agent. Install one." });
    expect(state(chat).sessionId).toBe("s");
    chat.close();
  });

  test("what could not be read is read again after a pause, at once when the person asks, and when the line is back", async () => {
    vi.useFakeTimers();
    const host = new TableHost();
    const chat = await open(host);
    const good = host.table["GET /my/projects/p/chat/messages"];
    const lost = new Refusal(503, { detail: "Busy." });
    for (const recovers of [
      () => vi.advanceTimersByTimeAsync(FIRST_PAUSE_MS),
      async () => chat.tryAgain(),
      async () => host.stream.open(),
    ]) {
      host.table["GET /my/projects/p/chat/messages"] = lost;
      host.stream.missed?.();
      await vi.advanceTimersByTimeAsync(0);
      expect(state(chat)).toMatchObject({ trouble: "Busy.", loading: false });
      host.table["GET /my/projects/p/chat/messages"] = good;
      await recovers();
      await vi.advanceTimersByTimeAsync(0);
      expect(state(chat).trouble).toBeNull();
    }
    // The pauses grow, and nothing is tried any more once it is closed.
    host.table["GET /my/projects/p/chat/messages"] = lost;
    host.stream.missed?.();
    await vi.advanceTimersByTimeAsync(FIRST_PAUSE_MS);
    const before = host.asked.length;
    await vi.advanceTimersByTimeAsync(FIRST_PAUSE_MS);
    expect(host.asked.length).toBe(before);
    await vi.advanceTimersByTimeAsync(FIRST_PAUSE_MS);
    expect(host.asked.length).toBeGreaterThan(before);
    chat.close();
    const last = host.asked.length;
    await vi.advanceTimersByTimeAsync(60_000);
    expect(host.asked.length).toBe(last);
  });

  test("a record or a list that cannot be read is said", async () => {
    const host = new TableHost({
      "GET /my/projects/p/chat/messages": new Refusal(404, { detail: "No session." }),
      "GET /my/projects/p/chat/sessions": new Refusal(403, { detail: "No list." }),
    });
    const chat = await open(host, "gone");
    await settled();
    expect(state(chat).loading).toBe(false);
    expect(
      state(chat)
        .notices.map((each) => each.text)
        .sort(),
    ).toEqual(["No list.", "No session."]);
  });

  test("a server that is not there is tried again until it is", async () => {
    vi.useFakeTimers();
    let there = false;
    const host = new TableHost();
    const real = host.request.bind(host);
    host.request = (...given) => (there ? real(...given) : Promise.reject(new Error("refused")));
    const chat = new Chat(host, noWake);
    await chat.start(null, undefined);
    expect(state(chat)).toMatchObject({ link: "down", notices: [] });
    there = true;
    await vi.advanceTimersByTimeAsync(600);
    expect(state(chat)).toMatchObject({ link: "up", sessionId: "s" });
  });

  test("what else goes wrong at the start is said", async () => {
    const chat = await open(new TableHost({ "GET /my/me": new Refusal(403, { detail: "Not for you." }) }));
    expect(state(chat).notices).toMatchObject([{ text: "Not for you." }]);
  });

  test("who is not signed in sees nothing, at the start and at any later request", async () => {
    const out = await open(new TableHost({ "GET /my/me": new Refusal(401), "GET /my/projects": new Refusal(401) }));
    expect(state(out)).toMatchObject({ link: "signed-out", notices: [] });
    const host = new TableHost({ "POST /my/projects/p/chat/messages": new Refusal(401) });
    const chat = await open(host);
    await expect(chat.post("hi")).rejects.toThrow();
    expect(state(chat)).toMatchObject({ link: "signed-out", me: null, entries: [] });
    expect(host.streams[0]?.closed).toBe(true);
  });

  test("a stream that is refused for want of a sign-in signs out", async () => {
    const host = new TableHost();
    const chat = await open(host);
    host.stream.closed(401);
    expect(state(chat).link).toBe("signed-out");
  });

  test("a stream that cannot be opened does not keep the record from being read", async () => {
    const host = new TableHost();
    host.feed = (_path, _last, listener) => {
      listener.closed(0);
      return () => {};
    };
    const chat = await open(host);
    expect(state(chat)).toMatchObject({ link: "down", sessionId: "s", loading: false });
    chat.close();
  });

  test("of two readings the newer counts, though the older one's answer comes last", async () => {
    const answers: (() => void)[] = [];
    const host = new TableHost();
    const chat = await open(host);
    const late = (given: unknown) => new Promise((resolve) => answers.push(() => resolve(given)));
    const say = (id: string, questions: string[]) => {
      const messages = { messages: [sample.message(id, 1)], total_count: 1, more: false };
      const approvals = { approvals: questions.map((each) => sample.approval(each, 3)), total_count: questions.length };
      host.table["GET /my/projects/p/chat/messages"] = () => late(messages);
      host.table["GET /my/approvals"] = () => late(approvals);
      host.stream.missed?.();
    };
    say("old", []);
    await settled();
    say("new", ["q"]);
    await settled();
    expect(answers).toHaveLength(4);
    for (const answer of answers.reverse()) answer();
    await settled();
    expect(ids(chat)).toEqual(["new"]);
    expect(state(chat).questions.map(({ id }) => id)).toEqual(["q"]);
    expect(state(chat).loading).toBe(false);
  });

  test("after a gap the record is read again", async () => {
    vi.useFakeTimers();
    const host = new TableHost();
    const chat = await open(host);
    host.table["GET /my/projects/p/chat/messages"] = {
      messages: [sample.message("missed", 1)],
      total_count: 1,
      more: false,
    };
    host.table["GET /my/approvals"] = { approvals: [sample.approval("q", 3)], total_count: 1 };
    host.stream.closed(0);
    expect(state(chat).link).toBe("down");
    await vi.advanceTimersByTimeAsync(600);
    expect(ids(chat)).toEqual(["missed"]);
    expect(state(chat).questions).toHaveLength(1);
    await chat.openSession(null);
    host.stream.closed(0);
    await vi.advanceTimersByTimeAsync(600);
    expect(state(chat).sessionId).toBeNull();
  });

  test("another project is opened with nothing of the first", async () => {
    const host = new TableHost();
    for (const what of ["chat/sessions", "chat/messages", "agents", "machines"]) {
      host.table[`GET /my/projects/p2/${what}`] = host.table[`GET /my/projects/p/${what}`];
    }
    const chat = await open(host);
    const first = host.stream;
    host.tell(sample.asked("q", 1));
    await chat.openProject("p2");
    first.frame(sample.frame(sample.asked("late", 1), 99));
    expect(state(chat)).toMatchObject({ projectId: "p2", questions: [] });
    expect(host.kept.get("project")).toBe("p2");
  });
});

test("a project chosen while the first one still loads gets nothing of the first", async () => {
  let list: (value: unknown) => void = () => {};
  const host = new TableHost({ "GET /my/projects/p/chat/sessions": () => new Promise((resolve) => (list = resolve)) });
  for (const what of ["chat/messages", "agents", "machines"]) {
    host.table[`GET /my/projects/p2/${what}`] = host.table[`GET /my/projects/p/${what}`];
  }
  host.table["GET /my/projects/p2/chat/sessions"] = { sessions: [], total_count: 0 };
  const chat = new Chat(host, noWake);
  const starting = chat.start(null, undefined);
  await vi.waitFor(() => expect(host.asked.some((each) => each.path.endsWith("p/chat/sessions"))).toBe(true));
  const other = chat.openProject("p2");
  list({ sessions: [sample.session("s")], total_count: 1 });
  await Promise.all([starting, other]);
  expect(state(chat)).toMatchObject({ projectId: "p2", sessionId: null, sessions: [], notices: [] });
});

test("a record that fails after the person went elsewhere is not complained about", async () => {
  let refuse: (value: unknown) => void = () => {};
  const host = new TableHost();
  const chat = await open(host, null);
  host.table["GET /my/projects/p/chat/messages"] = () => new Promise((resolve) => (refuse = resolve));
  const opening = chat.openSession("gone");
  await settled();
  await chat.openSession(null);
  refuse(new Refusal(404));
  await opening;
  expect(state(chat)).toMatchObject({ sessionId: null, notices: [] });
});

describe("older entries", () => {
  /** Messages at even seconds and calls at odd ones, or as `when` says; both lists page as the server does. */
  function long(messages: number, calls: number, callAt = (index: number) => index * 2 + 1) {
    const said = Array.from({ length: messages }, (_, index) => sample.message(`m${index}`, index * 2));
    const done = Array.from({ length: calls }, (_, index) => sample.execution(`t${index}`, callAt(index))).reverse();
    return new TableHost({
      "GET /my/projects/p/chat/messages": (_: unknown, path: string): MessageList => {
        const query = new URLSearchParams(path.split("?")[1]);
        const before = query.get("before");
        const end = before === null ? said.length : said.findIndex((each) => each.message_id === before);
        const page = said.slice(Math.max(0, end - Number(query.get("limit"))), end);
        return { messages: page, total_count: page.length, more: end - page.length > 0 };
      },
      "GET /my/tools/history": (_: unknown, path: string): ExecutionPage => {
        const query = new URLSearchParams(path.split("?")[1]);
        const from = Number(query.get("cursor") ?? 0);
        const to = from + Number(query.get("limit"));
        return {
          executions: done.slice(from, to),
          total_count: done.length,
          total_is_exact: true,
          next_cursor: to < done.length ? String(to) : null,
        };
      },
    });
  }

  test("pages of messages and calls come together in order, to the very first, none twice", async () => {
    const chat = await open(long(200, 130));
    const first = ids(chat);
    expect(first.length).toBeLessThan(2 * PAGE + 1);
    while (state(chat).older) {
      const before = ids(chat);
      await chat.loadOlder();
      // What is there stays where it is: everything new comes in front.
      expect(ids(chat).slice(-before.length)).toEqual(before);
    }
    const times = state(chat).entries.map((entry) => entry.at);
    expect(times).toEqual([...times].sort((one, other) => one - other));
    expect(new Set(ids(chat)).size).toBe(330);
  });

  test("calls that are all younger than the messages do not hide them", async () => {
    const chat = await open(long(100, 300, (index) => 1000 + index));
    while (state(chat).older) await chat.loadOlder();
    expect(ids(chat)).toHaveLength(400);
    expect(ids(chat)[0]).toBe("m0");
  });

  test("a page that cannot be read is said, and can be asked for again", async () => {
    const host = long(100, 0);
    const chat = await open(host);
    const good = host.table["GET /my/projects/p/chat/messages"];
    host.table["GET /my/projects/p/chat/messages"] = new Refusal(500, { detail: "Later." });
    vi.useFakeTimers();
    await chat.loadOlder();
    expect(state(chat)).toMatchObject({ loadingOlder: false, older: true, olderTrouble: "Later." });
    const asked = host.asked.length;
    await chat.loadOlder();
    expect(host.asked).toHaveLength(asked); // scrolling on asks for nothing meanwhile
    await vi.advanceTimersByTimeAsync(FIRST_PAUSE_MS);
    expect(host.asked).toHaveLength(asked + 1);
    host.table["GET /my/projects/p/chat/messages"] = good;
    await chat.loadOlder(true);
    expect(state(chat).olderTrouble).toBeNull();
    expect(ids(chat)).toHaveLength(100);
    await chat.loadOlder();
    expect(ids(chat)).toHaveLength(100);
  });
});

describe("sending and stopping", () => {
  const accepted = { message_id: "m", session_id: "s", run_id: "r" };

  test("a message goes with its agent and mode, into the session that is open", async () => {
    const host = new TableHost({ "POST /my/projects/p/chat/messages": accepted });
    const chat = await open(host);
    chat.setMode("chat", "full");
    await chat.post("hi");
    const key = expect.stringMatching(/^[0-9a-f]{32}$/);
    expect(host.asked.at(-1)?.body).toEqual({
      content: "hi",
      session_id: "s",
      agent: "chat",
      mode: "full",
      client_key: key,
    });
    expect(state(chat)).toMatchObject({ runId: "r", entries: [{ id: "m", pending: false }] });
  });

  test("without agents neither agent nor mode is sent", async () => {
    const host = new TableHost({
      "POST /my/projects/p/chat/messages": accepted,
      "GET /my/projects/p/agents": { agents: [], total_count: 0 },
    });
    const chat = await open(host);
    await chat.post("hi");
    expect(Object.keys(host.asked.at(-1)?.body as object)).toEqual(["content", "session_id", "client_key"]);
  });

  const posted = (host: TableHost) =>
    host.asked.flatMap(({ method, body }) =>
      method === "POST" ? [body as { content: string; client_key: string }] : [],
    );

  test("a message whose answer is lost is sent again under the same name, by itself and then by the person", async () => {
    vi.useFakeTimers();
    const host = new TableHost({ "POST /my/projects/p/chat/messages": new Refusal(503, { detail: "Busy." }) });
    const chat = await open(host);
    const sending = expect(chat.post("hi")).rejects.toMatchObject({
      status: 503,
      hint: expect.stringContaining("Retrying is safe"),
    });
    await vi.advanceTimersByTimeAsync(3000);
    await sending;
    host.table["POST /my/projects/p/chat/messages"] = accepted;
    await chat.openSession("s"); // the person has it back: it does not go by itself
    expect(posted(host)).toHaveLength(3);
    await chat.post("hi");
    expect(new Set(posted(host).map(({ client_key }) => client_key)).size).toBe(1);
    await chat.post("hi");
    expect(posted(host).at(-1)?.client_key).not.toBe(posted(host)[0]?.client_key);
  });

  test("sent before the agents were known it keeps its name, unless the person chose another mode since", async () => {
    vi.useFakeTimers();
    for (const [mode, names] of [
      ["sandbox", 1],
      ["full", 2],
    ] as const) {
      const host = new TableHost({
        "POST /my/projects/p/chat/messages": new Refusal(503),
        "GET /my/projects/p/agents": { agents: [], total_count: 0 },
      });
      const chat = await open(host);
      const sending = expect(chat.post("hi")).rejects.toBeInstanceOf(Problem);
      await vi.advanceTimersByTimeAsync(3000);
      await sending;
      host.table["POST /my/projects/p/chat/messages"] = accepted;
      chat.store.do({ type: "agents", agents: [sample.agent] });
      chat.setMode("chat", mode);
      await chat.post("hi");
      expect(new Set(posted(host).map(({ client_key }) => client_key)).size).toBe(names);
    }
  });

  test("one that was changed, or refused, goes under a new name", async () => {
    vi.useFakeTimers();
    const host = new TableHost({ "POST /my/projects/p/chat/messages": new Refusal(503) });
    const chat = await open(host);
    for (const content of ["one", "two"]) {
      const sending = expect(chat.post(content)).rejects.toBeInstanceOf(Problem);
      await vi.advanceTimersByTimeAsync(3000);
      await sending;
    }
    host.table["POST /my/projects/p/chat/messages"] = new Refusal(409);
    await expect(chat.post("two")).rejects.toBeInstanceOf(Problem);
    await expect(chat.post("two")).rejects.toBeInstanceOf(Problem);
    expect(new Set(posted(host).map(({ client_key }) => client_key)).size).toBe(3);
  });

  test("one that was on its way when the page was left is sent when it is back, once", async () => {
    const host = new TableHost({ "POST /my/projects/p/chat/messages": accepted });
    const left = { body: { content: "hi", session_id: "s", client_key: "k" }, at: Date.now() };
    host.remember("sending p s", JSON.stringify(left));
    const chat = await open(host);
    await settled();
    expect(posted(host)).toEqual([left.body]);
    await chat.openSession("s");
    host.remember("sending p s", JSON.stringify({ ...left, at: Date.now() - 3_600_000 }));
    await chat.openSession("s");
    host.remember("sending p s", "nonsense");
    await chat.openSession("s");
    expect(posted(host)).toHaveLength(1);
  });

  test("what somebody else wrote in this browser is forgotten, and signing out elsewhere signs out here", async () => {
    const host = new TableHost();
    const forget = vi.fn();
    host.forget = forget;
    await open(host);
    const chat = await open(host);
    expect(forget).not.toHaveBeenCalled();
    host.remember("user", "bob");
    const other = await open(host);
    expect(forget).toHaveBeenCalledOnce();
    host.onSignedOut?.();
    expect(state(other).link).toBe("signed-out");
    expect(state(chat).link).toBe("up");
  });

  test("the first message opens its session, with what happened before we knew its name", async () => {
    const host = new TableHost({
      "GET /my/projects/p/chat/sessions": { sessions: [], total_count: 0 },
      "POST /my/projects/p/chat/messages": () => {
        host.tell(sample.started("early", 2));
        return accepted;
      },
      "GET /my/tools/history": { executions: [sample.execution("early", 2)], total_count: 1, next_cursor: null },
    });
    const chat = await open(host, null);
    host.table["GET /my/projects/p/chat/sessions"] = { sessions: [sample.session("s", "hi")], total_count: 1 };
    host.table["GET /my/projects/p/chat/messages"] = {
      messages: [sample.message("m", 1)],
      total_count: 1,
      more: false,
    };
    await chat.post("hi");
    expect(state(chat).sessionId).toBe("s");
    expect(ids(chat)).toEqual(["m", "early"]);
    expect(state(chat).sessions).toHaveLength(1);
  });

  test("what is refused is thrown with its reason and leaves the conversation", async () => {
    const host = new TableHost({
      "POST /my/projects/p/chat/messages": new Refusal(413, { detail: "Too long.", hint: "Shorter." }),
    });
    const chat = await open(host);
    await expect(chat.post("hi")).rejects.toMatchObject({ message: "Too long.", hint: "Shorter.", status: 413 });
    expect(ids(chat)).toEqual([]);
    await expect(new Chat(host, noWake).post("hi")).rejects.toBeInstanceOf(Problem);
  });

  test("an answer that comes after the person went elsewhere changes nothing there", async () => {
    let answer: (value: unknown) => void = () => {};
    const host = new TableHost({
      "POST /my/projects/p/chat/messages": () => new Promise((resolve) => (answer = resolve)),
    });
    const chat = await open(host);
    const posting = chat.post("hi");
    await settled();
    await chat.openSession(null);
    answer(accepted);
    await posting;
    expect(state(chat)).toMatchObject({ sessionId: null, entries: [], runId: null });
  });

  test("stop stops the run, and a run that is over already is no error", async () => {
    const host = new TableHost({ "POST /my/projects/p/chat/runs/r/cancel": { success: true, message: "" } });
    const chat = await open(host);
    await chat.stop();
    host.tell(sample.run("running"));
    await chat.stop();
    expect(host.asked.filter((each) => each.path.endsWith("/cancel"))).toHaveLength(1);
    host.table["POST /my/projects/p/chat/runs/r/cancel"] = new Refusal(409);
    await chat.stop();
    expect(state(chat)).toMatchObject({ runId: null, notices: [] });
    host.tell(sample.run("running"));
    host.table["POST /my/projects/p/chat/runs/r/cancel"] = new Refusal(500, { detail: "Broke." });
    await chat.stop();
    expect(state(chat).notices).toMatchObject([{ text: "Broke." }]);
  });
});

describe("beside the conversation", () => {
  test("a message of a session nobody knows brings the list anew", async () => {
    const host = new TableHost();
    const chat = await open(host);
    host.table["GET /my/projects/p/chat/sessions"] = {
      sessions: [sample.session("s"), sample.session("x")],
      total_count: 2,
    };
    host.tell(sample.said("m", 1, { session_id: "x" }));
    await settled();
    expect(state(chat).sessions).toHaveLength(2);
  });

  test("a call that ends without having begun here is fetched", async () => {
    const host = new TableHost({ "GET /my/tools/t": sample.execution("t", 1) });
    const chat = await open(host);
    host.tell(sample.finished("t", 2));
    await settled();
    expect(ids(chat)).toEqual(["t"]);
    host.tell(sample.finished("t", 2));
    await settled();
    expect(host.asked.filter((each) => each.path === "/my/tools/t")).toHaveLength(1);
  });

  test("text is gathered for a moment and shown at once when something else happens", async () => {
    const host = new TableHost();
    const chat = await open(host);
    vi.useFakeTimers();
    let drawn = 0;
    const off = chat.store.subscribe(() => {
      drawn += 1;
    });
    for (const piece of ["a", "b", "c"]) host.tell(sample.text(piece, 1));
    expect(drawn).toBe(0);
    await vi.advanceTimersByTimeAsync(GATHER_MS);
    expect(drawn).toBe(1);
    expect(state(chat).entries).toMatchObject([{ content: "abc" }]);
    host.tell(
      sample.text("d", 1),
      sample.started("t", 2),
      sample.output("t", "x"),
      sample.output("t", "y"),
      sample.output("t", "z", "stderr"),
    );
    await vi.advanceTimersByTimeAsync(GATHER_MS);
    expect(state(chat).entries).toMatchObject([{ output: [{ text: "xy" }, { text: "z" }] }, { content: "abcd" }]);
    off();
  });

  test("the server's clock counts, when it differs by seconds", async () => {
    const host = new TableHost();
    const chat = await open(host);
    const asking = vi.spyOn(host, "request");
    const hour = 3_600_000;
    asking.mockResolvedValue({ status: 200, body: { grants: [] }, serverTime: Date.now() + hour });
    await chat.api.grants("p");
    expect(Math.abs(chat.now() - Date.now() - hour)).toBeLessThan(1000);
    asking.mockResolvedValue({ status: 200, body: {}, serverTime: Date.now() + 900 });
    await chat.api.grants("p");
    expect(state(chat).serverAhead).toBe(0);
  });

  test("a card's answer and its dismissal are kept", async () => {
    const host = new TableHost({ "GET /my/approvals": { approvals: [sample.approval("q", 1)], total_count: 1 } });
    const chat = await open(host);
    chat.decided({
      question: sample.approval("q", 1),
      status: "approved",
      by: "person:alice",
      reason: null,
      here: true,
    });
    expect(state(chat)).toMatchObject({ questions: [], settled: [{ here: true }] });
    chat.dismiss("q");
    expect(state(chat).settled).toEqual([]);
    chat.pickAgent("nobody");
    expect(state(chat).agent).toBe("chat");
    chat.complain("odd");
    expect(state(chat).notices).toMatchObject([{ text: "odd", hint: null }]);
  });

  test("signing out empties the page; when it fails the person is told", async () => {
    const host = new TableHost();
    host.signOut = async () => {};
    const chat = await open(host);
    await chat.signOut();
    expect(state(chat).link).toBe("signed-out");
    const stuck = new TableHost();
    stuck.signOut = async () => {
      throw new Error("unreachable");
    };
    const other = await open(stuck);
    await other.signOut();
    expect(state(other).notices).toHaveLength(1);
    expect(state(other).link).toBe("up");
  });
});
