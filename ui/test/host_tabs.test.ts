import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { FeedListener, Frame } from "../src/host";
import { ANSWER_MS, KEPT, Tabs } from "../src/tabs";

type Work = () => unknown;
interface Held {
  name: string;
  shared: boolean;
  end: () => void;
}

/** Locks as a browser has them: one holder, others in line; and one that steals. */
class Locks {
  held: Held[] = [];
  line: { name: string; shared: boolean; grant: () => void }[] = [];
  /** The first that is stolen from and does not know it yet; null: who is stolen from is told at once. */
  untold: (() => void)[] | null = null;
  query = async () => ({ held: this.held.map(({ name }) => ({ name })) });

  request(name: string, options: LockOptions, work: Work): Promise<unknown> {
    return new Promise((resolve, reject) => {
      const shared = options.mode === "shared";
      const waits = { name, shared, grant: () => {} };
      const stolen = () => reject(new DOMException("stolen", "AbortError"));
      waits.grant = () => {
        const held: Held = { name, shared, end: stolen };
        this.held.push(held);
        void Promise.resolve(work()).then((value) => {
          this.held = this.held.filter((each) => each !== held);
          resolve(value);
          this.#next();
        });
      };
      if (options.steal) {
        for (const each of this.held.filter((held) => held.name === name)) {
          if (this.untold?.length === 0) this.untold.push(each.end);
          else each.end();
        }
        this.held = this.held.filter((held) => held.name !== name);
        waits.grant();
        return;
      }
      options.signal?.addEventListener("abort", () => {
        this.line = this.line.filter((each) => each !== waits);
        reject(new DOMException("aborted", "AbortError"));
      });
      this.line.push(waits);
      queueMicrotask(() => this.#next());
    });
  }

  #next(): void {
    for (const waits of [...this.line]) {
      if (this.held.some(({ name, shared }) => name === waits.name && !(shared && waits.shared))) continue;
      this.line = this.line.filter((each) => each !== waits);
      waits.grant();
    }
  }
}

/** A channel that tells all others, as a browser does; a frozen tab hears nothing. */
class Channel {
  static all: Channel[] = [];
  static frozen = new Set<Channel>();
  onmessage: ((event: { data: unknown }) => void) | null = null;
  readonly name: string;
  constructor(name: string) {
    this.name = name;
    Channel.all.push(this);
  }
  postMessage(data: unknown): void {
    const others = Channel.all.filter((each) => each !== this && each.name === this.name);
    queueMicrotask(() => {
      for (const each of others)
        if (Channel.all.includes(each) && !Channel.frozen.has(each)) each.onmessage?.({ data });
    });
  }
  close(): void {
    Channel.all = Channel.all.filter((each) => each !== this);
  }
}

let locks: Locks;
let looks: boolean;

beforeEach(() => {
  vi.useFakeTimers();
  locks = new Locks();
  looks = false;
  Channel.all = [];
  Channel.frozen.clear();
  vi.stubGlobal("navigator", { locks });
  vi.stubGlobal("BroadcastChannel", Channel);
  vi.spyOn(document, "hasFocus").mockImplementation(() => looks);
});
afterEach(() => {
  window.dispatchEvent(new Event("pagehide")); // every tab of the test ends
  vi.restoreAllMocks();
  vi.unstubAllGlobals();
  vi.useRealTimers();
});

const settled = () => vi.advanceTimersByTimeAsync(1);
const frame = (id: number): Frame => ({ id: String(id), event: "x", data: String(id) });

/** A tab; the listener of each stream that it opens is kept, to speak as the server. */
async function tab(last: string | null = null) {
  const heard: string[] = [];
  const streams: { from: string | null; tell: FeedListener; closed: boolean }[] = [];
  const tabs = new Tabs();
  const end = tabs.listen(
    "/feed",
    last,
    (from, tell) => {
      const stream = { from, tell, closed: false };
      streams.push(stream);
      return () => {
        stream.closed = true;
      };
    },
    {
      open: () => heard.push("open"),
      frame: ({ data }) => heard.push(data),
      missed: () => heard.push("missed"),
      closed: (status) => heard.push(`closed ${status}`),
    },
  );
  await settled();
  return { tabs, heard, streams, end };
}

type Tab = Awaited<ReturnType<typeof tab>>;
const server = (of: Tab) => of.streams.at(-1)?.tell as FeedListener;

async function three(): Promise<[Tab, Tab, Tab]> {
  const first = await tab();
  server(first).open();
  await settled();
  return [first, await tab(), await tab()];
}

