// The webview's document, the messages it may send, and the view around it.

import { beforeEach, describe, expect, test, vi } from "vitest";
import type { FeedListener } from "../../../ui/src/host.js";
import type { FromChat, ToChat } from "../../../ui/src/vscode_messages.js";
import type { EngineHost } from "../../src/engine/host.js";
import { Bridge } from "../../src/webview/bridge.js";
import { chatHtml } from "../../src/webview/html.js";
import { ChatView } from "../../src/webview/view.js";
import { EventEmitter, handlers, ran, reset, Uri } from "../editor/fake_vscode.js";
import { PATIENT } from "../waiting.js";

beforeEach(reset);

describe("the document", () => {
  test("lets in one script by its nonce, its own sheet, and nothing else", () => {
    const html = chatHtml(
      { script: "https://x/webview.js", style: "https://x/webview.css", source: "https://x" },
      "abc",
    );
    const policy = /content="([^"]*)"/.exec(html)?.[1];
    expect(policy).toBe(
      "default-src 'none'; script-src 'nonce-abc'; style-src https://x; font-src https://x; img-src https://x data:; base-uri 'none'; form-action 'none'",
    );
    expect(html.match(/<script/g)).toHaveLength(1);
    expect(html).toContain('nonce="abc"');
  });

  test("has another nonce each time, and names cannot break out of their quotes", () => {
    const parts = { script: '"><b>', style: "&", source: "s" };
    expect(chatHtml(parts)).not.toBe(chatHtml(parts));
    expect(chatHtml(parts)).toContain("&quot;>&lt;b>");
  });
});

function bridge() {
  const posted: ToChat[] = [];
  const ports = {
    post: (message: ToChat) => void posted.push(message),
    openFile: vi.fn(),
    showDiff: vi.fn(),
    run: vi.fn(),
    hello: vi.fn(),
  };
  const listeners: FeedListener[] = [];
  const close = vi.fn();
  const request = vi.fn(async (..._given: unknown[]) => ({ status: 200, body: {}, serverTime: null }));
  const host = {
    request,
    feed: vi.fn((_path: string, _last: string | null, listener: FeedListener) => {
      listeners.push(listener);
      return close;
    }),
  };
  const made = new Bridge(ports);
  made.use(host as unknown as EngineHost);
  return { made, ports, posted, host, listeners, close };
}

const FEED = "/my/projects/p/chat/stream?execute=false";

