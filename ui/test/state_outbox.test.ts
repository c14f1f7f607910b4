// @vitest-environment node
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { Api, Problem, RESEND_MS } from "../src/api";
import { Outbox, SAME_MS, YOUNG_MS } from "../src/state/outbox";
import { Refusal, TableHost } from "./state_samples";

const POST = "POST /my/projects/p/chat/messages";
const accepted = { message_id: "m", session_id: "s", run_id: "r" };
const hi = { content: "hi", session_id: "s" };

beforeEach(() => vi.useFakeTimers());
afterEach(() => vi.useRealTimers());

function tabs(reply: unknown) {
  const host = new TableHost({ [POST]: reply });
  const tab = () => new Outbox(host, new Api(host));
  const names = () => host.asked.map(({ body }) => (body as { client_key: string }).client_key);
  return { host, names, one: tab(), other: tab() };
}

/** Sends one whose answers are all lost. */
async function lose(outbox: Outbox, message: { content: string; session_id: string }): Promise<void> {
  const sending = expect(outbox.send("p", message)).rejects.toBeInstanceOf(Problem);
  await vi.advanceTimersByTimeAsync(RESEND_MS[0] + RESEND_MS[1]);
  await sending;
}

test.each([
  [SAME_MS - 10_000, 1],
  [SAME_MS + 10_000, 2],
])("the same words %i ms after an answer was lost go under so many names in all: %i", async (later, many) => {
  const { host, names, one } = tabs(new Refusal(503));
  await lose(one, hi);
  host.table[POST] = accepted;
  await vi.advanceTimersByTimeAsync(later);
  await one.send("p", hi);
  expect(new Set(names()).size).toBe(many);
});

test("what was on its way when the page was left long ago is given back, once; what the person has back is not", async () => {
  const { host, names, one, other } = tabs(() => new Promise(() => {}));
  void one.send("p", hi);
  await vi.advanceTimersByTimeAsync(YOUNG_MS - 1);
  expect([other.stranded("p", "s"), other.interrupted("p", "s")?.content]).toEqual([null, "hi"]);
  await vi.advanceTimersByTimeAsync(1);
  expect(other.interrupted("p", "s")).toBeNull();
  expect(other.stranded("p", null)).toBeNull();
  expect([other.stranded("p", "s"), other.stranded("p", "s")]).toEqual(["hi", null]);
  host.table[POST] = accepted;
  await other.send("p", hi);
  expect(new Set(names()).size).toBe(1); // it may have arrived the first time
  host.table[POST] = new Refusal(503);
  await lose(one, hi);
  await vi.advanceTimersByTimeAsync(YOUNG_MS);
  expect(other.stranded("p", "s")).toBeNull();
});

test("what one tab still tries to send is not stranded for another", async () => {
  const slow = () => new Promise((resolve) => setTimeout(() => resolve(new Refusal(503)), 60_000));
  const { one, other } = tabs(slow);
  const sending = expect(one.send("p", hi)).rejects.toBeInstanceOf(Problem);
  for (let waited = 0; waited < 180_000; waited += 20_000) {
    expect(other.stranded("p", "s")).toBeNull();
    await vi.advanceTimersByTimeAsync(20_000);
  }
  await vi.advanceTimersByTimeAsync(RESEND_MS[0] + RESEND_MS[1]);
  await sending;
});

test("a message of another tab that is on its way is not forgotten for one that failed here", async () => {
  const { one, other } = tabs((body: unknown) =>
    (body as { content: string }).content === "hi" ? new Refusal(503) : new Promise(() => {}),
  );
  const sending = expect(one.send("p", hi)).rejects.toBeInstanceOf(Problem);
  await vi.advanceTimersByTimeAsync(1);
  void other.send("p", { content: "another", session_id: "s" });
  await vi.advanceTimersByTimeAsync(RESEND_MS[0] + RESEND_MS[1]);
  await sending;
  expect(one.interrupted("p", "s")?.content).toBe("another");
});
