// @vitest-environment node
import { afterEach, expect, test, vi } from "vitest";
import { Problem } from "../src/api";
import { Chat } from "../src/state/chat";
import { YOUNG_MS } from "../src/state/outbox";
import * as sample from "./state_samples";
import { Refusal, TableHost } from "./state_samples";

const POST = "POST /my/projects/p/chat/messages";
afterEach(() => void vi.useRealTimers());

async function open(host: TableHost, session: string | null | undefined = undefined) {
  const chat = new Chat(host, () => () => {});
  await chat.start(null, session);
  return chat;
}

/** A page was left while this was on its way. */
function leave(host: TableHost, session: string | null, content: string, ago: number): void {
  const body = { content, session_id: session, client_key: "k" };
  host.remember(`sending p ${session ?? "new"}`, JSON.stringify({ body, at: Date.now() - ago }));
}

const posts = (host: TableHost) => host.asked.filter(({ method }) => method === "POST");
const notices = (chat: Chat) => chat.store.get().notices.map(({ text, hint }) => `${text} ${hint}`);

test.each(["s", null])(
  "what was stranded when the page was left long ago is in its field again: %s",
  async (session) => {
    const host = new TableHost();
    leave(host, session, "hello", YOUNG_MS + 1);
    host.remember(`draft p ${session ?? "new"}`, "next");
    const chat = await open(host, session);
    expect(host.recall(`draft p ${session ?? "new"}`)).toBe("hello\n\nnext");
    expect(posts(host)).toEqual([]);
    expect(notices(chat)).toEqual([expect.stringMatching(/got no answer.*field.*again/)]);
    await chat.openSession(session);
    expect(host.recall(`draft p ${session ?? "new"}`)).toBe("hello\n\nnext"); // once
  },
);

test.each([
  [503, "Busy."],
  [413, "Too long."],
])(
  "one that is sent when the page is back and is answered with %i comes back to the person",
  async (status, detail) => {
    vi.useFakeTimers();
    const host = new TableHost({ [POST]: new Refusal(status, { detail }) });
    leave(host, "s", "hello", 1000);
    const chat = await open(host);
    await vi.advanceTimersByTimeAsync(3000);
    expect(chat.store.get().returned).toEqual({ projectId: "p", sessionId: "s", text: "hello" });
    expect(notices(chat)).toEqual([expect.stringMatching(`${detail}.*field again`)]);
  },
);

test("when the person is elsewhere by then it waits there for them", async () => {
  vi.useFakeTimers();
  const host = new TableHost({ [POST]: new Refusal(503) });
  leave(host, "s", "hello", 1000);
  const chat = await open(host);
  host.remember("draft p s", "next");
  await chat.openSession("x");
  await vi.advanceTimersByTimeAsync(3000);
  expect(chat.store.get().returned).toBeNull();
  expect(host.recall("draft p s")).toBe("hello\n\nnext");
  expect(notices(chat)).toEqual([expect.stringContaining("conversation you wrote it in")]);
});

test("who has no project gets the one that their other tabs get", async () => {
  const host = new TableHost({
    "GET /my/projects": { projects: [], total_count: 0 },
    "POST /my/projects": { project_id: "p", name: "default", created_at: sample.at(0) },
  });
  await open(host);
  expect(posts(host).map(({ body }) => body)).toEqual([{ name: "default", if_none: true }]);
});

test("the same words again, when the first had arrived though its answer was lost: that is said, and goes nowhere else", async () => {
  vi.useFakeTimers();
  const host = new TableHost({ [POST]: new Refusal(503) });
  const chat = await open(host);
  const lost = expect(chat.post("go on")).rejects.toBeInstanceOf(Problem);
  await vi.advanceTimersByTimeAsync(3000);
  await lost;
  host.tell(sample.said("m", 5, { role: "user", content: "go on" })); // it had arrived
  host.table[POST] = () => {
    host.tell(sample.said("m2", 9, { role: "user", content: "go on" }));
    return { message_id: "m2", session_id: "s", run_id: "r2" };
  };
  const next = host.table[POST];
  host.table[POST] = { message_id: "m", session_id: "s", run_id: "r" };
  await chat.post("go on");
  expect(notices(chat)).toEqual([expect.stringContaining("had arrived already")]);
  host.table[POST] = next;
  await chat.post("go on"); // the feed may tell of it before the answer: that is no repeat
  expect(notices(chat)).toHaveLength(1);
  expect(chat.store.get().entries.map(({ id }) => id)).toEqual(["m", "m2"]);
});

test("a first message that another tab has on its way is sent from here too, and pulls nobody into its conversation", async () => {
  const host = new TableHost({ [POST]: { message_id: "m", session_id: "theirs", run_id: "r" } });
  const chat = await open(host);
  leave(host, null, "hello", 1000);
  await chat.openSession(null); // the person began a conversation of their own
  await vi.waitFor(() => expect(host.recall("sending p new")).toBeNull());
  expect(posts(host)).toHaveLength(1);
  expect(chat.store.get().sessionId).toBeNull();
  leave(host, null, "hello", 1000);
  const back = await open(host, null); // whose page was left comes back into it
  await vi.waitFor(() => expect(back.store.get().sessionId).toBe("theirs"));
});