describe("the bridge", () => {
  test("carries a request out and sends the answer back under its number", async () => {
    const { made, posted, host } = bridge();
    made.hear({ type: "request", id: 3, method: "POST", path: "/my/projects", body: { name: "x" } });
    await vi.waitFor(() => expect(posted).toHaveLength(1), PATIENT);
    expect(host.request).toHaveBeenCalledWith("POST", "/my/projects", { name: "x" });
    expect(posted[0]).toMatchObject({ type: "answer", id: 3, answer: { status: 200 } });
  });

  test("says when the server cannot be reached, and when there is none", async () => {
    const { made, posted, host } = bridge();
    host.request.mockRejectedValueOnce(new Error("gone"));
    made.hear({ type: "request", id: 1, method: "GET", path: "/my/me" });
    await vi.waitFor(() => expect(posted).toEqual([{ type: "unreachable", id: 1 }]), PATIENT);
    made.use(null);
    made.hear({ type: "request", id: 2, method: "GET", path: "/my/me" });
    made.hear({ type: "feed", id: 3, path: FEED, lastEventId: null });
    await vi.waitFor(() => expect(posted).toHaveLength(3), PATIENT);
    expect(posted.slice(1)).toEqual([
      { type: "unreachable", id: 2 },
      { type: "feed-closed", id: 3, status: 0 },
    ]);
  });

  test.each(["/signin", "//evil/my/x", "http://evil/my/", "/my/../signin", "/my/a\\b", "/my/x#y", "/my/%2e%2e/x", ""])(
    "does not reach %s",
    async (path) => {
      const { made, posted, host } = bridge();
      made.hear({ type: "request", id: 1, method: "GET", path });
      await vi.waitFor(() => expect(posted).toHaveLength(1), PATIENT);
      expect(posted[0]).toMatchObject({ answer: { status: 400 } });
      expect(host.request).not.toHaveBeenCalled();
    },
  );

  test.each<["GET" | "POST", string]>([
    ["GET", "/my/signin"],
    ["POST", "/my/signin"],
    ["POST", "/my/tools/execute"],
    ["POST", "/my/projects/p/tools/t/result"],
    ["POST", "/my/approvals/a/confirm"],
    ["GET", "/my/projects/p/chat/stream?execute=false"],
    ["GET", "/my/projects/a%2Fb/agents"],
    ["POST", "/my/me"],
  ])("has no use for %s %s", async (method, path) => {
    const { made, posted, host } = bridge();
    made.hear({ type: "request", id: 1, method, path });
    await vi.waitFor(() => expect(posted).toMatchObject([{ answer: { status: 400 } }]), PATIENT);
    expect(host.request).not.toHaveBeenCalled();
  });

  test.each<["GET" | "POST", string]>([
    ["GET", "/my/approvals?project_id=p"],
    ["GET", "/my/approvals/a-1/change"],
    ["GET", "/my/tools/t/undo"],
    ["POST", "/my/projects/p/approvals/a/approve"],
    ["POST", "/my/projects/p/chat/messages"],
    ["GET", "/my/projects/p/audit/verify"],
  ])("carries %s %s", async (method, path) => {
    const { made, posted, host } = bridge();
    made.hear({ type: "request", id: 1, method, path });
    await vi.waitFor(() => expect(posted).toMatchObject([{ answer: { status: 200 } }]), PATIENT);
    expect(host.request).toHaveBeenCalledWith(method, path, undefined);
  });

  test("takes no other method", async () => {
    const { made, host } = bridge();
    made.hear({ type: "request", id: 1, method: "DELETE", path: "/my/me" } as unknown as FromChat);
    await Promise.resolve();
    expect(host.request).not.toHaveBeenCalled();
  });

  test("hands a feed's frames on, and closes it when asked", () => {
    const { made, posted, listeners, close } = bridge();
    made.hear({ type: "feed", id: 5, path: FEED, lastEventId: "12" });
    listeners[0]?.open();
    listeners[0]?.frame({ id: "13", event: "chat.run", data: "{}" });
    expect(posted.map((message) => message.type)).toEqual(["feed-open", "feed-frame"]);
    made.hear({ type: "unfeed", id: 5 });
    made.hear({ type: "unfeed", id: 5 });
    expect(close).toHaveBeenCalledTimes(1);
    made.hear({ type: "feed", id: 6, path: FEED, lastEventId: null });
    listeners[1]?.closed(503);
    expect(posted.at(-1)).toEqual({ type: "feed-closed", id: 6, status: 503 });
  });

  test("opens no feed that would execute, and not too many", () => {
    const { made, posted, host } = bridge();
    made.hear({ type: "feed", id: 1, path: "/my/projects/p/chat/stream?execute=true", lastEventId: null });
    made.hear({ type: "feed", id: 2, path: "/my/projects/p/chat/stream", lastEventId: "x" });
    expect(posted).toEqual([
      { type: "feed-closed", id: 1, status: 400 },
      { type: "feed-closed", id: 2, status: 400 },
    ]);
    for (let id = 10; id < 20; id++) made.hear({ type: "feed", id, path: FEED, lastEventId: "not a number" });
    expect(host.feed).toHaveBeenCalledTimes(8);
    expect(host.feed.mock.calls[0]?.[1]).toBeNull();
  });

  test("a page that was loaded anew, or another server, closes what was open", () => {
    const { made, ports, close, host } = bridge();
    made.hear({ type: "feed", id: 1, path: FEED, lastEventId: null });
    made.hear({ type: "hello" });
    expect(ports.hello).toHaveBeenCalled();
    expect(close).toHaveBeenCalledTimes(1);
    made.hear({ type: "feed", id: 2, path: FEED, lastEventId: null });
    made.use(host as unknown as EngineHost);
    expect(close).toHaveBeenCalledTimes(1);
    made.use(null);
    expect(close).toHaveBeenCalledTimes(2);
  });

  test("hands on what the editor does: files with a sane line, differences, commands", () => {
    const { made, ports } = bridge();
    made.hear({ type: "open-file", path: "a.ts", line: 3 });
    made.hear({ type: "open-file", path: "a.ts", line: -1 });
    made.hear({ type: "open-file", path: 1, line: 1 } as unknown as FromChat);
    made.hear({ type: "show-diff", title: "a", before: "b", after: "c", approvalId: "q" });
    made.hear({ type: "show-diff", title: "a", before: "b", after: "c", approvalId: null });
    made.hear({ type: "show-diff", title: "a", before: "b", after: "c", approvalId: 7 } as unknown as FromChat);
    made.hear({ type: "command", command: "byleave.signIn" });
    made.hear({ type: "nonsense" } as unknown as FromChat);
    made.hear(null as unknown as FromChat);
    expect(ports.openFile.mock.calls).toEqual([
      ["a.ts", 3],
      ["a.ts", null],
    ]);
    expect(ports.showDiff.mock.calls).toEqual([
      ["a", "b", "c", "q"],
      ["a", "b", "c", null],
      ["a", "b", "c", null],
    ]);
    expect(ports.run).toHaveBeenCalledWith("byleave.signIn");
  });
});