test("of several tabs one holds the stream, and all hear what it tells", async () => {
  const [first, second, third] = await three();
  server(first).frame(frame(1));
  await settled();
  expect([first, second, third].map(({ streams }) => streams.length)).toEqual([1, 0, 0]);
  for (const each of [first, second, third]) expect(each.heard).toEqual(["open", "1"]);
});

test("when it goes another takes its place from the last event it heard, and nobody misses or repeats one", async () => {
  const [first, second, third] = await three();
  server(first).frame(frame(7));
  await settled();
  first.end();
  await settled();
  expect(second.streams[0]?.from).toBe("7");
  server(second).open();
  server(second).frame(frame(8));
  await settled();
  for (const each of [second, third]) expect(each.heard).toEqual(["open", "7", "8"]);
  expect(first.heard).toEqual(["open", "7"]);
  expect(first.streams[0]?.closed).toBe(true);
});

test("when nothing was heard yet, what came between two streams is unknown, and is said to all", async () => {
  const [first, second, third] = await three();
  first.end();
  await settled();
  expect(second.streams[0]?.from).toBeNull();
  server(second).open();
  await settled();
  for (const each of [second, third]) expect(each.heard).toEqual(["open", "missed"]);
});

test("a stream that breaks off is told to the tab that held it, and the next one tries at once", async () => {
  const [first, second] = await three();
  server(first).closed(503);
  await settled();
  expect(first.heard).toEqual(["open", "closed 503"]);
  expect(second.streams).toHaveLength(1);
});

test("one that comes in between is told what it has not heard, as far as that is known", async () => {
  const first = await tab("10");
  server(first).open();
  for (let id = 11; id <= 10 + KEPT; id += 1) server(first).frame(frame(id));
  const near = await tab(String(8 + KEPT));
  expect(near.heard).toEqual(["open", String(9 + KEPT), String(10 + KEPT)]);
  const upToDate = await tab(String(10 + KEPT));
  expect(upToDate.heard).toEqual(["open"]);
  server(first).frame(frame(11 + KEPT));
  await settled();
  const far = await tab("10");
  expect(far.heard).toEqual(["open", "missed"]);
  server(first).frame(frame(12 + KEPT));
  await settled();
  expect(far.heard.at(-1)).toBe(String(12 + KEPT));
  expect(near.heard.at(-1)).toBe(String(12 + KEPT));
});

test("a server that counts anew is said to all, and what it tells is heard", async () => {
  const [first, second] = await three();
  server(first).frame(frame(9));
  await settled();
  first.end();
  await settled();
  server(second).open();
  server(second).frame(frame(2));
  server(second).frame(frame(3));
  await settled();
  const third = await tab("3");
  expect(second.heard).toEqual(["open", "9", "missed", "2", "3"]);
  expect(third.heard).toEqual(["open"]);
});

test("one that holds the stream and gives no sign of life loses it, and hears again when it is back", async () => {
  const first = await tab();
  server(first).open();
  const second = await tab();
  server(first).frame(frame(4));
  await settled();
  const [frozen] = Channel.all;
  if (frozen) Channel.frozen.add(frozen);
  looks = true;
  window.dispatchEvent(new Event("focus"));
  await vi.advanceTimersByTimeAsync(ANSWER_MS);
  expect(first.streams[0]?.closed).toBe(true);
  expect(second.streams[0]?.from).toBe("4");
  server(second).open();
  server(second).frame(frame(5));
  await settled();
  Channel.frozen.clear();
  second.end();
  await settled();
  expect(first.streams[1]?.from).toBe("4");
  server(first).frame(frame(5));
  expect([first.heard, second.heard]).toEqual([
    ["open", "4", "5"],
    ["open", "4", "5"],
  ]);
});

test("one that answers keeps it, however often it is asked", async () => {
  const [first, second] = await three();
  for (let time = 0; time < 3; time += 1) {
    window.dispatchEvent(new Event("focus"));
    await vi.advanceTimersByTimeAsync(ANSWER_MS * 10);
  }
  expect(first.streams[0]?.closed).toBe(false);
  expect(second.streams).toEqual([]);
});

test("a page that the browser puts aside lets go, and says that it is closed", async () => {
  const first = await tab();
  server(first).open();
  window.dispatchEvent(new Event("pagehide"));
  await settled();
  expect(first.heard).toEqual(["open", "closed 0"]);
  expect(first.streams[0]?.closed).toBe(true);
  server(first).frame(frame(1));
  server(first).closed(0);
  expect(first.heard).toEqual(["open", "closed 0"]);
});

