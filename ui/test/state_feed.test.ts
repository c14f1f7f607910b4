import type { FeedEvent } from "@protocol";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { Feed, FIRST_PAUSE_MS, LONG_AWAY_MS, LONGEST_PAUSE_MS, wakeOfBrowser } from "../src/feed";
import { frame, said, TableHost } from "./state_samples";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

function listening(host = new TableHost()) {
  host.opens = false;
  const heard: string[] = [];
  let wake = () => {};
  let woken = true;
  const feed = new Feed(
    host,
    "p",
    {
      event: (event: FeedEvent) => heard.push(event.kind === "chat.message" ? event.message_id : event.kind),
      up: () => heard.push("up"),
      down: () => heard.push("down"),
      signedOut: () => heard.push("signed out"),
      gap: () => heard.push("gap"),
    },
    (listener) => {
      wake = listener;
      return () => {
        woken = false;
      };
    },
  );
  return { host, feed, heard, wake: () => wake(), listens: () => woken };
}

describe("the feed", () => {
  test("it watches and executes nothing", () => {
    const { host } = listening();
    expect(host.streams[0]).toMatchObject({ path: "/my/projects/p/chat/stream?execute=false", last: null });
  });

  test("after a break it goes on from the last event, and hands on each event once", async () => {
    const { host, heard } = listening();
    host.stream.open();
    host.stream.frame(frame(said("a", 1), 7));
    host.stream.closed(0);
    await vi.advanceTimersByTimeAsync(FIRST_PAUSE_MS);
    expect(host.streams[1]?.last).toBe("7");
    host.stream.open();
    host.stream.frame(frame(said("b", 2), 8));
    host.stream.frame(frame(said("b", 2), 8));
    expect(heard).toEqual(["up", "a", "down", "up", "b"]);
  });

  test("the old stream is not heard any more once it has ended", async () => {
    const { host, heard } = listening();
    const first = host.stream;
    first.closed(0);
    first.open();
    first.frame(frame(said("a", 1), 1));
    first.closed(0);
    expect(heard).toEqual(["down"]);
    await vi.advanceTimersByTimeAsync(60_000);
    expect(host.streams).toHaveLength(2);
  });

  test("the pauses grow up to fifteen seconds and start over when it is up", async () => {
    const { host } = listening();
    for (const pause of [500, 1000, 2000, 4000, 8000, LONGEST_PAUSE_MS, LONGEST_PAUSE_MS]) {
      const before = host.streams.length;
      host.stream.closed(503);
      await vi.advanceTimersByTimeAsync(pause - 1);
      expect(host.streams).toHaveLength(before);
      await vi.advanceTimersByTimeAsync(1);
      expect(host.streams).toHaveLength(before + 1);
    }
    host.stream.open();
    host.stream.closed(0);
    await vi.advanceTimersByTimeAsync(FIRST_PAUSE_MS);
    expect(host.streams).toHaveLength(9);
  });

  test("it tries at once when the browser is back, and only while it waits", () => {
    const { host, wake } = listening();
    wake();
    expect(host.streams).toHaveLength(1);
    host.stream.closed(0);
    wake();
    expect(host.streams).toHaveLength(2);
  });

  test("a break before the first event is a gap: what happened meanwhile is unknown", async () => {
    const { host, heard } = listening();
    host.stream.open();
    host.stream.closed(0);
    await vi.advanceTimersByTimeAsync(FIRST_PAUSE_MS);
    host.stream.open();
    expect(heard).toEqual(["up", "down", "up", "gap"]);
  });

  test("after a long time away the record is read instead of all events since", async () => {
    const { host, heard } = listening();
    host.stream.open();
    host.stream.frame(frame(said("a", 1), 7));
    host.stream.closed(0);
    await vi.advanceTimersByTimeAsync(FIRST_PAUSE_MS);
    vi.setSystemTime(Date.now() + LONG_AWAY_MS + 1);
    host.stream.closed(0);
    await vi.advanceTimersByTimeAsync(LONGEST_PAUSE_MS);
    expect(host.streams.at(-1)?.last).toBeNull();
    host.stream.open();
    expect(heard.at(-1)).toBe("gap");
  });

  test("a server that counts anew is noticed, and the record is read", async () => {
    const { host, heard } = listening();
    host.stream.open();
    host.stream.frame(frame(said("a", 1), 700));
    host.stream.closed(0);
    await vi.advanceTimersByTimeAsync(FIRST_PAUSE_MS);
    host.stream.open();
    host.stream.frame(frame(said("b", 2), 3));
    host.stream.frame(frame(said("c", 2), 4));
    expect(heard.slice(3)).toEqual(["up", "gap", "c"].slice(0));
  });

  test("who is no longer signed in is told, and nothing is tried again", async () => {
    const { host, heard, listens } = listening();
    host.stream.closed(401);
    await vi.advanceTimersByTimeAsync(60_000);
    expect(heard).toEqual(["signed out"]);
    expect(host.streams).toHaveLength(1);
    expect(listens()).toBe(false);
  });

  test("ended, it hears and does nothing any more", async () => {
    const { host, feed, heard } = listening();
    host.stream.closed(0);
    feed.end();
    await vi.advanceTimersByTimeAsync(60_000);
    const other = listening();
    other.feed.end();
    other.host.stream.open();
    expect(other.host.streams[0]?.closed).toBe(true);
    expect([heard, other.heard]).toEqual([["down"], []]);
    expect(host.streams).toHaveLength(1);
  });

  test("what is no event is left out", () => {
    const { host, heard } = listening();
    host.stream.frame({ id: "x", event: "a", data: "{" });
    host.stream.frame({ id: null, event: "a", data: "null" });
    host.stream.frame({ id: null, event: "a", data: '{"a":1}' });
    expect(heard).toEqual([]);
  });

  test("a host that refuses at once is tried again later", async () => {
    const host = new TableHost();
    let calls = 0;
    host.feed = (_path, _last, listener) => {
      calls += 1;
      listener.closed(503);
      return () => {};
    };
    const { feed } = listening(host);
    await vi.advanceTimersByTimeAsync(FIRST_PAUSE_MS);
    expect(calls).toBe(2);
    feed.end();
  });
});

test("the browser wakes the feed when it is online or looked at", () => {
  const woken = vi.fn();
  const off = wakeOfBrowser(woken);
  window.dispatchEvent(new Event("online"));
  document.dispatchEvent(new Event("visibilitychange"));
  expect(woken).toHaveBeenCalledTimes(2);
  vi.spyOn(document, "visibilityState", "get").mockReturnValue("hidden");
  document.dispatchEvent(new Event("visibilitychange"));
  expect(woken).toHaveBeenCalledTimes(2);
  off();
  window.dispatchEvent(new Event("online"));
  expect(woken).toHaveBeenCalledTimes(2);
  vi.restoreAllMocks();
});