describe("the view", () => {
  function view() {
    const made = new ChatView(Uri.file("/ext") as never, { openFile: vi.fn(), showDiff: vi.fn() });
    const heard = new EventEmitter<unknown>();
    const gone = new EventEmitter<void>();
    const posted: ToChat[] = [];
    const webviewView = {
      visible: true,
      badge: undefined as unknown,
      onDidDispose: gone.event,
      webview: {
        options: {},
        html: "",
        cspSource: "https://source",
        onDidReceiveMessage: heard.event,
        asWebviewUri: (uri: Uri) => `https://source${uri.path}`,
        postMessage: async (message: ToChat) => posted.push(message),
      },
    };
    return { made, webviewView, heard, gone, posted, resolve: () => made.resolveWebviewView(webviewView as never) };
  }

  test("shows the document with its own files, and where the extension stands when the chat says hello", () => {
    const { made, webviewView, heard, posted, resolve } = view();
    expect(made.visible).toBe(false);
    resolve();
    expect(made.visible).toBe(true);
    expect(webviewView.webview.html).toContain("https://source/ext/dist/webview/webview.js");
    heard.fire({ type: "hello" });
    expect(posted).toEqual([]);
    made.show({ state: "ready", projectId: "p" }, null);
    heard.fire({ type: "hello" });
    expect(posted).toHaveLength(2);
    expect(posted[1]).toEqual({ type: "place", place: { state: "ready", projectId: "p" } });
  });

  test("runs commands of ours and no other", () => {
    const { heard, resolve } = view();
    resolve();
    handlers.set("byleave.signIn", () => {});
    heard.fire({ type: "command", command: "byleave.signIn" });
    heard.fire({ type: "command", command: "workbench.action.terminal.sendSequence" });
    expect(ran).toEqual([["byleave.signIn"]]);
  });

  test("counts what waits, and forgets a view that is gone", () => {
    const { made, webviewView, gone, resolve } = view();
    made.badge(1);
    resolve();
    made.badge(2);
    expect(webviewView.badge).toEqual({ value: 2, tooltip: "2 to review" });
    made.badge(0);
    expect(webviewView.badge).toBeUndefined();
    gone.fire();
    expect(made.visible).toBe(false);
  });

  test("takes the person to what waits, also when the chat is only being made", async () => {
    const { made, heard, posted, resolve } = view();
    await made.openWaiting();
    expect(ran).toEqual([["byleave.chat.focus"]]);
    resolve();
    heard.fire({ type: "hello" });
    expect(posted).toEqual([{ type: "show-waiting" }]);
    await made.openWaiting();
    expect(posted).toHaveLength(2);
  });
});