test("ended before it was its turn, it opens nothing; and twice is once", async () => {
  const [first, second, third] = await three();
  second.end();
  second.end();
  first.end();
  await settled();
  expect(second.streams).toEqual([]);
  expect(third.streams).toHaveLength(1);
});

test("the one that holds the stream tells who looks elsewhere, unless somebody looks at one of the tabs", async () => {
  const [first, second] = await three();
  expect([await first.tabs.tells(), await second.tabs.tells()]).toEqual([true, false]);
  looks = true;
  window.dispatchEvent(new Event("focus"));
  await settled();
  expect(await first.tabs.tells()).toBe(false);
  looks = false;
  window.dispatchEvent(new Event("blur"));
  await settled();
  expect(await first.tabs.tells()).toBe(true);
  expect(await new Tabs().tells()).toBe(true);
});

test("without locks every tab holds its own", async () => {
  vi.stubGlobal("navigator", {});
  const open = vi.fn(() => () => {});
  const listener = { open() {}, frame() {}, closed() {} };
  const tabs = new Tabs();
  tabs.listen("/feed", "3", open, listener);
  expect(open).toHaveBeenCalledWith("3", listener);
  expect(await tabs.tells()).toBe(true);
});

/** The first tab was frozen and is back: the second holds the stream by now, and the first does not know it yet. */
async function twoAtOnce(): Promise<[Tab, Tab]> {
  const first = await tab("0");
  server(first).open();
  const second = await tab("0");
  for (const id of [1, 2, 3]) server(first).frame(frame(id));
  await settled();
  const [frozen] = Channel.all;
  if (frozen) Channel.frozen.add(frozen);
  locks.untold = [];
  looks = true;
  window.dispatchEvent(new Event("focus"));
  await vi.advanceTimersByTimeAsync(ANSWER_MS);
  server(second).open();
  for (const id of [4, 5]) server(second).frame(frame(id));
  await settled();
  Channel.frozen.clear();
  return [first, second];
}

test("one that lost the stream and does not know it yet misleads nobody who comes in", async () => {
  const [first, second] = await twoAtOnce();
  const third = await tab("1");
  server(second).frame(frame(6));
  await settled();
  expect(third.heard).toEqual(["open", "2", "3", "4", "5", "6"]);
  for (const tell of locks.untold ?? []) tell();
  await settled();
  expect(first.heard).toEqual(["open", "1", "2", "3", "4", "5", "6"]);
});

test("what it still hears itself is told to nobody, or what the new one tells would count as heard before", async () => {
  const [first, second] = await twoAtOnce();
  const third = await tab("5");
  server(first).frame(frame(7));
  await settled();
  server(second).frame(frame(6));
  server(second).frame(frame(7));
  await settled();
  expect(third.heard).toEqual(["open", "6", "7"]);
});

test("one whose clock is behind is heard all the same when it takes the stream", async () => {
  const [first, second, third] = await three();
  server(first).frame(frame(1));
  await settled();
  vi.setSystemTime(Date.now() - 3_600_000);
  const [frozen] = Channel.all;
  if (frozen) Channel.frozen.add(frozen);
  locks.untold = [];
  const fresh = await tab("1");
  await vi.advanceTimersByTimeAsync(ANSWER_MS);
  const others = [second, third, fresh];
  server(fresh).open();
  server(fresh).frame(frame(2));
  await settled();
  for (const each of others) expect(each.heard).toEqual(each === fresh ? ["open", "2"] : ["open", "1", "2"]);
  Channel.frozen.clear();
  for (const tell of locks.untold) tell();
  await settled();
  server(fresh).frame(frame(3));
  await settled();
  for (const each of [first, ...others]) expect(each.heard.slice(-2)).toEqual(["2", "3"]);
});

test("a browser that denies locks is asked once, and the tab holds its own stream", async () => {
  const request = vi.fn(async () => {
    if (request.mock.calls.length > 5) return new Promise(() => {}); // what would go on without end must not hang the test
    throw new DOMException("denied", "SecurityError");
  });
  const denied = async () => {
    throw new DOMException("denied", "SecurityError");
  };
  vi.stubGlobal("navigator", { locks: { request, query: denied } });
  looks = true;
  const only = await tab("3");
  expect(only.streams.map(({ from }) => from)).toEqual(["3"]);
  expect(request.mock.calls.length).toBeLessThan(4);
  server(only).open();
  server(only).frame(frame(4));
  expect(only.heard).toEqual(["open", "4"]);
  expect(await only.tabs.tells()).toBe(true);
});
