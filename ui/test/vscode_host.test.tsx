// The chat's end of the editor's messages, and what the sidebar shows when there is no chat.

import { act, cleanup, render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, describe, expect, test, vi } from "vitest";
import { VsCodeHost } from "../src/vscode_host";
import type { FromChat, ToChat } from "../src/vscode_messages";
import { EditorView } from "../src/vscode_view";

vi.mock("../src/app/App", () => ({
  App: ({ projectId }: { projectId: string }) => <p>chat of {projectId}</p>,
}));
const hosts: VsCodeHost[] = [];

afterEach(() => {
  cleanup();
  for (const host of hosts.splice(0)) host.close();
});

function made(state: unknown = null) {
  const posted: FromChat[] = [];
  const kept = { state };
  const host = new VsCodeHost(
    {
      postMessage: (message) => void posted.push(message),
      getState: () => kept.state,
      setState: (next) => {
        kept.state = next;
      },
    },
    window,
  );
  hosts.push(host);
  const hear = (message: ToChat) =>
    act(() => void window.dispatchEvent(new MessageEvent("message", { data: message })));
  return { host, posted, kept, hear };
}

describe("the host in the editor", () => {
  test("says hello, and asks by number so that answers find their question", async () => {
    const { host, posted, hear } = made();
    const first = host.request("GET", "/my/me");
    const second = host.request("POST", "/my/projects", { name: "x" });
    expect(posted).toEqual([
      { type: "hello" },
      { type: "request", id: 1, method: "GET", path: "/my/me" },
      { type: "request", id: 2, method: "POST", path: "/my/projects", body: { name: "x" } },
    ]);
    hear({ type: "answer", id: 2, answer: { status: 201, body: "two", serverTime: null } });
    hear({ type: "answer", id: 1, answer: { status: 200, body: "one", serverTime: 5 } });
    hear({ type: "answer", id: 99, answer: { status: 200, body: "nobody's", serverTime: null } });
    expect(await first).toEqual({ status: 200, body: "one", serverTime: 5 });
    expect((await second).body).toBe("two");
  });

  test("rejects when the server cannot be reached", async () => {
    const { host, hear } = made();
    const asked = host.request("GET", "/my/me");
    hear({ type: "unreachable", id: 1 });
    hear({ type: "unreachable", id: 1 });
    await expect(asked).rejects.toThrow("cannot be reached");
  });

  test("hands a feed's events on until it ends or is closed", () => {
    const { host, posted, hear } = made();
    const heard: string[] = [];
    const listener = {
      open: () => void heard.push("open"),
      frame: ({ data }: { data: string }) => void heard.push(data),
      closed: (status: number) => void heard.push(`closed ${status}`),
    };
    const frame = (data: string) => ({ id: "1", event: "x", data });
    host.feed("/feed", "3", listener);
    hear({ type: "feed-open", id: 1 });
    hear({ type: "feed-frame", id: 1, frame: frame("a") });
    hear({ type: "feed-closed", id: 1, status: 503 });
    hear({ type: "feed-frame", id: 1, frame: frame("late") });
    const close = host.feed("/feed", null, listener);
    close();
    close();
    hear({ type: "feed-open", id: 2 });
    hear({ type: "feed-frame", id: 2, frame: frame("after") });
    hear({ type: "feed-closed", id: 2, status: 0 });
    expect(heard).toEqual(["open", "a", "closed 503"]);
    expect(posted.filter((message) => message.type === "unfeed")).toEqual([{ type: "unfeed", id: 2 }]);
  });

  test("remembers in the editor's own state for the view, and takes only texts from it", () => {
    const { host, kept } = made({ project: "p", broken: 3 });
    expect(host.recall("project")).toBe("p");
    expect(host.recall("broken")).toBeNull();
    host.remember("draft", "hello");
    host.remember("project", null);
    expect(kept.state).toEqual({ draft: "hello" });
    expect(made("nonsense").host.recall("x")).toBeNull();
    host.remember("draft p s", "mine");
    host.remember("diff", "split");
    host.forget();
    expect(kept.state).toEqual({ draft: "hello", diff: "split" });
  });

  test("knows which differences are open in the editor", () => {
    const { host, hear } = made();
    const listener = vi.fn();
    const stop = host.shownOutside.subscribe(listener);
    expect(host.shownOutside.has("q")).toBe(false);
    hear({ type: "open-diffs", approvalIds: ["q"] });
    expect(host.shownOutside.has("q")).toBe(true);
    expect(listener).toHaveBeenCalledTimes(1);
    stop();
    hear({ type: "open-diffs", approvalIds: [] });
    expect([host.shownOutside.has("q"), listener.mock.calls.length]).toEqual([false, 1]);
  });

  test("leaves files, differences and signing out to the extension", async () => {
    const { host, posted } = made();
    host.waiting();
    host.openFile("a.ts", 4);
    host.openFile("b.ts");
    host.showDiff("a.ts", "x", "y", "question");
    host.showDiff("a.ts", "x", "y", null);
    await host.signOut();
    expect(posted.slice(1)).toEqual([
      { type: "open-file", path: "a.ts", line: 4 },
      { type: "open-file", path: "b.ts", line: null },
      { type: "show-diff", title: "a.ts", before: "x", after: "y", approvalId: "question" },
      { type: "show-diff", title: "a.ts", before: "x", after: "y", approvalId: null },
      { type: "command", command: "byleave.signOut" },
    ]);
  });
});

describe("the sidebar", () => {
  test("shows nothing before the extension spoke, then why there is no chat and what to do", async () => {
    const { host, posted, hear } = made();
    const { container } = render(<EditorView host={host} />);
    expect(container.textContent).toBe("");
    hear({
      type: "place",
      place: {
        state: "away",
        picture: "key",
        title: "Sign in to Byleave",
        text: "Paste a token.\nOr start a server.",
        busy: false,
        actions: [
          { command: "byleave.signIn", label: "Sign in" },
          { command: "byleave.startServer", label: "Start a local server" },
        ],
      },
    });
    expect(screen.getByRole("heading").textContent).toBe("Sign in to Byleave");
    expect(screen.getByText("Or start a server.")).toBeDefined();
    await userEvent.click(screen.getByRole("button", { name: "Sign in" }));
    await userEvent.click(screen.getByRole("button", { name: "Start a local server" }));
    expect(posted.slice(1)).toEqual([
      { type: "command", command: "byleave.signIn" },
      { type: "command", command: "byleave.startServer" },
    ]);
    hear({
      type: "place",
      place: { state: "away", picture: "plug", title: "Connecting…", text: "", busy: true, actions: [] },
    });
    expect(screen.queryByRole("button")).toBeNull();
  });

  test("shows the chat of the project, and leads to what waits when the editor says so", () => {
    const { host, hear } = made();
    render(<EditorView host={host} />);
    hear({ type: "place", place: { state: "ready", projectId: "p1" } });
    expect(screen.getByText("chat of p1")).toBeDefined();
    hear({ type: "show-waiting" });
    const shows = vi.fn();
    host.onShowWaiting = shows; // as the chat does
    hear({ type: "show-waiting" });
    expect(shows).toHaveBeenCalledExactlyOnceWith(null);
  });
});
