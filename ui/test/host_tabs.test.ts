import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { FeedListener } from "../src/host";
import { MOST_LISTENING, Tabs } from "../src/tabs";

let held: string[];
let sight: DocumentVisibilityState;
const settled = () => new Promise((resolve) => setTimeout(resolve, 0));

beforeEach(() => {
  held = [];
  sight = "visible";
  vi.spyOn(document, "visibilityState", "get").mockImplementation(() => sight);
  const locks = {
    request: async (name: string, work: () => Promise<never>) => {
      held.push(name);
      return work();
    },
    query: async () => ({ held: [{ name: "somebody else's" }, {}, ...held.map((name) => ({ name }))] }),
  };
  vi.stubGlobal("navigator", { locks });
});
afterEach(() => {
  vi.restoreAllMocks();
  vi.unstubAllGlobals();
});

function hearing() {
  return { open: vi.fn(), frame: vi.fn(), closed: vi.fn() };
}

/** A tab that listens; the stream's own listener is kept to speak as the server. */
async function tab() {
  const listener = hearing();
  const streams: FeedListener[] = [];
  const close = vi.fn();
  const open = vi.fn((heard: FeedListener) => {
    streams.push(heard);
    return close;
  });
  const tabs = new Tabs();
  const end = tabs.listen(open, listener);
  await settled();
  return { tabs, listener, streams, close, open, end };
}

async function hide() {
  sight = "hidden";
  document.dispatchEvent(new Event("visibilitychange"));
  await settled();
}

test("a tab that is looked at listens, however many there are", async () => {
  const all = await Promise.all(Array.from({ length: MOST_LISTENING + 5 }, tab));
  expect(all.every(({ open }) => open.mock.calls.length === 1)).toBe(true);
  const { streams, listener } = all[0] as Awaited<ReturnType<typeof tab>>;
  streams[0]?.open();
  streams[0]?.frame({ id: "1", event: "x", data: "{}" });
  expect(listener.open).toHaveBeenCalledOnce();
  expect(listener.frame).toHaveBeenCalledWith({ id: "1", event: "x", data: "{}" });
});

test("of many that nobody looks at one goes on, and the others hear that they are closed", async () => {
  const all = await Promise.all(Array.from({ length: MOST_LISTENING + 3 }, tab));
  await hide();
  expect(all.filter(({ close }) => close.mock.calls.length === 0)).toHaveLength(1);
  expect(all.filter(({ listener }) => listener.closed.mock.calls.length === 1)).toHaveLength(MOST_LISTENING + 2);
});

test("a few go on listening out of sight", async () => {
  const all = await Promise.all(Array.from({ length: MOST_LISTENING }, tab));
  await hide();
  expect(all.some(({ listener }) => listener.closed.mock.calls.length > 0)).toBe(false);
});

test("one that is opened out of sight, one too many, opens no stream and says so", async () => {
  await Promise.all(Array.from({ length: MOST_LISTENING + 1 }, tab));
  sight = "hidden";
  held.push("assent tab "); // the first by name
  const { open, listener } = await tab();
  expect(open).not.toHaveBeenCalled();
  expect(listener.closed).toHaveBeenCalledWith(0);
});

test("hears how its stream ended, once, and nothing after it was ended", async () => {
  const { streams, listener, end, close } = await tab();
  streams[0]?.closed(401);
  expect(listener.closed).toHaveBeenCalledWith(401);
  await hide();
  end();
  expect(listener.closed).toHaveBeenCalledOnce();
  expect(close).toHaveBeenCalled();
});

test("a tab that was ended before it was its turn opens nothing", async () => {
  const open = vi.fn(() => () => {});
  new Tabs().listen(open, hearing())();
  await settled();
  expect(open).not.toHaveBeenCalled();
});

test("without locks every tab listens at once", () => {
  vi.stubGlobal("navigator", {});
  const open = vi.fn(() => () => {});
  new Tabs().listen(open, hearing());
  expect(open).toHaveBeenCalledOnce();
});
