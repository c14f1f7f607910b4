// A chat that somebody else speaks for: what its messages can make the extension ask of the server with the token.

import { expect, test, vi } from "vitest";
import { Api } from "../../../ui/src/api.js";
import type { Host } from "../../../ui/src/host.js";
import type { FromChat, ToChat } from "../../../ui/src/vscode_messages.js";
import type { NodeHost } from "../../src/host/node_host.js";
import { Bridge } from "../../src/webview/bridge.js";
import { PATIENT } from "../tools/fakes.js";

const FEED = "/my/projects/p/chat/stream?execute=false";

function bridge() {
  const posted: ToChat[] = [];
  const nothing = () => {};
  const made = new Bridge({
    post: (message) => void posted.push(message),
    openFile: nothing,
    showDiff: nothing,
    run: nothing,
    hello: nothing,
  });
  const close = vi.fn();
  const host = {
    request: vi.fn(async (..._given: unknown[]) => ({ status: 200, body: {}, serverTime: null })),
    feed: vi.fn(() => close),
  };
  made.use(host as unknown as NodeHost);
  return { made, posted, host, close };
}

test.each([
  ["GET", "/my/projects/p/chat/stream"],
  ["GET", "/my/projects/p/chat/stream?execute=true&client=c"],
  ["GET", "/my/projects/p/chat/%73tream"],
  ["GET", "/my/projects/p%2Fchat%2Fstream"],
  ["POST", "/my/signin"],
  ["POST", "/my/projects/p/tools/t/result"],
  ["POST", "/my/projects/p/tools/t/inspection"],
  ["POST", "/my/projects/p/tools/t/undo-report"],
  ["GET", "/my/tools/a%2Fb"],
])("%s %s is not for the chat", async (method, path) => {
  const { made, posted, host } = bridge();
  made.hear({ type: "request", id: 1, method, path } as FromChat);
  await vi.waitFor(() => expect(posted).toHaveLength(1), PATIENT);
  expect(posted[0]).toMatchObject({ answer: { status: 400 } });
  expect(host.request).not.toHaveBeenCalled();
});

test("everything the chat has a use for is reached", async () => {
  const { made, host } = bridge();
  const asked: string[] = [];
  const request = async (method: "GET" | "POST", path: string, body?: unknown) => {
    asked.push(path);
    made.hear({ type: "request", id: 1, method, path, body });
    return { status: 200, body: {}, serverTime: null };
  };
  const api = new Api({ request } as unknown as Host);
  const ways = Object.entries(api).filter(([name, way]) => typeof way === "function" && name !== "signInLink");
  // A link for another device is asked for by the page in a browser only.
  for (const [, way] of ways) await (way as (...given: unknown[]) => Promise<unknown>)("x ü", "x_1", 1, 2);
  expect(ways.length).toBeGreaterThan(20);
  expect(host.request.mock.calls.map(([, path]) => path)).toEqual(asked);
});

test("a feed under a number that is taken closes the one that had it", () => {
  const { made, host, close } = bridge();
  for (let time = 0; time < 20; time += 1) made.hear({ type: "feed", id: 1, path: FEED, lastEventId: null });
  expect(close).toHaveBeenCalledTimes(host.feed.mock.calls.length - 1);
});
